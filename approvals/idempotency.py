"""Idempotency keys: claimed, found again, forgotten when their time is over (R-A2 to R-A4). By the database's clock.

A key only saves an agent from a second answer; that an operation happens once does not hang on it. What is
answered to a repeated key is decided in `intake`.
"""

from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db.models import Exists, OuterRef, Q

from approvals.models import ActionStatus, IdempotencyRecord
from approvals.representation import is_final
from ledger.clock import now as ledger_now
from ledger.models import Operation
from ledger.states import FINAL
from ledger.transactions import Tx, tenant_transaction

ENDPOINT = "actions.create"
"""A logical name, so that every way to submit shares one space of keys."""
BATCH = 1_000


def find(tenant_id: UUID, agent_id: UUID, key: str, *, now: datetime) -> IdempotencyRecord | None:
    """The live record of a key, under its key lock. A lapsed one is removed, and the key is free again.

    A key lapses when its time is over and its action is final; until then it keeps answering (K5).
    """
    record = (
        IdempotencyRecord.objects.filter(tenant_id=tenant_id, agent_id=agent_id, endpoint=ENDPOINT, key=key)
        .select_related("action")
        .first()
    )
    if record is None or now < record.expires_at:
        return record
    states = list(Operation.objects.filter(action_id=record.action_id).values_list("state", flat=True))
    if not is_final(record.action.status, states):
        return record
    IdempotencyRecord.objects.filter(pk=record.pk).delete()
    return None


def claim(
    tx: Tx, *, agent_id: UUID, key: str, fingerprint: str, action_id: UUID, status: int, now: datetime
) -> IdempotencyRecord:
    """Insert the key; the unique constraint judges, with IntegrityError. The action may be inserted after it."""
    return IdempotencyRecord.objects.create(
        tenant_id=tx.tenant_id,
        agent_id=agent_id,
        endpoint=ENDPOINT,
        key=key,
        fingerprint=fingerprint,
        action_id=action_id,
        status=status,
        created_at=now,
        expires_at=now + settings.IDEMPOTENCY_RETENTION,
    )


def count(action_id: UUID) -> int:
    """How many keys name the action: how often it was asked for, as far as is still known."""
    return IdempotencyRecord.objects.filter(action_id=action_id).count()


def purge(tenant_id: UUID) -> int:
    """Delete a tenant's lapsed keys; returns how many. Those of actions that are not final stay (K5).

    Rows that another sweep holds are left to it, so that two at once neither wait nor deadlock (K18).
    """
    of_action = Operation.objects.filter(action_id=OuterRef("action_id"))
    settled = Q(
        action__status__in=[s for s in ActionStatus if s not in {ActionStatus.PENDING, ActionStatus.APPROVED}]
    )
    carried_out = (
        Q(action__status=ActionStatus.APPROVED)
        & Exists(of_action)
        & ~Exists(of_action.exclude(state__in=FINAL))
    )
    gone = 0
    while True:
        with tenant_transaction(tenant_id):
            lapsed = IdempotencyRecord.objects.filter(tenant_id=tenant_id, expires_at__lte=ledger_now())
            rows = (
                lapsed.filter(settled | carried_out)
                .order_by("pk")
                .select_for_update(of=("self",), skip_locked=True)
            )
            ids = [record.pk for record in rows[:BATCH]]
            IdempotencyRecord.objects.filter(pk__in=ids).delete()
        gone += len(ids)
        if len(ids) < BATCH:
            return gone
