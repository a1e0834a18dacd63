"""Everything that stands on an action's page, read in one short transaction and frozen for the template.

What it says about who may decide is for showing; the deciding transaction asks again (`approvals.decisions`).
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from approvals import authority, decisions, questions, votes
from approvals.kinds.base import DiffRow
from approvals.models import Action, ActionStatus, User, Vote, VoteEvent
from approvals.people import Person
from approvals.refusals import NotEntitledError
from approvals.review import inbox, outcome
from approvals.votes import Bindings
from ledger import clock
from ledger.models import Observation

NARROW = 500


@dataclass(frozen=True, kw_only=True)
class Desk:
    """An action's page. `why_not` says why this person cannot decide now; empty where they can."""

    action: Action
    question: questions.Question
    observation: Observation | None
    outcome: outcome.OutcomeView
    bindings: Bindings
    open: bool
    overdue: bool
    why_not: str
    unread: bool
    approvers: tuple[User, ...]
    quorum: int
    own: Vote | None
    following: inbox.Row | None
    now: datetime

    @property
    def facts(self) -> tuple[DiffRow, ...]:
        """The lines of the diff, but for the agent's own prose."""
        return tuple(row for row in self.question.rows if not is_claim(row))

    @property
    def claims(self) -> tuple[DiffRow, ...]:
        """What the agent says in its own words: never in the same box as what the provider says."""
        return tuple(row for row in self.question.rows if is_claim(row))

    @property
    def wordy(self) -> bool:
        """Whether the agent's words are too long for the narrow column."""
        texts = [self.question.reasoning, *(row.after.text for row in self.claims)]
        return any(len(text) > NARROW for text in texts)

    @property
    def approved_by_me(self) -> bool:
        """Whether this person's own approval stands and waits for somebody else's."""
        return self.own is not None and self.own.event == VoteEvent.APPROVE

    @property
    def may_approve(self) -> bool:
        """Whether the approve button can do anything now."""
        return not (self.unread or self.approved_by_me or self.action.changes_requested)

    @property
    def token(self) -> str:
        """Changes whenever the page would say something else than it does."""
        read = "" if self.observation is None else str(self.observation.id)
        parts = [
            str(self.action.state_version),
            self.outcome.token,
            read,
            str(len(self.approvers)),
            str(self.overdue),
        ]
        return ".".join(parts)


def is_claim(row: DiffRow) -> bool:
    """Whether a line is free text by the agent."""
    return row.source == "agent" and row.after.hostile and row.after.kind == "text"


def find(action_id: UUID) -> Action | None:
    """The action inside the tenant's fence, with what its page needs."""
    return (
        Action.objects.filter(id=action_id)
        .select_related("agent", "observation", "account", "supersedes", "superseded_by")
        .first()
    )


def read(person: Person, action: Action) -> Desk:
    """The page of an action for one person; inside the tenant's transaction."""
    now = clock.now()
    pending = action.status == ActionStatus.PENDING
    overdue = pending and now >= action.expires_at
    is_open = pending and not overdue
    question = questions.build(action, action.observation)
    seq = decisions.next_seq(action, person.user)
    return Desk(
        action=action,
        question=question,
        observation=action.observation,
        outcome=outcome.read(action),
        bindings=Bindings(
            state_version=action.state_version,
            fingerprint=action.fingerprint,
            policy_version=action.policy_version,
            view_digest=question.view_digest,
            seq=seq,
        ),
        open=is_open,
        overdue=overdue,
        why_not=why_not(person, action) if is_open else "",
        unread=action.observation_id is None,
        approvers=tuple(votes.approvers(action, action.state_version)) if is_open else (),
        quorum=decisions.quorum(action),
        own=votes.standing(action, action.state_version).get(person.user.pk) if is_open else None,
        following=None if is_open else inbox.next_after(person.tenant_id, action.id),
        now=now,
    )


def why_not(person: Person, action: Action) -> str:
    """Why this person may not decide on it, in words for them; empty where they may."""
    try:
        authority.entitled(person.user, action, person.tenant_id)
    except NotEntitledError as refusal:
        return refusal.message
    return ""
