"""Celery tasks of the ledger: thin. A message delivered twice, late or never changes nothing but the speed."""

from uuid import UUID

from celery import shared_task
from django.db import close_old_connections

from ledger import outbox


@shared_task(name=outbox.RUN_STEP)
def run_step(row_id: str) -> str:
    """Run the step of one outbox row."""
    close_old_connections()  # a connection that PostgreSQL has dropped must not fail every later task
    return outbox.run(UUID(row_id))


@shared_task(name="ledger.relay")
def relay() -> int:
    """Publish what is due."""
    close_old_connections()
    return len(outbox.relay())
