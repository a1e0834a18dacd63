"""Votes: one reviewer's events on one revision, counted at the state of the question that they answered.

Rows are appended and never changed. Everything here runs inside the caller's tenant transaction, under the
action's row lock; whether a vote may be cast at all is decided in `decisions`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from approvals import authority
from approvals.models import Action, Decision, User, Vote, VoteEvent


@dataclass(frozen=True, kw_only=True)
class Bindings:
    """What the form carries of the question that its reader saw (R-B1, R-B3).

    `seq` is the number that the reader's next vote has to take: without it, a delayed duplicate of an old
    click would count again.
    """

    state_version: int
    fingerprint: str
    policy_version: int
    view_digest: str
    seq: int


def next_seq(action: Action, user: User) -> int:
    """The number of this reviewer's next vote on this revision; it only ever grows."""
    newest = Vote.objects.filter(action=action, reviewer_id=user.pk).order_by("-seq").first()
    return newest.seq + 1 if newest else 1


def consumed(action: Action, user: User, event: VoteEvent, reason: str, bindings: Bindings) -> bool:
    """Whether exactly this request has cast a vote already, on the question that stands or was settled (K46)."""
    vote = Vote.objects.filter(action=action, reviewer_id=user.pk, seq=bindings.seq).first()
    if vote is None or vote.state_version != answered_version(action):
        return False
    # compared here and not in SQL, for a form may hold what no column can
    cast_with = Bindings(
        state_version=vote.state_version,
        fingerprint=vote.fingerprint,
        policy_version=vote.policy_version,
        view_digest=vote.view_digest,
        seq=vote.seq,
    )
    return (cast_with, vote.event, vote.reason) == (bindings, event, reason)


def answered_version(action: Action) -> int:
    """The state version whose votes count: of the question that was settled, else of the one that stands."""
    decision = Decision.objects.filter(action=action).first()
    return decision.state_version if decision else action.state_version


def cast(
    action: Action,
    user: User,
    event: VoteEvent,
    *,
    reason: str,
    bindings: Bindings,
    shown: Mapping[str, Any],
    at: datetime,
) -> Vote:
    """Append a vote with what its caster was shown (R-B4)."""
    return Vote.objects.create(
        tenant_id=action.tenant_id,
        action=action,
        reviewer_id=user.pk,
        seq=bindings.seq,
        event=event,
        reason=reason,
        state_version=bindings.state_version,
        fingerprint=bindings.fingerprint,
        policy_version=bindings.policy_version,
        view_digest=bindings.view_digest,
        shown=dict(shown),
        at=at,
    )


def standing(action: Action, state_version: int) -> dict[int, Vote]:
    """The last vote of each reviewer at one state of the question, by the reviewer's id."""
    votes = Vote.objects.filter(action=action, state_version=state_version).select_related("reviewer")
    return {vote.reviewer_id: vote for vote in votes.order_by("seq")}


def approvers(action: Action, state_version: int) -> list[User]:
    """Who approves at that state and may still decide now, in the order in which they voted."""
    votes = [v for v in standing(action, state_version).values() if v.event == VoteEvent.APPROVE]
    entitled = authority.still_entitled(
        (vote.reviewer_id for vote in votes), action, action.tenant_id, authority.needed_roles(action)
    )
    ordered = sorted(votes, key=lambda vote: (vote.at, vote.id))
    return [vote.reviewer for vote in ordered if vote.reviewer_id in entitled]
