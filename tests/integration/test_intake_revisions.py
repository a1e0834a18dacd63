"""`supersedes`: which actions a new revision may follow, what becomes of the old one, and what repeats it."""

from typing import Any
from uuid import UUID

import pytest

from approvals import agents
from approvals.models import Action, ActionStatus, Vote
from approvals.settlement import lock_action, settle_action
from ledger.ids import new_id
from ledger.journal import SYSTEM, Actor
from ledger.models import Operation, Outbox
from ledger.transactions import tenant_reads, tenant_transaction
from tests.agent_calls import AgentClient, code, new_key, submission
from tests.conftest import Clock
from tests.factories import World, world

pytestmark = pytest.mark.usefixtures("db")


@pytest.fixture
def made() -> World:
    return world()


@pytest.fixture
def agent(made: World) -> AgentClient:
    return AgentClient(made)


def settle(made: World, action_id: str, status: ActionStatus) -> None:
    """As if it had been decided."""
    with tenant_transaction(made.tenant_id) as tx:
        settle_action(
            tx,
            lock_action(UUID(action_id)),
            status,
            by_type="reviewer" if status in {"approved", "rejected"} else "system",
            by_names=["rana"],
            reason="as it is",
            actor=Actor(type="reviewer", id="1"),
        )


def revised(body: dict[str, Any], old: str, **parameters: Any) -> dict[str, Any]:
    """The same step again with changes, naming what it follows."""
    return body | {"supersedes": old, "parameters": body["parameters"] | parameters}


def operation_in(made: World, action_id: str, state: str, *, unresolved: bool = False) -> None:
    """Put the operation of an approved action into a state, by the moves that the table allows."""
    moves = {
        "prepared": [],
        "dispatched": ["dispatched"],
        "blocked": ["blocked"],
        "cancelled": ["cancelled"],
        "succeeded": ["dispatched", "succeeded"],
        "failed": ["dispatched", "failed"],
        "outcome_unknown": ["dispatched", "outcome_unknown"],
        "reconciled_succeeded": ["dispatched", "outcome_unknown", "reconciled_succeeded"],
        "reconciled_not_executed": ["dispatched", "outcome_unknown", "reconciled_not_executed"],
    }
    with tenant_transaction(made.tenant_id) as tx:
        rows = Operation.objects.filter(action_id=action_id)
        for step in moves[state]:
            rows.update(state=step, lease_owner=new_id(), lease_until=tx.now())
        rows.update(unresolved=unresolved)


def test_a_pending_action_is_superseded_and_its_votes_do_not_follow(agent: AgentClient, made: World) -> None:
    # K36: a new revision, no votes; editing in place does not exist
    body = submission()
    old_key = new_key()
    old = agent.submit(body, old_key).json()
    with tenant_transaction(made.tenant_id) as tx:
        Vote.objects.create(
            tenant_id=made.tenant_id,
            action_id=old["id"],
            reviewer=made.reviewers[0],
            seq=1,
            event="approve",
            state_version=1,
            fingerprint=old["fingerprint"],
            policy_version=1,
            view_digest="sha256:" + "0" * 64,
            shown={},
            at=tx.now(),
        )
    answer = agent.submit(revised(body, old["id"], amount=5_000))
    assert answer.status_code == 201
    new = answer.json()
    assert (new["revision"], new["supersedes"], new["status"]) == (2, old["id"], "pending")
    assert new["id"] != old["id"]
    assert new["fingerprint"] != old["fingerprint"]
    was = agent.get(f"/actions/{old['id']}").json()
    assert (was["status"], was["final"], was["superseded_by"]) == ("superseded", True, new["id"])
    assert was["hint"] == {"follow": new["id"]}
    assert was["decision"]["by"] == {"type": "agent", "names": ["support-bot"]}
    with tenant_reads(made.tenant_id):
        assert not Vote.objects.filter(action_id=new["id"]).exists()
    assert not Outbox.objects.filter(subject_id=old["id"]).exists()
    replay = agent.submit(body, old_key)  # old keys keep replaying their own revision
    assert (replay.status_code, replay.json()["id"], replay.json()["status"]) == (
        201,
        old["id"],
        "superseded",
    )


def test_a_repeated_revision_is_the_same_revision(agent: AgentClient, made: World) -> None:
    body = submission()
    old = agent.submit(body).json()
    key, again = new_key(), revised(body, old["id"], amount=5_000)
    first = agent.submit(again, key)
    for answer, status in ((agent.submit(again, key), 201), (agent.submit(again), 200)):
        assert (answer.status_code, answer.content) == (status, first.content)
        assert answer["Idempotent-Replayed"] == "true"
    other = agent.submit(revised(body, old["id"], amount=6_000))
    assert (other.status_code, code(other)) == (409, "operation_conflict")
    assert other.json()["action"] == first.json()["id"]
    with tenant_reads(made.tenant_id):
        assert Action.objects.count() == 2


def test_a_late_retry_of_the_first_revision_gets_the_first_revision(agent: AgentClient) -> None:
    body = submission()
    old = agent.submit(body).json()
    agent.submit(revised(body, old["id"], amount=5_000))
    answer = agent.submit(body)
    assert (answer.status_code, answer.json()["id"], answer.json()["status"]) == (
        200,
        old["id"],
        "superseded",
    )


def test_the_same_parameters_again_after_the_expiry(agent: AgentClient, made: World, clock: Clock) -> None:
    # K28: what the hint says works
    body = submission(expires_in=60)
    old = agent.submit(body).json()
    clock.ahead(61)
    answer = agent.submit(body | {"supersedes": old["id"]})  # nobody has closed it yet
    assert answer.status_code == 201
    assert (answer.json()["revision"], answer.json()["fingerprint"]) == (2, old["fingerprint"])
    was = agent.get(f"/actions/{old['id']}").json()
    assert (was["status"], was["superseded_by"]) == ("expired", answer.json()["id"])


@pytest.mark.parametrize("status", [ActionStatus.EXPIRED, ActionStatus.REJECTED])
def test_what_was_not_approved_may_be_followed(agent: AgentClient, made: World, status: ActionStatus) -> None:
    body = submission()
    old = agent.submit(body).json()
    settle(made, old["id"], status)
    answer = agent.submit(revised(body, old["id"], amount=1_000))
    assert (answer.status_code, answer.json()["revision"]) == (201, 2)
    assert agent.get(f"/actions/{old['id']}").json()["status"] == status


def test_what_was_cancelled_may_be_followed_and_that_again(agent: AgentClient) -> None:
    body = submission()
    current = agent.submit(body).json()
    for revision in (2, 3, 4):
        agent.cancel(current["id"])
        answer = agent.submit(body | {"supersedes": current["id"]})
        assert answer.status_code == 201
        current = answer.json()
        assert current["revision"] == revision


@pytest.mark.parametrize(
    ("state", "allowed"),
    [
        ("prepared", False),
        ("dispatched", False),
        ("outcome_unknown", False),
        ("succeeded", False),
        ("reconciled_succeeded", False),
        ("blocked", True),
        ("failed", True),
        ("cancelled", True),
        ("reconciled_not_executed", True),
    ],
)
def test_an_approved_action_may_be_followed_only_where_nothing_happened_and_nothing_will(
    agent: AgentClient, made: World, state: str, allowed: bool
) -> None:
    # K36, design: Revisions
    body = submission()
    old = agent.submit(body).json()
    settle(made, old["id"], ActionStatus.APPROVED)
    operation_in(made, old["id"], state, unresolved=state in {"dispatched", "outcome_unknown"})
    before = agent.get(f"/actions/{old['id']}").json()
    assert before["final"] is (state not in {"prepared", "dispatched", "outcome_unknown"})
    answer = agent.submit(revised(body, old["id"], amount=1_000))
    after = agent.get(f"/actions/{old['id']}").json()
    if allowed:
        assert (answer.status_code, answer.json()["revision"]) == (201, 2)
        assert (after["status"], after["superseded_by"]) == ("approved", answer.json()["id"])
    else:
        assert (answer.status_code, code(answer)) == (409, "supersede_refused")
        assert answer.json()["action"] == old["id"]
        assert after == before


def test_an_unresolved_attempt_is_never_forgotten(agent: AgentClient, made: World) -> None:
    """Back in `prepared` with an attempt that may have landed: no successor."""
    body = submission()
    old = agent.submit(body).json()
    settle(made, old["id"], ActionStatus.APPROVED)
    operation_in(made, old["id"], "prepared", unresolved=True)
    answer = agent.submit(revised(body, old["id"], amount=1_000))
    assert (answer.status_code, code(answer)) == (409, "supersede_refused")


def test_only_an_own_action_of_the_same_operation_can_be_named(agent: AgentClient, made: World) -> None:
    body = submission()
    old = agent.submit(body).json()
    other_step = agent.submit(submission()).json()
    foreign = AgentClient(world()).submit(body).json()
    colleague = AgentClient(token=agents.create_agent(made.tenant_id, name="another-bot")).submit(body).json()
    details = set()
    for named in (other_step["id"], foreign["id"], colleague["id"], str(new_id())):
        answer = agent.submit(revised(body, named, amount=1_000))
        assert (answer.status_code, code(answer)) == (422, "invalid_parameters")
        assert answer.json()["errors"][0]["pointer"] == "/supersedes"
        details.add(answer.content)
    assert len(details) == 1
    answer = agent.submit(submission(supersedes=str(new_id())))  # nothing to follow at all
    assert (answer.status_code, code(answer)) == (422, "invalid_parameters")
    assert agent.get(f"/actions/{old['id']}").json()["status"] == "pending"


def test_a_successor_that_the_system_opened_is_followed(agent: AgentClient, made: World) -> None:
    """The hint of an action that has a successor names it, whoever opened it."""
    body = submission()
    old = agent.submit(body).json()
    settle(made, old["id"], ActionStatus.APPROVED)
    operation_in(made, old["id"], "cancelled")
    assert agent.get(f"/actions/{old['id']}").json()["hint"] == {"supersedes": old["id"]}
    new = agent.submit(body | {"supersedes": old["id"]}).json()
    assert agent.get(f"/actions/{old['id']}").json()["hint"] == {"follow": new["id"]}
    assert SYSTEM.type == "system"
