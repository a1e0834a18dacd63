"""What must still hold when an approved action is carried out; the ledger asks by dotted path (R-C5).

Called inside the claim's transaction under the shared stop lock. It reads live rows, takes no row locks and
writes nothing. A refusal blocks; so does anything that goes wrong in here.
"""

import json

from approvals import authority, fingerprints, reconsideration, votes
from approvals.models import Action, ActionStatus, Decision
from approvals.policy.rules import Outcome
from ledger.errors import GuardRefusedError
from ledger.execution import Claim


def authorization_in_force(claim: Claim) -> None:
    """The decision that allows this operation stands, covers exactly it, and would still be taken.

    Raises ledger.errors.GuardRefusedError: `not_approved`, `fingerprint_changed`, `agent_revoked`,
    `reviewer_not_entitled` or `policy_tightened`.
    """
    operation = claim.operation
    action = Action.objects.select_related("agent").filter(id=operation.action_id).first()
    decision = Decision.objects.filter(action_id=operation.action_id).first()
    verdicts = {action.status if action else "", decision.verdict if decision else ""}
    if action is None or decision is None or verdicts != {ActionStatus.APPROVED}:
        raise GuardRefusedError(
            "not_approved",
            "There is no approval for this.",
            now={"status": action.status if action else "no such action"},
        )
    check_fingerprint(claim, action, decision)
    if action.agent.revoked_at is not None:
        raise GuardRefusedError(
            "agent_revoked",
            "The agent that asked for this has been revoked since.",
            approved={"agent": action.agent.name},
            now={"revoked_at": action.agent.revoked_at.isoformat()},
        )
    if decision.by_type == "reviewer":
        check_reviewers(action, decision)
    check_policy(claim, action, decision)


def check_fingerprint(claim: Claim, action: Action, decision: Decision) -> None:
    """What will be sent is what was decided on, by its canonical bytes (R-B1)."""
    operation = claim.operation
    sending = fingerprints.action_fingerprint(
        tenant_id=str(operation.tenant_id),
        account_id=str(operation.account_id),
        kind=operation.kind,
        schema_version=operation.kind_version,
        parameters=json.loads(operation.request),
    )
    if {sending, operation.fingerprint, action.fingerprint} != {decision.fingerprint}:
        raise GuardRefusedError(
            "fingerprint_changed",
            "What would be sent is not what was approved.",
            requested={"fingerprint": sending},
            approved={"fingerprint": decision.fingerprint},
            now={"fingerprint": operation.fingerprint},
        )


def check_reviewers(action: Action, decision: Decision) -> None:
    """Enough of those who approved may still decide (K41)."""
    standing = votes.approvers(action, decision.state_version)
    needed = max(1, int(action.policy_outcome.get("quorum") or 1))
    if len(standing) < needed:
        raise GuardRefusedError(
            "reviewer_not_entitled",
            "Somebody who approved this may no longer decide.",
            approved={"approved_by": ", ".join(decision.by_names), "needed": needed},
            now={"approved_by": ", ".join(one.get_username() for one in standing), "needed": needed},
        )


def check_policy(claim: Claim, action: Action, decision: Decision) -> None:
    """A policy published since then would not ask for more than was given; the parameters stay what they are."""
    weighed = reconsideration.weigh(
        action.tenant_id,
        kind=action.kind,
        amount=action.amount,
        currency=action.currency,
        observation=claim.observation,
    )
    if weighed.version == decision.policy_version:
        return
    verdict = weighed.verdict
    if verdict.outcome is Outcome.ALLOW:
        return
    given = 0
    if verdict.outcome is Outcome.REVIEW and decision.by_type == "reviewer":
        approvers = [one.pk for one in votes.approvers(action, decision.state_version)]
        given = len(authority.still_entitled(approvers, action, action.tenant_id, verdict.roles))
        if given >= verdict.quorum:
            return
    raise GuardRefusedError(
        "policy_tightened",
        "The policy has become stricter since this was approved.",
        approved={"policy_version": decision.policy_version, "rule": action.policy_outcome.get("rule", "")},
        now={
            "policy_version": weighed.version,
            "rule": verdict.rule,
            "outcome": str(verdict.outcome),
            "needed": verdict.quorum,
            "given": given,
        },
    )
