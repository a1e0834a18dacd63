"""Rows that say what happens next and when (design: invariant 6), and the relay that publishes them.

PostgreSQL holds the work; the broker is only told. A row is deleted by the transaction that finishes its
step and by nothing else. `publish_at` moves forward when a row is published, `due_at` belongs to the step.
"""

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from celery import Celery
from django.conf import settings
from django.db import connection, transaction
from django.utils.module_loading import import_string

from ledger import clock
from ledger.ids import new_id
from ledger.models import Outbox

logger = logging.getLogger(__name__)

RUN_STEP = "ledger.run_step"
_publisher: Celery | None = None


def publisher() -> Celery:
    """A Celery application that only publishes, and gives up after a quarter of a second.

    Its own, because a worker's consumer needs longer time-outs than a request may be kept waiting for.
    """
    global _publisher  # noqa: PLW0603 - one connection pool a process
    if _publisher is None:
        app = Celery("ledger-hints", broker=settings.CELERY_BROKER_URL, set_as_current=False)
        app.conf.update(
            task_ignore_result=True,
            task_default_queue=settings.CELERY_TASK_DEFAULT_QUEUE,
            broker_pool_limit=4,
            broker_connection_timeout=0.25,
            broker_connection_retry=False,
            broker_transport_options={
                "socket_timeout": 0.25,
                "socket_connect_timeout": 0.25,
                "retry_on_timeout": False,
                "max_retries": 0,
                "visibility_timeout": settings.CELERY_BROKER_TRANSPORT_OPTIONS["visibility_timeout"],
            },
        )
        _publisher = app
    return _publisher


def hint(row_id: UUID) -> None:
    """Tell a worker that a row is due. May fail, quickly and silently: the relay finds the row anyway."""
    try:
        publisher().send_task(RUN_STEP, args=[str(row_id)], retry=False, ignore_result=True)
    except Exception as error:  # noqa: BLE001 - whatever the broker does, the commit stands
        logger.warning(
            "broker not reached; the relay will publish", extra={"row": str(row_id), "error": str(error)}
        )


def put(tenant_id: UUID, step: str, subject_id: UUID, *, due_at: datetime, hinted: bool) -> UUID:
    """Insert the row of a step, or move the due time of the one that stands. Inside the step's transaction.

    `hinted`: the caller tells a worker itself, so that the relay waits before it tells again.
    """
    later = timedelta(seconds=settings.LEDGER_REPUBLISH_SECONDS if hinted else 0)
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO ledger_outbox (id, tenant_id, step, subject_id, due_at, publish_at, published, created_at)
            VALUES (%s, %s, %s, %s, %s, %s, 0, ledger_now())
            ON CONFLICT ON CONSTRAINT outbox_step_once
            DO UPDATE SET due_at = EXCLUDED.due_at, publish_at = EXCLUDED.publish_at, published = 0
            RETURNING id
            """,
            [new_id(), tenant_id, step, subject_id, due_at, due_at + later],
        )
        row = cursor.fetchone()
    row_id: UUID = row[0]
    return row_id


def remove(step: str, subject_id: UUID) -> None:
    """Delete the row of a step that this transaction finishes."""
    Outbox.objects.filter(step=step, subject_id=subject_id).delete()


def relay(*, limit: int = 200, publish: bool = True, tenant_id: UUID | None = None) -> list[UUID]:
    """Move `publish_at` of what is due forward, commit, then publish; safe to run twice at once (K18)."""
    again = timedelta(seconds=settings.LEDGER_REPUBLISH_SECONDS)
    with transaction.atomic(durable=True):
        rows = Outbox.objects.select_for_update(skip_locked=True, no_key=True)
        now = clock.now()
        rows = rows.filter(publish_at__lte=now)
        if tenant_id is not None:
            rows = rows.filter(tenant_id=tenant_id)
        due = list(rows.order_by("publish_at")[:limit])
        for row in due:
            row.publish_at = max(row.publish_at, now) + again * min(2 ** min(row.published, 6), 60)
            row.published += 1
        Outbox.objects.bulk_update(due, ["publish_at", "published"])
    ids = [row.id for row in due]
    if publish:
        for row_id in ids:
            hint(row_id)
    return ids


def run(row_id: UUID) -> str:
    """Run the step of a row, if it is still there and due. Returns the handler's word for what happened.

    The handler's transaction deletes the row when the step is finished; whatever is raised leaves it there.
    """
    row = Outbox.objects.filter(id=row_id).first()
    if row is None:
        return "gone"
    if row.due_at > clock.now():
        return "early"
    handler = import_string(settings.LEDGER_STEPS[row.step])
    word: str = handler(row.tenant_id, row.subject_id)
    logger.info("step", extra={"step": row.step, "subject": str(row.subject_id), "result": word})
    return word


@dataclass(frozen=True, kw_only=True)
class Health:
    """The outbox as an operator sees it: how many rows are due, and for how long the oldest (seconds)."""

    due: int
    oldest_seconds: float


def health() -> Health:
    """Count what is due; a worker that is deaf makes the age grow."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*), coalesce(extract(epoch FROM ledger_now() - min(due_at)), 0)"
            " FROM ledger_outbox WHERE due_at <= ledger_now()"
        )
        row = cursor.fetchone()
    return Health(due=row[0], oldest_seconds=float(row[1]))
