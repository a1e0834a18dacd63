"""The plain WSGI entry: everything but waiting (`?wait=` answers at once here)."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "approvals.settings")
application = get_wsgi_application()
