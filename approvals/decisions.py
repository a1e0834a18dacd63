"""Deciding: approve, reject, cancel and expire. One transaction each, and no call to anything outside of it.

The order is always: shared stop lock, row lock, clock, entitlement, state and expiry, bindings, vote, quorum,
outcome, operations, outbox, journal (design: Decide). A refusal writes nothing, except that an action whose time
is over is closed and one whose policy has moved is weighed again, so that nobody meets the same page twice.
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from approvals import authority, policies, questions, reconsideration, votes
from approvals.models import Action, ActionStatus, Decision, User, Vote, VoteEvent
from approvals.refusals import (
    ActionNotFoundError,
    AlreadyDecidedError,
    ChangedError,
    ChangesRequestedError,
    DecisionError,
    ExpiredError,
    FieldError,
    NotEntitledError,
    ObservationMissingError,
    SettledError,
)
from approvals.settlement import lock_action, settle_action, settled_error
from approvals.votes import Bindings, next_seq
from ledger.journal import SYSTEM, Actor
from ledger.locks import stop_lock_shared
from ledger.transactions import Tx, tenant_transaction

__all__ = [
    "ActionNotFoundError",
    "AlreadyDecidedError",
    "Bindings",
    "ChangedError",
    "ChangesRequestedError",
    "DecisionError",
    "ExpiredError",
    "FieldError",
    "NotEntitledError",
    "ObservationMissingError",
    "Outcome",
    "SettledError",
    "cancel",
    "decide",
    "expire_due",
    "next_seq",
    "settle_action",
]

REASON_LIMIT = 2000


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What stands after a request that took effect, now or the first time it came (`replayed`).

    `status` is the action's; it is still `pending` where more votes are needed: `approvals` of `quorum`.
    """

    action_id: UUID
    status: str
    approvals: int
    quorum: int
    by_names: tuple[str, ...] = ()
    decided_at: datetime | None = None
    replayed: bool = False


def decide(
    *, tenant_id: UUID, user: User, action_id: UUID, verdict: str, reason: str, bindings: Bindings
) -> Outcome:
    """One reviewer's verdict, `approve` or `reject`, on the question that `bindings` name.

    An exact repetition by the same reviewer gives the same outcome and writes nothing. Raises DecisionError;
    JournalError or django.db.Error where it could not be written down, and then nothing was consumed.
    """
    event, reason = checked_form(verdict, reason)
    with tenant_transaction(tenant_id) as tx:
        result = vote(tx, user, action_id, event, reason, bindings)
    if isinstance(result, DecisionError):
        raise result  # after the commit: what it closed or weighed again stays so
    return result


def checked_form(verdict: str, reason: str) -> tuple[VoteEvent, str]:
    """The verdict and the reason as they are stored. Raises FieldError."""
    if verdict not in {VoteEvent.APPROVE, VoteEvent.REJECT}:
        raise FieldError("verdict", "Choose approve or reject.")
    reason = reason.strip()
    if "\x00" in reason or any("\ud800" <= character <= "\udfff" for character in reason):
        raise FieldError("reason", "The reason holds a character that cannot be stored.")
    if len(reason) > REASON_LIMIT:
        raise FieldError("reason", f"The reason is too long: at most {REASON_LIMIT} characters.")
    if verdict == VoteEvent.REJECT and not reason:
        raise FieldError("reason", "Say why you reject this; the agent is told.")
    return VoteEvent(verdict), reason


def vote(
    tx: Tx, user: User, action_id: UUID, event: VoteEvent, reason: str, bindings: Bindings
) -> Outcome | DecisionError:
    """The transaction of `decide`. A refusal that is returned commits what it wrote; one that is raised does not."""
    stop_lock_shared(tx.tenant_id)
    action = lock_action(action_id)
    now = tx.now()
    authority.entitled(user, action, tx.tenant_id)
    if votes.consumed(action, user, event, reason, bindings):
        return standing(action, replayed=True)
    refusal = still_open(tx, action, now)
    if refusal is not None:
        return refusal
    question = questions.build(action, action.observation)
    check_bindings(action, user, event, bindings, question)
    actor = Actor(type="reviewer", id=str(user.pk))
    cast = votes.cast(action, user, event, reason=reason, bindings=bindings, shown=question.shown(), at=now)
    note_vote(tx, user, cast, actor)
    if event == VoteEvent.REJECT:
        settle_action(
            tx,
            action,
            ActionStatus.REJECTED,
            by_type="reviewer",
            by_names=[user.get_username()],
            reason=reason,
            actor=actor,
            at=now,
        )
        return standing(action)
    approvers = votes.approvers(action, action.state_version)
    if len(approvers) >= quorum(action):
        settle_action(
            tx,
            action,
            ActionStatus.APPROVED,
            by_type="reviewer",
            by_names=[one.get_username() for one in approvers],
            reason=reason,
            actor=actor,
            at=now,
        )
    return standing(action)


def note_vote(tx: Tx, user: User, cast: Vote, actor: Actor) -> None:
    """The vote for the journal, with what stood on the page; `event` is the vote's own word."""
    payload = {
        "vote": cast.id,
        "event": cast.event,
        "reviewer": user.get_username(),
        "reason": cast.reason,
        "seq": cast.seq,
        "state_version": cast.state_version,
        "fingerprint": cast.fingerprint,
        "policy_version": cast.policy_version,
        "view_digest": cast.view_digest,
        "shown": cast.shown,
    }
    tx.journal("vote.cast", actor=actor, action_id=cast.action_id, **payload)


def still_open(tx: Tx, action: Action, now: datetime) -> DecisionError | None:
    """Pending, in time and under the policy in force; else the refusal, with what it writes down."""
    if action.status == ActionStatus.EXPIRED:
        return ExpiredError(action.expires_at)
    if action.status != ActionStatus.PENDING:
        return settled_error(action)
    if now >= action.expires_at:
        expire(tx, action, now)
        return ExpiredError(action.expires_at)
    current = policies.current(tx.tenant_id, action.kind)
    if current is None or current.version != action.policy_version:
        if reconsideration.reconsider(tx, action, action.observation) in {"approved", "rejected"}:
            return settled_error(action)
        return ChangedError(
            ["policy_version"], "The policy changed since this page was opened. Read it again, then decide."
        )
    return None


def check_bindings(
    action: Action, user: User, event: VoteEvent, bindings: Bindings, question: questions.Question
) -> None:
    """What the reviewer saw is what stands now, and it may be approved. Raises DecisionError."""
    stands = Bindings(
        state_version=action.state_version,
        fingerprint=action.fingerprint,
        policy_version=action.policy_version,
        view_digest=question.view_digest,
        seq=next_seq(action, user),
    )
    changed = [
        name for name in Bindings.__dataclass_fields__ if getattr(stands, name) != getattr(bindings, name)
    ]
    if changed:
        raise ChangedError(changed)
    if event != VoteEvent.APPROVE:
        return
    if action.changes_requested is not None:
        raise ChangesRequestedError
    if action.account_id is None or (
        action.observation_id is None and not reconsideration.goes_without(action)
    ):
        raise ObservationMissingError
    own = votes.standing(action, action.state_version).get(user.pk)
    if own is not None and own.event == VoteEvent.APPROVE:
        raise ChangedError(["seq"], "You have approved this already; it waits for somebody else.")


def quorum(action: Action) -> int:
    """How many different reviewers have to approve; never less than one."""
    return max(1, int(action.policy_outcome.get("quorum") or 1))


def standing(action: Action, *, replayed: bool = False) -> Outcome:
    """Where the action stands, read under its lock."""
    decision = Decision.objects.filter(action=action).first()
    version = decision.state_version if decision else action.state_version
    return Outcome(
        action_id=action.id,
        status=action.status,
        approvals=len(votes.approvers(action, version)),
        quorum=quorum(action),
        by_names=tuple(decision.by_names) if decision else (),
        decided_at=decision.decided_at if decision else None,
        replayed=replayed,
    )


def expire(tx: Tx, action: Action, now: datetime) -> None:
    """Close a pending, locked action whose time is over."""
    settle_action(
        tx,
        action,
        ActionStatus.EXPIRED,
        by_type="system",
        by_names=[],
        reason="Nobody decided in time.",
        actor=SYSTEM,
        at=now,
    )


def expire_due(tenant_id: UUID, action_id: UUID) -> str:
    """The outbox step `expire`: close the action if its time is over by the database's clock (R-B5, K18)."""
    with tenant_transaction(tenant_id) as tx:
        try:
            action = lock_action(action_id)
        except ActionNotFoundError:
            tx.finish("expire", action_id)
            return "there is no such action"
        now = tx.now()
        if action.status != ActionStatus.PENDING:
            tx.finish("expire", action_id)
            return "settled already"
        if now < action.expires_at:
            tx.schedule("expire", action_id, due_at=action.expires_at, hint=False)
            return "not yet due"
        expire(tx, action, now)
    return "expired"


def cancel(*, tenant_id: UUID, agent_id: UUID, action_id: UUID) -> Outcome:
    """The agent takes its own pending action back; again is the same.

    Raises ActionNotFoundError or AlreadyDecidedError.
    """
    with tenant_transaction(tenant_id) as tx:
        stop_lock_shared(tenant_id)
        action = lock_action(action_id)
        if action.agent_id != agent_id or action.agent.revoked_at is not None:
            raise ActionNotFoundError
        if action.status == ActionStatus.CANCELLED:
            return standing(action, replayed=True)
        now = tx.now()
        if action.status == ActionStatus.PENDING and now >= action.expires_at:
            expire(tx, action, now)
        if action.status != ActionStatus.PENDING:
            refusal = settled_error(action, AlreadyDecidedError)
        else:
            refusal = None
            settle_action(
                tx,
                action,
                ActionStatus.CANCELLED,
                by_type="agent",
                by_names=[action.agent.name],
                reason="The agent took it back.",
                actor=Actor(type="agent", id=str(agent_id)),
                at=now,
            )
            outcome = standing(action)
    if refusal is not None:
        raise refusal
    return outcome
