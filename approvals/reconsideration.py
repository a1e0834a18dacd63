"""Weighing an action again: under the policy in force, with the provider's record where it has been read.

Policy may be evaluated anew as often as it changes; parameters are never reinterpreted (R-B7). Everything here
runs in the caller's tenant transaction, under the shared stop lock and, where it writes, the action's row lock.
"""

from dataclasses import dataclass
from uuid import UUID

from approvals import policies
from approvals.models import Action, ActionStatus
from approvals.policy import rules
from approvals.settlement import settle_action
from ledger import observations
from ledger.journal import SYSTEM, Actor
from ledger.models import Observation
from ledger.transactions import Tx


@dataclass(frozen=True, kw_only=True)
class Weighed:
    """What the policy in force says; version 0 where there is none, and then it denies."""

    version: int
    verdict: rules.Verdict


def goes_without(action: Action) -> bool:
    """Whether the policy lets this be approved before the provider's record has been read."""
    return action.policy_outcome.get("needs_observation", True) is False


def weigh(
    tenant_id: UUID, *, kind: str, amount: int | None, currency: str, observation: Observation | None
) -> Weighed:
    """The policy's word on these facts now. What cannot be read denies."""
    version = policies.current(tenant_id, kind)
    if version is None:
        return Weighed(
            version=0, verdict=denied(f"No policy is published for {kind}, so nothing of it is allowed.")
        )
    try:
        ruleset = rules.parse(version.rules)
    except rules.PolicyError:
        return Weighed(
            version=version.version,
            verdict=denied("The policy in force cannot be read, so nothing is allowed."),
        )
    record = observations.from_json(observation.record) if observation else None
    # an amount in another currency would make a share of the payment mean nothing
    comparable = record is not None and not record.missing and record.currency == currency
    facts = rules.Facts(
        amount=amount, currency=currency, payment_amount=record.amount if record and comparable else None
    )
    return Weighed(version=version.version, verdict=rules.evaluate(ruleset, facts))


def denied(reason: str) -> rules.Verdict:
    """A refusal that no rule of a policy has spoken."""
    return rules.Verdict(
        outcome=rules.Outcome.DENY,
        rule="",
        quorum=1,
        roles=(),
        reason=reason,
        needs_observation=False,
        expires_in=0,
        execute_within=0,
    )


def reconsider(tx: Tx, action: Action, observation: Observation | None) -> str:
    """Weigh a pending, locked action again and apply what comes of it; returns a word for it.

    `unchanged`: the question stands. `changed`: it is another question now, so its votes count no more.
    `approved`, `rejected`: the policy settled it.
    """
    weighed = weigh(
        tx.tenant_id,
        kind=action.kind,
        amount=action.amount,
        currency=action.currency,
        observation=observation,
    )
    verdict = weighed.verdict
    stored = verdict.as_json()
    if weighed.version == action.policy_version and stored == action.policy_outcome:
        return "unchanged"
    note_change(tx, action, weighed)
    if verdict.outcome is rules.Outcome.REVIEW:
        return "changed"
    status = ActionStatus.APPROVED if verdict.outcome is rules.Outcome.ALLOW else ActionStatus.REJECTED
    settle_action(
        tx,
        action,
        status,
        by_type="policy",
        by_names=[verdict.rule] if verdict.rule else [],
        reason=verdict.reason,
        actor=Actor(type="policy", id=f"{action.kind} v{weighed.version}"),
    )
    return str(status)


def note_change(tx: Tx, action: Action, weighed: Weighed) -> None:
    """Put the new outcome into the row: a higher state version, and with it a question without votes."""
    before = {"policy_version": action.policy_version, "policy": action.policy_outcome}
    changes = {
        "policy_version": weighed.version,
        "policy_outcome": weighed.verdict.as_json(),
        "state_version": action.state_version + 1,
        "updated_at": tx.now(),
    }
    Action.objects.filter(id=action.id).update(**changes)
    for name, value in changes.items():
        setattr(action, name, value)
    tx.journal(
        "action.policy_changed",
        actor=SYSTEM,
        action_id=action.id,
        before=before,
        policy_version=weighed.version,
        policy=weighed.verdict.as_json(),
        state_version=action.state_version,
    )
