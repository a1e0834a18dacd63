"""The ledger as a Django application."""

from django.apps import AppConfig


class LedgerConfig(AppConfig):
    """Effects and evidence; knows nothing of approvals."""

    name = "ledger"
    default_auto_field = "django.db.models.BigAutoField"
