"""Operations: opened with a decision, moved one locked step at a time, never forgotten while unresolved.

The functions here run inside the caller's tenant transaction and hold its row locks. They move states, keep
the outbox in step and collect the journal's entries; when something may be sent is decided in `execution`.
"""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import rfc8785
from django.conf import settings
from django.db import IntegrityError, transaction

from ledger import keys
from ledger.errors import LedgerError
from ledger.journal import SYSTEM, WORKER, Actor
from ledger.models import Attempt, Case, Operation, ProviderAccount, Receipt
from ledger.providers.base import EffectRequest, ReceiptData
from ledger.states import (
    HAPPENED,
    NEVER_WITH_UNRESOLVED_ATTEMPT,
    AttemptOutcome,
    OperationState,
    may_move,
)
from ledger.transactions import Tx

S = OperationState
OPEN_STEPS = ("execute", "watchdog", "reconcile")
CASE_OWNER = "operators"
CASE_DEADLINE = timedelta(hours=24)


class InvalidTransitionError(LedgerError):
    """The operation cannot make this move from where it stands."""


class ReferenceTakenError(LedgerError):
    """Another operation already holds this reference of the provider's."""


def lock(operation_id: UUID) -> Operation:
    """The operation under its row lock; the caller's transaction is inside the tenant's fence."""
    return Operation.objects.select_for_update(of=("self",), no_key=True).get(id=operation_id)


def lock_for_action(action_id: UUID) -> list[Operation]:
    """All operations of an action under their row locks, in the order of their keys."""
    rows = Operation.objects.select_for_update(of=("self",), no_key=True).filter(action_id=action_id)
    return sorted(rows.order_by("pk"), key=lambda operation: operation.sequence)


def open_operation(
    tx: Tx,
    *,
    action_id: UUID,
    run_id: str,
    kind: str,
    kind_version: int,
    effect: str,
    sequence: int,
    parameters: Mapping[str, Any],
    fingerprint: str,
    account: ProviderAccount,
    resource_key: str,
    amount: int | None,
    currency: str,
    execute_before: datetime | None,
    actor: Actor,
) -> Operation:
    """Write an effect down before anything is sent (R-C1); the first of an action is due at once."""
    key = keys.operation_key(run_id, str(action_id), kind, kind_version, effect)
    now = tx.now()
    operation = Operation.objects.create(
        tenant_id=tx.tenant_id,
        action_id=action_id,
        kind=kind,
        kind_version=kind_version,
        effect=effect,
        sequence=sequence,
        operation_key=key,
        provider_key=keys.provider_key(str(tx.tenant_id), key),
        account=account,
        request=rfc8785.dumps(dict(parameters)).decode(),
        fingerprint=fingerprint,
        resource_key=resource_key,
        amount=amount,
        currency=currency,
        execute_before=execute_before,
        created_at=now,
        updated_at=now,
    )
    tx.journal(
        "operation.prepared",
        actor=actor,
        action_id=action_id,
        operation_id=operation.id,
        operation_key=key,
        provider_key=operation.provider_key,
        effect=effect,
        amount=amount,
        currency=currency,
        execute_before=execute_before,
    )
    if sequence == 1:
        tx.schedule("execute", operation.id, due_at=now)
    return operation


def effect_request(operation: Operation) -> EffectRequest:
    """What an adapter is given: the stored bytes, parsed, and the keys that were pinned before dispatch."""
    return EffectRequest(
        kind=operation.kind,
        kind_version=operation.kind_version,
        effect=operation.effect,
        parameters=json.loads(operation.request),
        operation_key=operation.operation_key,
        provider_key=operation.provider_key,
    )


def move(tx: Tx, operation: Operation, new: OperationState, **changes: Any) -> None:
    """Move a locked operation, by the table and by compare-and-swap; `changes` are set with it.

    Raises InvalidTransitionError; then nothing was written.
    """
    old = OperationState(operation.state)
    if not may_move(old, new):
        raise InvalidTransitionError(f"{old} -> {new} is no move of an operation")
    changes |= {"state": new, "state_version": operation.state_version + 1, "updated_at": tx.now()}
    moved = Operation.objects.filter(
        id=operation.id, state=old, state_version=operation.state_version
    ).update(**changes)
    if moved != 1:
        raise InvalidTransitionError(f"somebody else moved the operation out of {old} first")
    for name, value in changes.items():
        setattr(operation, name, value)


def unresolved_attempts(operation: Operation) -> list[Attempt]:
    """Attempts that may have landed, by number."""
    return list(
        operation.attempts.filter(outcome__in=[AttemptOutcome.PENDING, AttemptOutcome.UNKNOWN]).order_by(
            "number"
        )
    )


def may_have_landed(operation: Operation, *, apart_from: Attempt | None = None) -> bool:
    """Whether anything may have come of the operation: a receipt, or an attempt that is open or was accepted.

    The one question before every state that says nothing happened; `apart_from` is the attempt just answered.
    """
    if operation.receipts.exists():
        return True
    landed = operation.attempts.filter(
        outcome__in=[AttemptOutcome.PENDING, AttemptOutcome.UNKNOWN, AttemptOutcome.ACCEPTED]
    )
    if apart_from is not None:
        landed = landed.exclude(id=apart_from.id)
    return landed.exists()


def settle(
    tx: Tx, operation: Operation, new: OperationState, *, event: str, actor: Actor = WORKER, **payload: Any
) -> None:
    """Move to a final state: no step is left but what follows it, and its open cases close."""
    if new in NEVER_WITH_UNRESOLVED_ATTEMPT and operation.receipts.exists():
        raise InvalidTransitionError(f"a receipt is stored, so the operation cannot end as {new}")
    reason = payload.get("reason", "")
    detail = payload.get("detail") or {}
    changes: dict[str, Any] = {
        "unresolved": False,
        "lease_owner": None,
        "lease_until": None,
        "reason": reason,
    }
    if detail:
        changes["detail"] = detail
    move(tx, operation, new, **changes)
    for step in OPEN_STEPS:
        tx.finish(step, operation.id)
    tx.journal(event, actor=actor, action_id=operation.action_id, operation_id=operation.id, **payload)
    Case.objects.filter(operation=operation, settled_at__isnull=True).exclude(
        reason="duplicate_effect"
    ).update(settled_at=tx.now(), settlement=str(new))
    follow(tx, operation, new)


def follow(tx: Tx, operation: Operation, new: OperationState) -> None:
    """The next effect is due when this one happened; where it did not, none of the later ones will."""
    later = Operation.objects.filter(
        action_id=operation.action_id, sequence__gt=operation.sequence, state=S.PREPARED
    ).order_by("sequence")
    if new in HAPPENED:
        following = later.first()
        if following is not None:
            tx.schedule("execute", following.id, due_at=tx.now())
        return
    for following_id in list(later.values_list("id", flat=True)):
        cancel_undispatched(tx, lock(following_id), reason="earlier_effect_not_done", actor=SYSTEM)


def to_unknown(
    tx: Tx, operation: Operation, *, reason: str, again_in: float, actor: Actor = WORKER, **changes: Any
) -> None:
    """An attempt may have landed: stop writing, and ask the provider (R-C2)."""
    move(
        tx,
        operation,
        S.OUTCOME_UNKNOWN,
        unresolved=True,
        lease_owner=None,
        lease_until=None,
        reason=reason,
        reconcile_count=0,
        **changes,
    )
    tx.finish("execute", operation.id)
    tx.finish("watchdog", operation.id)
    tx.schedule("reconcile", operation.id, due_at=tx.after(again_in))
    tx.journal(
        "operation.outcome_unknown",
        actor=actor,
        action_id=operation.action_id,
        operation_id=operation.id,
        reason=reason,
        attempts=operation.attempt_count,
    )


def back_off(tx: Tx, operation: Operation, *, reason: str, retry_after: float | None) -> None:
    """Give the lease back and try later; one that may have landed goes back to being unknown meanwhile."""
    count = operation.backoff_count + 1
    delay = max(settings.LEDGER_BACKOFF_SECONDS * 2 ** min(count - 1, 6), min(retry_after or 0, 3600))
    if may_have_landed(operation):
        to_unknown(tx, operation, reason=reason, again_in=delay, backoff_count=count)
        return
    Operation.objects.filter(id=operation.id).update(
        lease_owner=None, lease_until=None, backoff_count=count, updated_at=tx.now()
    )
    tx.schedule("execute", operation.id, due_at=tx.after(delay))
    tx.journal(
        "operation.backed_off",
        actor=WORKER,
        action_id=operation.action_id,
        operation_id=operation.id,
        reason=reason,
        milliseconds=round(delay * 1000),
    )


def store_receipt(
    tx: Tx, operation: Operation, attempt: Attempt | None, data: ReceiptData, *, source: str
) -> Receipt:
    """Keep the provider's reference for this operation; the same one twice is one row (K63).

    A second reference is a second effect, and opens a case whichever way it came (R-D8). Raises
    ReferenceTakenError where another operation owns the reference.
    """
    known = Receipt.objects.filter(account_id=operation.account_id, reference=data.reference).first()
    if known is None:
        try:
            with transaction.atomic():
                known = Receipt.objects.create(
                    tenant_id=tx.tenant_id,
                    operation=operation,
                    attempt=attempt,
                    account_id=operation.account_id,
                    provider=operation.account.provider,
                    reference=data.reference,
                    amount=data.amount,
                    currency=data.currency,
                    provider_status=data.provider_status,
                    resource_key=operation.resource_key,
                    source=source,
                    received_at=tx.now(),
                )
        except IntegrityError:  # a rival stored it between our look and our insert
            known = Receipt.objects.get(account_id=operation.account_id, reference=data.reference)
    if known.operation_id != operation.id:
        raise ReferenceTakenError(f"{data.reference} belongs to operation {known.operation_id}")
    references = sorted(operation.receipts.values_list("reference", flat=True))
    if len(references) > 1:
        open_case(tx, operation, reason="duplicate_effect", detail={"references": references})
    return known


def open_case(tx: Tx, operation: Operation, *, reason: str, detail: Mapping[str, Any]) -> Case:
    """A question for a person, with an owner and a deadline; once per open reason (R-D6)."""
    known = Case.objects.filter(operation=operation, reason=reason, settled_at__isnull=True).first()
    if known is not None:
        return known
    now = tx.now()
    case = Case.objects.create(
        tenant_id=tx.tenant_id,
        operation=operation,
        reason=reason,
        detail=dict(detail),
        owner=CASE_OWNER,
        opened_at=now,
        review_by=now + CASE_DEADLINE,
    )
    tx.journal(
        "case.opened",
        actor=SYSTEM,
        action_id=operation.action_id,
        operation_id=operation.id,
        reason=reason,
        owner=case.owner,
        review_by=case.review_by,
        detail=dict(detail),
    )
    return case


def cancel_undispatched(tx: Tx, operation: Operation, *, reason: str, actor: Actor) -> bool:
    """Withdraw an operation of which nothing may have landed. False where it is too late."""
    if operation.state != S.PREPARED or operation.unresolved or may_have_landed(operation):
        return False
    settle(tx, operation, S.CANCELLED, event="operation.cancelled", actor=actor, reason=reason)
    return True
