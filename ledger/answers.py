"""What an answer changes (steps 5 and 6 of the execution): kept always, and moving the operation only in time.

Every response is appended to its attempt, late ones too; the transition alone is fenced by the lease, so that
a worker that lost it cannot write over its successor (R-C4). Nothing here sends.
"""

from uuid import UUID

from django.conf import settings

from ledger import operations
from ledger.journal import WORKER
from ledger.models import Attempt, Operation, Response
from ledger.providers.base import Answer, Outcome
from ledger.states import FINAL, HAPPENED, AttemptOutcome, OperationState
from ledger.transactions import Tx, tenant_transaction

S = OperationState


def record(tenant_id: UUID, operation_id: UUID, attempt: Attempt, answer: Answer) -> str:
    """Keep the answer and make the transition, if the lease is still ours."""
    with tenant_transaction(tenant_id) as tx:
        operation = operations.lock(operation_id)
        mine = (
            operation.state == S.DISPATCHED
            and operation.lease_owner == attempt.lease_owner
            and operation.attempt_count == attempt.number
        )
        now = tx.now()
        Response.objects.create(
            tenant_id=tenant_id,
            attempt=attempt,
            received_at=now,
            outcome=answer.outcome,
            reason=answer.reason[:80],
            status=answer.status,
            headers=dict(answer.headers),
            body=answer.body.replace("\x00", "\\u0000"),
            late=not mine,
        )
        attempt = Attempt.objects.get(id=attempt.id)
        if attempt.outcome in {AttemptOutcome.PENDING, AttemptOutcome.UNKNOWN}:
            attempt.outcome, attempt.reason, attempt.ended_at = (
                AttemptOutcome(answer.outcome),
                answer.reason[:80],
                now,
            )
            attempt.save(update_fields=["outcome", "reason", "ended_at"])
        if not mine:
            return record_late(tx, operation, attempt, answer)
        return settle_answer(tx, operation, attempt, answer)


def settle_answer(tx: Tx, operation: Operation, attempt: Attempt, answer: Answer) -> str:
    """Step 6: what an answer in time changes."""
    earlier = operations.may_have_landed(operation, apart_from=attempt)
    if answer.outcome is Outcome.ACCEPTED and answer.receipt is not None:
        try:
            receipt = operations.store_receipt(tx, operation, attempt, answer.receipt, source="response")
        except operations.ReferenceTakenError as error:
            operations.to_unknown(
                tx, operation, reason="reference_taken", again_in=settings.LEDGER_BACKOFF_SECONDS
            )
            operations.open_case(tx, operation, reason="reference_taken", detail={"message": str(error)})
            return "the provider's reference belongs to another operation"
        operations.settle(
            tx,
            operation,
            S.SUCCEEDED,
            event="operation.succeeded",
            attempt=attempt.number,
            reference=receipt.reference,
            amount=receipt.amount,
            currency=receipt.currency,
            provider_status=receipt.provider_status,
            provider=receipt.provider,
        )
        return "succeeded"
    if answer.outcome in {Outcome.NOT_ACCEPTED, Outcome.REFUSED} and earlier:
        refused = answer.reason[:80] if answer.outcome is Outcome.REFUSED else ""
        operations.to_unknown(
            tx,
            operation,
            reason=f"attempt_{attempt.number}_{answer.outcome}"[:80],
            again_in=min(answer.retry_after or settings.LEDGER_BACKOFF_SECONDS, 3600),
            recovery_refused=refused,
        )
        return "an earlier attempt is still unresolved"
    if answer.outcome is Outcome.NOT_ACCEPTED:
        operations.move(tx, operation, S.PREPARED, unresolved=False, lease_owner=None, lease_until=None)
        tx.finish("watchdog", operation.id)
        operations.back_off(tx, operation, reason=answer.reason, retry_after=answer.retry_after)
        return "not accepted; backed off"
    if answer.outcome is Outcome.REFUSED:
        operations.settle(
            tx,
            operation,
            S.FAILED,
            event="operation.failed",
            attempt=attempt.number,
            reason=answer.reason[:80],
            detail={"message": f"The provider refused: {answer.reason}.", "status": answer.status},
        )
        return "failed"
    again = 0 if attempt.number == 1 else settings.LEDGER_BACKOFF_SECONDS * 2 ** min(attempt.number - 2, 8)
    operations.to_unknown(tx, operation, reason=answer.reason[:80], again_in=again)
    return "outcome unknown"


def record_late(tx: Tx, operation: Operation, attempt: Attempt, answer: Answer) -> str:
    """An answer after the lease went: strong evidence, but no transition of its own (R-C4)."""
    tx.journal(
        "operation.late_answer",
        actor=WORKER,
        action_id=operation.action_id,
        operation_id=operation.id,
        attempt=attempt.number,
        outcome=answer.outcome,
        reason=answer.reason[:80],
    )
    if answer.receipt is not None:
        try:
            operations.store_receipt(tx, operation, attempt, answer.receipt, source="response")
        except operations.ReferenceTakenError as error:
            operations.open_case(tx, operation, reason="reference_taken", detail={"message": str(error)})
        if operation.state in FINAL - HAPPENED:
            detail = {"state": operation.state, "reference": answer.receipt.reference}
            operations.open_case(tx, operation, reason="late_receipt", detail=detail)
    if operation.state == S.OUTCOME_UNKNOWN:
        tx.schedule("reconcile", operation.id, due_at=tx.now())
    return "late; kept as evidence"
