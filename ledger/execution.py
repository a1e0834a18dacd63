"""The numbered execution of one operation (R-C2 to R-C7): who may send, when, and what an answer changes.

1  take a lease on the prepared row; commit
2  read the provider's live state; store it; commit
3  claim: stop lock, row lock, resource lock, clock, what must still hold; then `dispatched` with an attempt that
   says why it is allowed and a watchdog due at the lease's end, or `blocked` with the reason; commit
4  call, with the pinned key, no retries, a total deadline, and a look at the lease before the first byte
5  keep the answer, always; the transition alone is fenced by the lease (`ledger.answers`)
6  accepted -> succeeded; provably not accepted -> prepared, later; a definite no -> failed; else -> unknown

Nobody ever sends from `dispatched`, and no transaction is open during 2 and 4.
"""

import json
import logging
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID, uuid4

from django.conf import settings
from django.db import DatabaseError
from django.utils.module_loading import import_string

from ledger import accounts, locks, observations, operations, preconditions
from ledger.answers import record
from ledger.errors import GuardRefusedError
from ledger.journal import WORKER
from ledger.models import Attempt, Observation, Operation, RecoveryPermission
from ledger.operations import effect_request
from ledger.providers.base import Answer, Call, Outcome, ProviderUnavailableError
from ledger.states import HAPPENED, Allowance, AttemptOutcome, OperationState
from ledger.transactions import Tx, tenant_transaction

logger = logging.getLogger(__name__)
S = OperationState
ALREADY_THERE = "already_refunded"  # ledger.preconditions: the provider lists our own key


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a guard is shown. It may read, inside the claim's transaction; it takes no row locks."""

    operation: Operation
    observation: Observation
    attempt_number: int
    now: datetime


def execute(tenant_id: UUID, operation_id: UUID) -> str:
    """Run one operation as far as it goes now. Safe to call at any time, any number of times (K12)."""
    lease = uuid4()
    operation = take_lease(tenant_id, operation_id, lease)
    if operation is None:
        return "somebody else has it"
    for _ in range(3):
        observation = observe(tenant_id, operation, lease)
        if observation is None:
            return "provider not readable; backed off"
        started = time.monotonic()  # before the claim: the lease can only seem shorter than it is
        claimed = claim(tenant_id, operation_id, lease, observation)
        if isinstance(claimed, Attempt):
            answer = send(operation, started)
            return record(tenant_id, operation_id, claimed, answer)
        if claimed != "observation too old":
            return claimed
    with tenant_transaction(tenant_id) as tx:
        operation = operations.lock(operation_id)
        if operation.state == S.PREPARED and operation.lease_owner == lease:
            operations.back_off(tx, operation, reason="observation_too_old", retry_after=None)
    return "observation kept getting too old; backed off"


# 1 ----------------------------------------------------------------------------------------------------------
def take_lease(tenant_id: UUID, operation_id: UUID, lease: UUID) -> Operation | None:
    """Become the one who works on a prepared operation; None where it is not prepared or has an owner."""
    with tenant_transaction(tenant_id) as tx:
        operation = operations.lock(operation_id)
        if operation.state != S.PREPARED:
            tx.finish(
                "execute", operation_id
            )  # a row that was delivered late; what stands needs another step
            return None
        now = tx.now()
        if operation.lease_until is not None and operation.lease_until > now:
            return None
        before = Operation.objects.filter(action_id=operation.action_id, sequence__lt=operation.sequence)
        if before.exclude(state__in=HAPPENED).exists():
            return None  # an earlier effect has not happened yet (R-C9)
        operation.lease_owner = lease
        operation.lease_until = now + timedelta(seconds=settings.LEDGER_LEASE_SECONDS)
        operation.save(update_fields=["lease_owner", "lease_until"])
        operation.account  # noqa: B018 - read inside the fence, used outside of it
    return operation


# 2 ----------------------------------------------------------------------------------------------------------
def observe(tenant_id: UUID, operation: Operation, lease: UUID) -> Observation | None:
    """Read the provider's record and store it; None where it could not be read, and then it is tried later."""
    try:
        asked_at, record_ = observations.read(operation.account, effect_request(operation))
    except ProviderUnavailableError as error:
        with tenant_transaction(tenant_id) as tx:
            current = operations.lock(operation.id)
            if current.state != S.PREPARED or current.lease_owner != lease:
                return None
            # also past its time limit: only the provider's books can say that nothing of it is there
            operations.back_off(tx, current, reason=error.reason, retry_after=None)
        return None
    with tenant_transaction(tenant_id) as tx:
        return observations.store(
            tx,
            action_id=operation.action_id,
            account=operation.account,
            resource_key=operation.resource_key,
            asked_at=asked_at,
            record=record_,
        )


# 3 ----------------------------------------------------------------------------------------------------------
def claim(tenant_id: UUID, operation_id: UUID, lease: UUID, observation: Observation) -> Attempt | str:
    """Decide, in one transaction, whether this operation is sent now. An Attempt means: send; else why not."""
    with tenant_transaction(tenant_id) as tx:
        locks.stop_lock_shared(tenant_id)
        operation = operations.lock(operation_id)
        if operation.state != S.PREPARED or operation.lease_owner != lease:
            return "lost the lease"
        locks.resource_lock(tenant_id, operation.resource_key)
        now = tx.now()
        if operation.lease_until is None or operation.lease_until <= now:
            return "the lease ran out"
        if operation.receipts.exists():
            operations.to_unknown(tx, operation, reason="receipt_arrived", again_in=0)
            return "a receipt is there; it is settled, not sent again"
        if now - observation.asked_at > timedelta(seconds=settings.LEDGER_OBSERVATION_MAX_AGE_SECONDS):
            return "observation too old"
        number = operation.attempt_count + 1
        try:
            allowed_by, permission = allowance(operation, number, now)
            still_holds(Claim(operation=operation, observation=observation, attempt_number=number, now=now))
        except GuardRefusedError as refusal:
            refuse(tx, operation, refusal)
            return f"refused: {refusal.reason}"
        return dispatch(tx, operation, lease, number, allowed_by, permission, observation, now)


def expired(operation: Operation, now: datetime) -> GuardRefusedError:
    """The refusal of an operation that was not started in time."""
    limit = operation.execute_before
    return GuardRefusedError(
        "authorization_expired",
        "The approval had to be carried out by its time limit, and that has passed.",
        approved={"execute_before": limit.isoformat() if limit else ""},
        now={"time": now.isoformat()},
    )


def allowance(
    operation: Operation, number: int, now: datetime
) -> tuple[Allowance, RecoveryPermission | None]:
    """Why attempt `number` is allowed (R-D1). Raises GuardRefusedError where nothing allows it."""
    if number == 1:
        return Allowance.FIRST, None
    permission = RecoveryPermission.objects.filter(operation=operation, attempt_number=number).first()
    if permission is None and not operation.unresolved:
        return Allowance.NOT_ACCEPTED, None
    if permission is None or (permission.valid_until is not None and permission.valid_until <= now):
        raise GuardRefusedError(
            "no_recovery_permission", "An earlier attempt may have landed, and nothing allows another one."
        )
    return Allowance(permission.ground), permission


def still_holds(claim_: Claim) -> None:
    """Everything that must hold at this moment (R-C5). Raises GuardRefusedError; any other failure refuses too."""
    operation, now = claim_.operation, claim_.now
    shortfall = payment_shortfall(claim_) if operation.effect == "refund" else None
    if shortfall is not None and shortfall.reason == ALREADY_THERE:
        raise refusal_of(shortfall, operation)  # evidence, not a guard: it comes before every other refusal
    if operation.execute_before is not None and now >= operation.execute_before:
        raise expired(operation, now)
    if operation.account.disabled_at is not None:
        raise GuardRefusedError("provider_account_disabled", "The provider account has been switched off.")
    if shortfall is not None:
        raise refusal_of(shortfall, operation)
    for path in settings.LEDGER_GUARDS:
        try:
            import_string(path)(claim_)
        except (GuardRefusedError, DatabaseError):
            raise  # a database error ends the transaction and the step is tried again
        except Exception as error:
            logger.exception("a guard failed", extra={"guard": path})
            raise GuardRefusedError(
                "guard_error", f"The check {path} failed, so nothing was sent."
            ) from error


def payment_shortfall(claim_: Claim) -> preconditions.Shortfall | None:
    """What the provider's record must still allow: known, not disputed, same currency, enough left to refund."""
    operation = claim_.operation
    return preconditions.check_refund(
        observations.from_json(claim_.observation.record),
        amount=operation.amount or 0,
        currency=operation.currency,
        own_key=operation.operation_key,
        own_unresolved=operation.unresolved,
        reserved=reserved(operation, claim_.observation.asked_at),
    )


def refusal_of(shortfall: preconditions.Shortfall, operation: Operation) -> GuardRefusedError:
    """A shortfall as the refusal of a claim, with what was requested, approved and is now."""
    return GuardRefusedError(
        ALREADY_THERE if shortfall.reason == ALREADY_THERE else "precondition_failed",
        shortfall.message,
        requested={"code": shortfall.reason, **json.loads(operation.request)},
        approved=dict(shortfall.approved),
        now=dict(shortfall.now),
    )


def reserved(operation: Operation, asked_at: datetime) -> dict[str, int]:
    """Amounts of our other operations on the same resource that an observation begun at `asked_at` may not show."""
    others = Operation.objects.filter(resource_key=operation.resource_key).exclude(id=operation.id)
    open_ = others.filter(unresolved=True)
    settled = others.filter(state__in=HAPPENED, updated_at__gte=asked_at)
    return {key: amount or 0 for key, amount in (open_ | settled).values_list("operation_key", "amount")}


def refuse(tx: Tx, operation: Operation, refusal: GuardRefusedError) -> None:
    """Block an operation of which nothing was sent; one that may have landed goes back to being unknown."""
    detail = {**refusal.detail, "reason": refusal.reason}
    if refusal.reason == ALREADY_THERE:
        # our own key stands in the provider's books: a late original, or books of ours that are older than theirs
        operations.to_unknown(tx, operation, reason=refusal.reason, again_in=0, detail=detail)
        return
    if operations.may_have_landed(operation):
        operations.to_unknown(
            tx, operation, reason=refusal.reason, again_in=0, recovery_refused=refusal.reason, detail=detail
        )
        return
    operations.settle(
        tx, operation, S.BLOCKED, event="operation.blocked", reason=refusal.reason, detail=detail
    )


def dispatch(
    tx: Tx,
    operation: Operation,
    lease: UUID,
    number: int,
    allowed_by: Allowance,
    permission: RecoveryPermission | None,
    observation: Observation,
    now: datetime,
) -> Attempt:
    """Write down the attempt before it is made, with a fresh lease and a watchdog at its end."""
    until = now + timedelta(seconds=settings.LEDGER_LEASE_SECONDS)
    attempt = Attempt.objects.create(
        tenant_id=tx.tenant_id,
        operation=operation,
        number=number,
        allowed_by=allowed_by,
        permission=permission,
        observation=observation,
        lease_owner=lease,
        started_at=now,
        lease_until=until,
    )
    operations.move(
        tx,
        operation,
        S.DISPATCHED,
        attempt_count=number,
        unresolved=True,
        lease_owner=lease,
        lease_until=until,
        first_dispatched_at=operation.first_dispatched_at or now,
    )
    tx.finish("execute", operation.id)
    tx.schedule("watchdog", operation.id, due_at=until, hint=False)
    tx.journal(
        "operation.dispatched",
        actor=WORKER,
        action_id=operation.action_id,
        operation_id=operation.id,
        attempt=number,
        allowed_by=allowed_by,
        permission=permission.id if permission else None,
        observation=observation.id,
        provider_key=operation.provider_key,
        lease_until=until,
    )
    return attempt


# 4 ----------------------------------------------------------------------------------------------------------
def send(operation: Operation, started: float) -> Answer:
    """Call the provider once. `started` is a monotonic moment before the claim: the lease is measured from it."""
    deadline = settings.LEDGER_DEADLINE_SECONDS
    # a call that begins later than this could outlast the lease
    margin = settings.LEDGER_LEASE_SECONDS - deadline
    call = Call(deadline=deadline, may_write=lambda: time.monotonic() - started < margin)
    try:
        return accounts.adapter(operation.account).perform(effect_request(operation), call)
    except Exception:  # an adapter's own fault after the claim: it may have been sent, so it is unknown
        logger.exception("an adapter failed", extra={"operation": str(operation.id)})
        return Answer(outcome=Outcome.UNKNOWN, reason="adapter_error")


# the watchdog -----------------------------------------------------------------------------------------------
def watch(tenant_id: UUID, operation_id: UUID) -> str:
    """At the end of a lease: a dispatched operation whose owner has vanished becomes unknown (K4, K19)."""
    with tenant_transaction(tenant_id) as tx:
        operation = operations.lock(operation_id)
        if operation.state != S.DISPATCHED:
            tx.finish("watchdog", operation_id)
            return "settled already"
        now = tx.now()
        if operation.lease_until is not None and operation.lease_until > now:
            tx.schedule("watchdog", operation_id, due_at=operation.lease_until, hint=False)
            return "the lease still runs"
        Attempt.objects.filter(
            operation=operation, number=operation.attempt_count, outcome=AttemptOutcome.PENDING
        ).update(outcome=AttemptOutcome.UNKNOWN, reason="lease_expired", ended_at=now)
        operations.to_unknown(tx, operation, reason="lease_expired", again_in=0)
    return "outcome unknown"
