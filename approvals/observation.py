"""After a proposal was taken in: read the provider's record, keep it, and weigh the proposal with it.

The outbox step `observe`. The provider is asked outside any transaction; what was read is applied under the
action's row lock, and only where the action still waits (design: Submit).
"""

import json
import logging
import math
from uuid import UUID

from django.db.models import Q

from approvals import decisions, kinds, reconsideration
from approvals.models import Action, ActionStatus
from approvals.settlement import lock_action, settle_action
from ledger import keys, observations, preconditions
from ledger.journal import SYSTEM, WORKER
from ledger.locks import stop_lock_shared
from ledger.models import Observation, Operation, Outbox
from ledger.providers.base import EffectRequest, PaymentRecord, ProviderUnavailableError
from ledger.states import HAPPENED
from ledger.transactions import Tx, tenant_reads, tenant_transaction

logger = logging.getLogger(__name__)

STEP = "observe"
LONGEST_WAIT = 60
"""Seconds between two tries to read a provider that cannot be read."""


def observe(tenant_id: UUID, action_id: UUID) -> str:
    """1. look · 2. ask the provider, with nothing open · 3. keep, check, weigh. Safe to run twice at once."""
    with tenant_reads(tenant_id):
        action = Action.objects.select_related("account").filter(id=action_id).first()
    if action is None or action.status != ActionStatus.PENDING:
        return let_go(tenant_id, action_id)
    if action.account is None or action.account.disabled_at is not None:
        return without_account(tenant_id, action_id)
    try:
        asked_at, record = observations.read(action.account, effect_request(action))
    except ProviderUnavailableError as error:
        return back_off(tenant_id, action_id, error.reason)
    with tenant_transaction(tenant_id) as tx:
        stop_lock_shared(tenant_id)
        action = lock_action(action_id)
        if not still_waits(tx, action):
            return "settled already"
        if action.account is None:
            raise ValueError("an action does not lose its account")
        kept = observations.store(
            tx,
            action_id=action_id,
            account=action.account,
            resource_key=action.resource_key,
            asked_at=asked_at,
            record=record,
        )
        return weigh(tx, action, kept, record)


def effect_request(action: Action) -> EffectRequest:
    """The action's first effect, as it would be sent; only read with here."""
    effect = kinds.version(action.kind, action.schema_version).effects[0]
    key = keys.operation_key(action.run_id, str(action.id), action.kind, action.schema_version, effect)
    return EffectRequest(
        kind=action.kind,
        kind_version=action.schema_version,
        effect=effect,
        parameters=json.loads(action.parameters),
        operation_key=key,
        provider_key=keys.provider_key(str(action.tenant_id), key),
    )


def still_waits(tx: Tx, action: Action) -> bool:
    """Whether a locked action is pending and in time; else the step is finished, and an overdue one closed."""
    if action.status != ActionStatus.PENDING:
        tx.finish(STEP, action.id)
        return False
    now = tx.now()
    if now >= action.expires_at:
        decisions.expire(tx, action, now)
        return False
    return True


def weigh(tx: Tx, action: Action, kept: Observation, record: PaymentRecord) -> str:
    """Put the record beside the action, close it where a precondition fails already, else ask the policy."""
    Action.objects.filter(id=action.id).update(observation=kept, updated_at=kept.answered_at)
    action.observation, action.updated_at = kept, kept.answered_at
    tx.journal(
        "action.observed",
        actor=WORKER,
        action_id=action.id,
        observation=kept.id,
        digest=kept.digest,
        asked_at=kept.asked_at,
        answered_at=kept.answered_at,
        record=kept.record,
    )
    shortfall = check(action, kept, record)
    if shortfall is not None:
        close(tx, action, shortfall.message)
        return f"rejected: {shortfall.reason}"
    word = reconsideration.reconsider(tx, action, kept)
    tx.finish(STEP, action.id)
    return f"observed: {word}"


def check(action: Action, kept: Observation, record: PaymentRecord) -> preconditions.Shortfall | None:
    """What stands in the way already. What our own operations did since the question began is taken off."""
    request = effect_request(action)
    if request.effect != "refund":
        return None
    hidden = Q(unresolved=True) | Q(state__in=HAPPENED, updated_at__gte=kept.asked_at)
    others = Operation.objects.filter(hidden, tenant_id=action.tenant_id, resource_key=action.resource_key)
    return preconditions.check_refund(
        record,
        amount=action.amount or 0,
        currency=action.currency,
        own_key=request.operation_key,
        reserved={key: amount or 0 for key, amount in others.values_list("operation_key", "amount")},
    )


def close(tx: Tx, action: Action, reason: str) -> None:
    """Nobody needs to be asked about what cannot be done."""
    settle_action(
        tx,
        action,
        ActionStatus.REJECTED,
        by_type="system",
        by_names=[],
        reason=reason,
        actor=SYSTEM,
    )


def let_go(tenant_id: UUID, action_id: UUID) -> str:
    """Remove the step of an action that no longer waits for it."""
    with tenant_transaction(tenant_id) as tx:
        waiting = Action.objects.filter(id=action_id, status=ActionStatus.PENDING).exists()
        if not waiting:
            tx.finish(STEP, action_id)
    return "settled already"


def without_account(tenant_id: UUID, action_id: UUID) -> str:
    """There is nobody to ask and nothing to act through."""
    with tenant_transaction(tenant_id) as tx:
        stop_lock_shared(tenant_id)
        action = lock_action(action_id)
        if not still_waits(tx, action):
            return "settled already"
        if action.account is None:
            close(tx, action, "The tenant has no provider account for this kind of action.")
        elif action.account.disabled_at is not None:
            close(tx, action, "The provider account of this action has been switched off.")
        else:
            tx.schedule(STEP, action_id, due_at=tx.now())  # switched on again since we looked
            return "again"
    return "rejected: no provider account"


def back_off(tenant_id: UUID, action_id: UUID, reason: str) -> str:
    """Ask again later: 1, 2, 4 … 60 seconds, counted from when the step was written down."""
    with tenant_transaction(tenant_id) as tx:
        action = lock_action(action_id)
        if not still_waits(tx, action):
            return "settled already"
        now = tx.now()
        row = Outbox.objects.filter(step=STEP, subject_id=action_id).first()
        waited = (now - row.created_at).total_seconds() if row else 0.0
        tx.schedule(STEP, action_id, due_at=tx.after(next_wait(waited)))
    logger.info("record not readable", extra={"action": str(action_id), "reason": reason})
    return f"provider not readable: {reason}; backed off"


def next_wait(waited: float) -> int:
    """Seconds to wait after having waited so long: doubling, since 1 + 2 + … + 2ⁿ⁻¹ = 2ⁿ - 1, up to a minute."""
    doublings = int(math.log2(max(0.0, waited) + 1))
    return min(LONGEST_WAIT, 1 << doublings)
