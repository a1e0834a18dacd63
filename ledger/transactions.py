"""The one way to write: a tenant's transaction, which collects what must commit together and appends it last.

Inside it: no network call, no second tenant, no nesting. Row locks in the order of the design: key, stop,
action, operation, resource, and at the very end the journal's head.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from ledger import clock, journal, outbox
from ledger.errors import OverlappingTransactionError

logger = logging.getLogger(__name__)


@dataclass
class Tx:
    """An open tenant transaction. What is collected here is written by the last statements before the commit."""

    tenant_id: UUID
    entries: list[journal.Entry] = field(default_factory=list)

    def now(self) -> datetime:
        """The database's clock, read now: call it after the locks."""
        return clock.now()

    def journal(
        self,
        event: str,
        /,
        *,
        actor: journal.Actor,
        action_id: UUID | None = None,
        operation_id: UUID | None = None,
        **payload: Any,
    ) -> None:
        """Collect an entry. `payload` is readable detail: JSON values, UUIDs and aware times only."""
        self.entries.append(
            journal.Entry(
                event=event, actor=actor, action_id=action_id, operation_id=operation_id, payload=payload
            )
        )

    def schedule(self, step: str, subject_id: UUID, *, due_at: datetime, hint: bool = True) -> None:
        """Write down the next step, or move its due time where it is already written.

        A step that is due at once is also hinted to a worker after the commit; the hint may be lost.
        """
        hint = hint and due_at <= clock.now()
        row_id = outbox.put(self.tenant_id, step, subject_id, due_at=due_at, hinted=hint)
        if hint:
            transaction.on_commit(partial(outbox.hint, row_id), robust=True)

    def finish(self, step: str, subject_id: UUID) -> None:
        """Delete the row of a step that this transaction finishes."""
        outbox.remove(step, subject_id)

    def after(self, seconds: float) -> datetime:
        """The database's clock plus `seconds`."""
        return clock.now() + timedelta(seconds=seconds)


@contextmanager
def tenant_transaction(tenant_id: UUID) -> Iterator[Tx]:
    """Open a durable transaction inside the tenant's fence; journal entries are appended at its end."""
    if connection.in_atomic_block:
        raise OverlappingTransactionError
    with transaction.atomic(durable=True):
        enter_fence(tenant_id)
        tx = Tx(tenant_id)
        yield tx
        journal.append(tenant_id, tx.entries)


@contextmanager
def tenant_reads(tenant_id: UUID) -> Iterator[None]:
    """A short transaction inside the tenant's fence for reading only."""
    if connection.in_atomic_block:
        raise OverlappingTransactionError
    with transaction.atomic(durable=True):
        enter_fence(tenant_id)
        yield


def enter_fence(tenant_id: UUID) -> None:
    """Set `app.tenant` for this transaction only, so that a pooled connection cannot carry it on."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('app.tenant', %s, true)", [str(tenant_id)])
