"""Taking in what an agent proposes: one transaction, in which key, action, next steps and journal commit together.

The second identical call changes nothing, however often, late or concurrently it comes (R-A1 to R-A6). No HTTP
here, and no call to anything outside the database.
"""

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal
from uuid import UUID

from django.db import IntegrityError
from psycopg.errors import UniqueViolation

from approvals import decisions, idempotency, revisions
from approvals.models import Action, ActionStatus, Agent
from approvals.policy.rules import Outcome
from approvals.preparation import Ready, Weighed, prepare, request_fingerprint, weigh
from approvals.representation import Wire, represent
from approvals.settlement import settle_action
from approvals.submissions import IntakeError, Submission, Submitted
from ledger.ids import new_id
from ledger.journal import Actor
from ledger.locks import stop_lock_shared, try_key_lock
from ledger.transactions import Tx, tenant_reads, tenant_transaction

__all__ = ["IntakeError", "Submission", "Submitted", "submit"]

logger = logging.getLogger(__name__)

TRIES = 3
"""A rival's insert ends our transaction; the next try finds what the rival wrote. More than once is very rare."""
BUSY_SECONDS = 1


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What a transaction found or made. `wire` is None where the action is overdue and must be closed first."""

    action_id: UUID
    wire: Wire | None
    status: int
    how: Literal["created", "replayed", "repeated"]


def submit(*, tenant_id: UUID, agent_id: UUID, key: str, submission: Submission) -> Submitted:
    """Take a proposal in, or find the one that it repeats. Raises IntakeError; then nothing was changed.

    The steps 4 to 10 of *Submit* in the design. JournalError or django.db.Error: nothing was changed either,
    and the same call may be made again.
    """
    standing = _until_settled(tenant_id, agent_id, key, submission)
    wire = standing.wire
    if wire is None:
        decisions.expire_due(tenant_id, standing.action_id)  # K28: never "pending" after its time
        with tenant_reads(tenant_id):
            wire = represent(Action.objects.get(id=standing.action_id))
    if standing.how != "created":
        logger.info("repeated", extra={"action": wire["id"], "run": wire["run_id"], "how": standing.how})
    return Submitted(action=wire, status=standing.status, how=standing.how)


def _until_settled(tenant_id: UUID, agent_id: UUID, key: str, submission: Submission) -> Standing:
    for _ in range(TRIES):
        try:
            with tenant_transaction(tenant_id) as tx:
                return _take_in(tx, agent_id, key, submission)
        except (IntegrityError, revisions.OutrunError) as error:
            if isinstance(error, IntegrityError) and not isinstance(error.__cause__, UniqueViolation):
                raise  # no rival but a fault of ours
            logger.info("a rival was quicker", extra={"run": submission.run_id, "step": submission.step_id})
    raise IntakeError(code="in_progress", retry_after=BUSY_SECONDS)


def _take_in(tx: Tx, agent_id: UUID, key: str, submission: Submission) -> Standing:
    """1. the key's lock · 2. the key · 3. the operation · 4. validate · 5. insert, or repeat."""
    if not try_key_lock(tx.tenant_id, agent_id, idempotency.ENDPOINT, key):
        raise IntakeError(code="in_progress", retry_after=BUSY_SECONDS)
    stop_lock_shared(tx.tenant_id)
    living(agent_id)
    asked = request_fingerprint(submission)
    record = idempotency.find(tx.tenant_id, agent_id, key, now=tx.now())
    if record is not None:
        if record.fingerprint != asked:
            raise IntakeError(code="idempotency_key_reused", action=record.action_id)
        return _as_it_stands(tx, record.action, record.status, "replayed")

    earlier = revisions.of_operation(tx.tenant_id, agent_id, submission)
    again = revisions.known(earlier, submission)
    ready = None
    if again is None:
        ready = prepare(tx.tenant_id, submission)
        again = revisions.known(earlier, submission, fingerprint=ready.fingerprint)
    if again is not None:
        return _repeat(tx, agent_id, key, asked, again)
    assert ready is not None
    old = revisions.predecessor(earlier, submission)
    return _create(tx, agent_id, key, asked, submission, ready, old)


def living(agent_id: UUID) -> Agent:
    """The agent, under the stop lock: nothing of a revoked one is written once revoking has answered."""
    agent = Agent.objects.filter(id=agent_id, revoked_at__isnull=True).first()
    if agent is None:
        raise IntakeError(code="unauthenticated", detail="The agent was revoked.")
    return agent


def _as_it_stands(tx: Tx, action: Action, status: int, how: Literal["replayed", "repeated"]) -> Standing:
    overdue = action.status == ActionStatus.PENDING and tx.now() >= action.expires_at
    return Standing(action_id=action.id, wire=None if overdue else represent(action), status=status, how=how)


def _repeat(tx: Tx, agent_id: UUID, key: str, asked: str, action: Action) -> Standing:
    """The same operation under another key: the action that stands, and the key is recorded too (R-A4)."""
    idempotency.claim(
        tx, agent_id=agent_id, key=key, fingerprint=asked, action_id=action.id, status=200, now=tx.now()
    )
    tx.journal(
        "action.repeated",
        actor=Actor(type="agent", id=str(agent_id)),
        action_id=action.id,
        run_id=action.run_id,
        step_id=action.step_id,
        key=key,
        attempt=idempotency.count(action.id),
    )
    return _as_it_stands(tx, action, 200, "repeated")


def _create(
    tx: Tx, agent_id: UUID, key: str, asked: str, submission: Submission, ready: Ready, old: Action | None
) -> Standing:
    """Key first (R-A2), then everything that hangs on it. Locks: key, stop, the old revision and its operations."""
    action_id = new_id()
    idempotency.claim(
        tx, agent_id=agent_id, key=key, fingerprint=asked, action_id=action_id, status=201, now=tx.now()
    )
    agent = living(agent_id)
    if old is not None:
        old = revisions.make_way(tx, old, action_id, agent)
    weighed = weigh(tx.tenant_id, submission, ready)
    now = tx.now()
    action = Action.objects.create(
        id=action_id,
        tenant_id=tx.tenant_id,
        agent=agent,
        kind=submission.kind,
        schema_version=ready.schema_version,
        run_id=submission.run_id,
        step_id=submission.step_id,
        revision=old.revision + 1 if old else 1,
        supersedes=old,
        submitted=submission.submitted,
        parameters=ready.parameters_text,
        request_fingerprint=asked,
        fingerprint=ready.fingerprint,
        reasoning=submission.reasoning,
        versions=dict(submission.versions),
        model_result=submission.model_result,
        account=ready.account,
        resource_key=ready.resource_key,
        amount=ready.amount,
        currency=ready.currency,
        policy_version=weighed.policy_version,
        policy_outcome=weighed.stored,
        expires_at=now + timedelta(seconds=weighed.expires_in),
        created_at=now,
        updated_at=now,
    )
    _write_down(tx, action, agent, key, ready)
    _next(tx, action, weighed)
    return Standing(action_id=action.id, wire=represent(action), status=201, how="created")


def _write_down(tx: Tx, action: Action, agent: Agent, key: str, ready: Ready) -> None:
    """What was asked, by which run, under which policy (R-A5, R-B7)."""
    tx.journal(
        "action.submitted",
        actor=Actor(type="agent", id=str(agent.id)),
        action_id=action.id,
        agent=agent.name,
        run_id=action.run_id,
        step_id=action.step_id,
        key=key,
        attempt=1,
        kind=action.kind,
        schema_version=action.schema_version,
        revision=action.revision,
        supersedes=action.supersedes_id,
        submitted=action.submitted,
        parameters=ready.parameters,
        fingerprint=action.fingerprint,
        request_fingerprint=action.request_fingerprint,
        reasoning=action.reasoning,
        versions=action.versions,
        model_result=action.model_result,
        policy_version=action.policy_version,
        policy=action.policy_outcome,
        expires_at=action.expires_at,
    )


def _next(tx: Tx, action: Action, weighed: Weighed) -> None:
    """What the policy says happens now: decided at once, or put before people with its two next steps."""
    if weighed.outcome == Outcome.REVIEW:
        tx.schedule("observe", action.id, due_at=action.created_at)
        tx.schedule("expire", action.id, due_at=action.expires_at, hint=False)
        return
    settle_action(
        tx,
        action,
        ActionStatus.APPROVED if weighed.outcome == Outcome.ALLOW else ActionStatus.REJECTED,
        by_type="policy",
        by_names=[weighed.rule] if weighed.rule else [],
        reason=weighed.reason,
        actor=Actor(type="policy", id=f"{action.kind} v{action.policy_version}"),
        at=action.created_at,
    )
