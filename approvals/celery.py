"""The Celery application. Redis and Celery only make things quick: everything they lose is found in PostgreSQL."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "approvals.settings")

app = Celery("second_key")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["ledger", "approvals"])
