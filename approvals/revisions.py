"""Which earlier action stands behind a submission: the same one again, the one it replaces, or one in its way.

The look-ups and rules of *Revisions* in the design, inside the submission's transaction. Nothing is inserted
here, and parameters are compared, never reinterpreted.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from approvals.models import Action, ActionStatus, Agent, Decision
from approvals.preparation import unfit
from approvals.settlement import lock_action, settle_action
from approvals.submissions import Fault, IntakeError, Submission
from ledger import operations
from ledger.journal import SYSTEM, Actor
from ledger.keys import canonical
from ledger.models import Operation
from ledger.states import HAPPENED, OperationState
from ledger.transactions import Tx

# Of these nothing happened and nothing will: the way is free for a successor.
WITHOUT_EFFECT = frozenset(
    {
        OperationState.BLOCKED,
        OperationState.FAILED,
        OperationState.CANCELLED,
        OperationState.RECONCILED_NOT_EXECUTED,
    }
)
MAY_FOLLOW = frozenset(
    {ActionStatus.PENDING, ActionStatus.EXPIRED, ActionStatus.CANCELLED, ActionStatus.REJECTED}
)


class OutrunError(Exception):
    """A rival opened a successor between our look and our lock; look again."""


def of_operation(tenant_id: UUID, agent_id: UUID, submission: Submission) -> list[Action]:
    """Every revision of the operation (run, step, kind) of this agent, the newest first."""
    rows = Action.objects.filter(
        tenant_id=tenant_id,
        agent_id=agent_id,
        run_id=submission.run_id,
        step_id=submission.step_id,
        kind=submission.kind,
    )
    return list(rows.order_by("-revision"))


def same_text(action: Action, submission: Submission) -> bool:
    """Whether the parameters are those that the action was submitted with, whatever their spacing and order."""
    if submission.schema_version not in {None, action.schema_version}:
        return False
    if action.submitted == submission.submitted:
        return True
    try:
        return canonical(json.loads(action.submitted)) == canonical(submission.parameters)
    except ValueError as error:
        raise unfit(error) from error


def known(
    revisions: Sequence[Action], submission: Submission, *, fingerprint: str | None = None
) -> Action | None:
    """The revision that this submission asks for again, if there is one.

    Without `fingerprint` the submitted texts are compared, with it what they were normalized to. A submission
    that names an action as superseded can only mean that action's successor; one that names none means the
    newest revision that is equal to it, so that a late retry of an old request gets its own revision back.
    """
    candidates = revisions
    if submission.supersedes is not None:
        candidates = [one for one in revisions if one.supersedes_id == submission.supersedes]
    for one in candidates:
        equal = same_text(one, submission) if fingerprint is None else one.fingerprint == fingerprint
        if equal:
            return one
    return None


def predecessor(revisions: Sequence[Action], submission: Submission) -> Action | None:
    """The newest revision, where the submission may be its successor; None where there is no revision at all.

    Raises IntakeError: `operation_conflict` where something else stands and is not named; `supersede_refused`
    where what is named has a successor; `invalid_parameters` where it is no action of this operation.
    """
    newest = revisions[0] if revisions else None
    if submission.supersedes is None:
        if newest is not None:
            raise IntakeError(
                code="operation_conflict",
                detail="This run and step proposed other parameters before. A changed proposal is a new revision: "
                "name the action in `supersedes`.",
                action=newest.id,
            )
        return None
    named = next((one for one in revisions if one.id == submission.supersedes), None)
    if named is None or newest is None:
        raise IntakeError(
            code="invalid_parameters",
            detail="`supersedes` names no action of yours with this run, step and kind.",
            faults=(Fault(detail="There is no such action of this operation.", pointer="/supersedes"),),
        )
    if named.superseded_by_id is not None:
        raise IntakeError(
            code="operation_conflict",
            detail="The action that `supersedes` names has a successor with other parameters; name the newest one.",
            action=newest.id,
        )
    return named


def make_way(tx: Tx, old: Action, successor_id: UUID, agent: Agent) -> Action:
    """Lock the old revision, ask whether it may be followed, and let it name its successor.

    A pending one becomes `superseded`, or `expired` where its time is over. Returns it as it then stands.
    Raises IntakeError `supersede_refused` where it was approved and something may have come of it, and
    OutrunError where it got another successor meanwhile.
    """
    old = lock_action(old.id)
    rows = operations.lock_for_action(old.id)
    now = tx.now()
    if old.superseded_by_id is not None:
        raise OutrunError
    refusal = why_not(old, rows)
    if refusal:
        raise IntakeError(code="supersede_refused", detail=refusal, action=old.id)
    close_overdue(tx, old, now)
    Action.objects.filter(id=old.id).update(superseded_by_id=successor_id, updated_at=now)
    old.superseded_by_id = successor_id
    if old.status == ActionStatus.PENDING:
        settle_action(
            tx,
            old,
            ActionStatus.SUPERSEDED,
            by_type="agent",
            by_names=[agent.name],
            reason="The agent submitted a new revision.",
            actor=Actor(type="agent", id=str(agent.id)),
            at=now,
        )
    return old


def close_overdue(tx: Tx, old: Action, now: datetime) -> Decision | None:
    """Expire a locked action that is pending though its time is over: the clock was first."""
    if old.status != ActionStatus.PENDING or now < old.expires_at:
        return None
    return settle_action(
        tx,
        old,
        ActionStatus.EXPIRED,
        by_type="system",
        by_names=[],
        reason="Nobody decided in time.",
        actor=SYSTEM,
        at=now,
    )


def why_not(old: Action, rows: Sequence[Operation]) -> str:
    """Why a successor is refused; empty where it may be opened."""
    if old.status in MAY_FOLLOW:
        return ""
    if old.status != ActionStatus.APPROVED:
        return f"The action is {old.status}."
    if any(row.state in HAPPENED for row in rows):
        return "The action was approved and carried out."
    if any(row.unresolved or row.receipts.exists() for row in rows) or not rows:
        return "The action was approved, and it is not known yet what came of it."
    if any(row.state not in WITHOUT_EFFECT for row in rows):
        return "The action was approved and is being carried out."
    return ""
