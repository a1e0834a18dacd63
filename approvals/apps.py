"""The approval gateway as a Django application."""

from django.apps import AppConfig


class ApprovalsConfig(AppConfig):
    """Loads Celery, so that `shared_task` finds its application in every process."""

    name = "approvals"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Bind the Celery application and register the checks."""
        from approvals import celery, checks  # noqa: F401

        checks.register()
