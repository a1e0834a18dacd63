"""Unknown outcomes: ask the provider by our key, judge the evidence, apply the verdict.

The question is asked outside any transaction and remembered with its attempt number and the time it began;
the transition compares state and attempt number, so that a slow answer from before a later attempt settles
nothing. Permission to recover is recorded here, apart from permission to act (R-D2).
"""

import logging
from dataclasses import asdict
from datetime import datetime
from uuid import UUID

from django.conf import settings

from ledger import accounts, clock, operations
from ledger.journal import SYSTEM
from ledger.models import LookUp, Operation, RecoveryPermission
from ledger.operations import effect_request
from ledger.providers import base
from ledger.providers.base import Call, Capabilities, ProviderUnavailableError, ReceiptData
from ledger.providers.registry import capabilities_of
from ledger.states import Allowance, AttemptOutcome, OperationState
from ledger.transactions import Tx, tenant_reads, tenant_transaction
from ledger.verdict import UNRESOLVED, AttemptFact, Facts, Finding, LookUpFact, Verdict, judge

logger = logging.getLogger(__name__)
S = OperationState
SLOWEST_SECONDS = 3600


def reconcile(tenant_id: UUID, operation_id: UUID) -> str:
    """Ask once, and do what the evidence allows. Safe to run twice at once."""
    with tenant_reads(tenant_id):
        operation = Operation.objects.select_related("account").get(id=operation_id)
        has_receipt = operation.receipts.exists()
    if operation.state != S.OUTCOME_UNKNOWN:
        return let_go(tenant_id, operation_id)
    capabilities = capabilities_of(operation.account.provider)
    asked_at = clock.now()
    found = None if has_receipt else look_up(operation)
    with tenant_transaction(tenant_id) as tx:
        current = operations.lock(operation_id)
        if current.state != S.OUTCOME_UNKNOWN or current.attempt_count != operation.attempt_count:
            return "somebody else moved it first"
        if found is not None:
            keep(tx, current, asked_at, found)
        verdict = judge(facts(current), capabilities, tx.now())
        return apply(tx, current, verdict, capabilities)


def let_go(tenant_id: UUID, operation_id: UUID) -> str:
    """Remove the row of an operation that is no longer unknown."""
    with tenant_transaction(tenant_id) as tx:
        if operations.lock(operation_id).state != S.OUTCOME_UNKNOWN:
            tx.finish("reconcile", operation_id)
    return "settled already"


def look_up(operation: Operation) -> base.LookUp:
    """One look-up; what goes wrong is an incomplete answer, which proves nothing."""
    try:
        adapter = accounts.adapter(operation.account)
        return adapter.look_up(effect_request(operation), Call(deadline=settings.LEDGER_DEADLINE_SECONDS))
    except ProviderUnavailableError as error:
        return base.LookUp(complete=False, reason=error.reason)


def keep(tx: Tx, operation: Operation, asked_at: datetime, found: base.LookUp) -> None:
    """Store a look-up as evidence."""
    LookUp.objects.create(
        tenant_id=tx.tenant_id,
        operation=operation,
        attempt_number=operation.attempt_count,
        asked_at=asked_at,
        answered_at=tx.now(),
        complete=found.complete,
        matches=[asdict(match) for match in found.matches],
        reason=found.reason[:80],
        body=found.body.replace("\x00", "\\u0000"),
    )
    tx.journal(
        "operation.looked_up",
        actor=SYSTEM,
        action_id=operation.action_id,
        operation_id=operation.id,
        attempt=operation.attempt_count,
        asked_at=asked_at,
        complete=found.complete,
        references=[match.reference for match in found.matches],
        reason=found.reason[:80],
    )


def facts(operation: Operation) -> Facts:
    """Everything the verdict needs, read under the operation's lock."""
    return Facts(
        amount=operation.amount or 0,
        currency=operation.currency,
        attempts=[
            AttemptFact(number=one.number, outcome=AttemptOutcome(one.outcome), lease_until=one.lease_until)
            for one in operation.attempts.order_by("number")
        ],
        look_ups=[
            LookUpFact(
                attempt_number=one.attempt_number,
                asked_at=one.asked_at,
                complete=one.complete,
                matches=tuple(ReceiptData(**match) for match in one.matches),
            )
            for one in operation.look_ups.order_by("asked_at")
        ],
        receipts=[
            ReceiptData(
                reference=one.reference,
                amount=one.amount,
                currency=one.currency,
                provider_status=one.provider_status,
            )
            for one in operation.receipts.all()
        ],
        first_dispatched_at=operation.first_dispatched_at or operation.created_at,
        execute_before=operation.execute_before,
        recovery_refused=operation.recovery_refused,
    )


def apply(tx: Tx, operation: Operation, verdict: Verdict, capabilities: Capabilities) -> str:
    """Do what the verdict says, in the transaction that holds the operation's lock."""
    match verdict.finding:
        case Finding.HAPPENED:
            happened(tx, operation, verdict)
        case Finding.NOT_EXECUTED:
            operation.attempts.filter(outcome__in=list(UNRESOLVED)).update(
                outcome=AttemptOutcome.NOT_EXECUTED, ended_at=tx.now()
            )
            operations.settle(
                tx,
                operation,
                S.RECONCILED_NOT_EXECUTED,
                event="operation.reconciled_not_executed",
                actor=SYSTEM,
                reason=verdict.reason,
            )
        case Finding.MAY_RESEND:
            permit(tx, operation, verdict, capabilities)
        case Finding.PERSON:
            operations.open_case(
                tx, operation, reason=verdict.reason, detail={"attempts": operation.attempt_count}
            )
            ask_again(tx, operation)
        case Finding.WAIT:
            ask_again(tx, operation)
    return f"{verdict.finding}: {verdict.reason}"


def happened(tx: Tx, operation: Operation, verdict: Verdict) -> None:
    """The effect is in the provider's books: store its reference, and name any double."""
    if verdict.receipt is None:
        raise ValueError("a verdict of `happened` carries a receipt")
    try:
        receipt = operations.store_receipt(tx, operation, None, verdict.receipt, source="look_up")
        for double in verdict.duplicates:
            operations.store_receipt(tx, operation, None, double, source="look_up")
    except operations.ReferenceTakenError as error:
        operations.open_case(tx, operation, reason="reference_taken", detail={"message": str(error)})
        ask_again(tx, operation)
        return
    operations.settle(
        tx,
        operation,
        S.RECONCILED_SUCCEEDED,
        event="operation.reconciled_succeeded",
        actor=SYSTEM,
        reason=verdict.reason,
        reference=receipt.reference,
        amount=receipt.amount,
        currency=receipt.currency,
        provider_status=receipt.provider_status,
        provider=receipt.provider,
    )


def permit(tx: Tx, operation: Operation, verdict: Verdict, capabilities: Capabilities) -> None:
    """Record the permission to recover, then prepare the operation again: same key, attempt n+1."""
    number = operation.attempt_count + 1
    ground = verdict.ground
    if ground is None:
        raise ValueError("a verdict of `may_resend` names its ground")
    newest = operation.look_ups.order_by("-asked_at").first()
    evidence = {
        "look_up": str(newest.id) if newest else None,
        "asked_at": newest.asked_at.isoformat() if newest else None,
        "first_dispatched_at": operation.first_dispatched_at.isoformat()
        if operation.first_dispatched_at
        else None,
        "key_retention_seconds": int(capabilities.key_retention.total_seconds())
        if capabilities.key_retention
        else None,
    }
    permission = RecoveryPermission.objects.filter(operation=operation, attempt_number=number).first()
    if (
        permission is not None and permission.ground != ground
    ):  # granted before on other evidence, and not used
        operations.open_case(tx, operation, reason="evidence_changed", detail={"was": permission.ground})
        ask_again(tx, operation)
        return
    if permission is None:
        permission = RecoveryPermission.objects.create(
            tenant_id=tx.tenant_id,
            operation=operation,
            attempt_number=number,
            ground=ground,
            evidence=evidence,
            granted_by="rule",
            granted_at=tx.now(),
            valid_until=verdict.valid_until,
        )
    proven = ground is Allowance.CONFIRMED_NOT_EXECUTED
    if proven:
        operation.attempts.filter(outcome__in=list(UNRESOLVED)).update(
            outcome=AttemptOutcome.NOT_EXECUTED, ended_at=tx.now()
        )
    operations.move(tx, operation, S.PREPARED, unresolved=not proven)
    tx.finish("reconcile", operation.id)
    tx.schedule("execute", operation.id, due_at=tx.now())
    tx.journal(
        "operation.recovery_permitted",
        actor=SYSTEM,
        action_id=operation.action_id,
        operation_id=operation.id,
        permission=permission.id,
        attempt=number,
        ground=ground,
        valid_until=verdict.valid_until,
        evidence=evidence,
    )


def ask_again(tx: Tx, operation: Operation) -> None:
    """Wait longer each time, and never stop asking: a late original must be seen (R-D8)."""
    count = operation.reconcile_count + 1
    Operation.objects.filter(id=operation.id).update(reconcile_count=count)
    delay = min(settings.LEDGER_BACKOFF_SECONDS * 2 ** min(count - 1, 16), SLOWEST_SECONDS)
    tx.schedule("reconcile", operation.id, due_at=tx.after(delay))
