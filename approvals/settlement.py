"""The one terminal outcome of an action: decision, status, operations, outbox and journal in one transaction.

Called with the action's row locked, by people's decisions, by policies, by agents who cancel and by the clock.
Whether an outcome is right is not asked here; that it happens once is (R-B3, design: invariants 4 and 5).
"""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from approvals import kinds
from approvals.models import Action, ActionStatus, Decision
from approvals.refusals import ActionNotFoundError, SettledError
from ledger.journal import Actor
from ledger.operations import open_operation
from ledger.transactions import Tx

EXECUTE_WITHIN = 3600
"""Seconds from a decision to the start of its execution, where the policy names none."""


def lock_action(action_id: UUID) -> Action:
    """The action under its row lock, inside the tenant's fence. Raises ActionNotFoundError."""
    # of self only: the account and the observation may be null, and an outer join cannot be locked (K70)
    rows = Action.objects.select_for_update(of=("self",), no_key=True)
    action = rows.filter(id=action_id).first()
    if action is None:
        raise ActionNotFoundError
    return action


def settled_error(action: Action, error: type[SettledError] = SettledError) -> SettledError:
    """Who or what settled a settled action, and when, in neutral words (K29)."""
    decision = Decision.objects.get(action=action)
    return error(
        verdict=decision.verdict,
        by_type=decision.by_type,
        by_names=decision.by_names,
        decided_at=decision.decided_at,
    )


def settle_action(
    tx: Tx,
    action: Action,
    status: ActionStatus,
    *,
    by_type: str,
    by_names: Sequence[str],
    reason: str,
    actor: Actor,
    at: datetime | None = None,
) -> Decision:
    """Give a pending, locked action its outcome; an approval opens its operations.

    `at` is the moment that was held against the expiry, where the caller read it under the lock already.
    Raises SettledError where the action has an outcome, and then nothing was written.
    """
    decided_at = at or tx.now()
    answered = action.state_version
    moved = Action.objects.filter(id=action.id, status=ActionStatus.PENDING, state_version=answered).update(
        status=status, state_version=answered + 1, updated_at=decided_at
    )
    if moved != 1:
        raise settled_error(action)
    action.status, action.state_version, action.updated_at = status, answered + 1, decided_at
    outcome = action.policy_outcome
    within = timedelta(seconds=int(outcome.get("execute_within") or EXECUTE_WITHIN))
    approved = status == ActionStatus.APPROVED
    decision = Decision.objects.create(
        tenant_id=action.tenant_id,
        action=action,
        verdict=status,
        by_type=by_type,
        by_names=list(by_names),
        reason=reason,
        policy_version=action.policy_version,
        fingerprint=action.fingerprint,
        state_version=answered,
        decided_at=decided_at,
        execute_before=decided_at + within if approved else None,
    )
    tx.finish("expire", action.id)
    tx.finish("observe", action.id)
    tx.journal(
        f"action.{status}",
        actor=actor,
        action_id=action.id,
        decision=decision.id,
        verdict=status,
        by={"type": by_type, "names": list(by_names)},
        reason=reason,
        kind=action.kind,
        schema_version=action.schema_version,
        parameters=json.loads(action.parameters),
        fingerprint=action.fingerprint,
        policy_version=action.policy_version,
        rule=outcome.get("rule"),
        quorum=outcome.get("quorum"),
        roles=outcome.get("roles"),
        observation=action.observation_id,
        state_version=answered,
        decided_at=decided_at,
        execute_before=decision.execute_before,
    )
    if approved:
        open_effects(tx, action, decision, actor)
    return decision


def open_effects(tx: Tx, action: Action, decision: Decision, actor: Actor) -> None:
    """One operation per effect of the kind's version, in order; only the first is bound in time."""
    if action.account is None:
        raise ValueError(f"action {action.id} has no provider account to act through")
    parameters = json.loads(action.parameters)
    effects = kinds.version(action.kind, action.schema_version).effects
    for sequence, effect in enumerate(effects, start=1):
        open_operation(
            tx,
            action_id=action.id,
            run_id=action.run_id,
            kind=action.kind,
            kind_version=action.schema_version,
            effect=effect,
            sequence=sequence,
            parameters=parameters,
            fingerprint=decision.fingerprint,
            account=action.account,
            resource_key=action.resource_key,
            amount=action.amount,
            currency=action.currency,
            execute_before=decision.execute_before if sequence == 1 else None,
            actor=actor,
        )
