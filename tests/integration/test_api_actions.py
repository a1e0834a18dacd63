"""Asking what became of an action: the poll, its validators, the list, taking back, and what foreign ids look like."""

import json
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from approvals import agents
from approvals.models import Action, ActionStatus
from approvals.representation import etag, phase, render, represent
from approvals.settlement import lock_action, settle_action
from ledger.ids import new_id
from ledger.journal import Actor
from ledger.models import JournalEntry, Operation
from ledger.transactions import tenant_reads, tenant_transaction
from tests.agent_calls import AgentClient, code, submission
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
    """As if a reviewer had decided."""
    with tenant_transaction(made.tenant_id) as tx:
        settle_action(
            tx,
            lock_action(UUID(action_id)),
            status,
            by_type="reviewer",
            by_names=["rana"],
            reason="looked fine",
            actor=Actor(type="reviewer", id="1"),
        )


def request_changes(made: World, action_id: str) -> None:
    """As if a reviewer had asked for changes."""
    with tenant_transaction(made.tenant_id):
        Action.objects.filter(id=action_id).update(
            changes_requested={"by": "rana", "note": "Which order?"}, state_version=2
        )


def test_a_poll_answers_the_same_bytes_while_nothing_changed(agent: AgentClient) -> None:
    created = agent.submit(submission())
    answer = agent.get(f"/actions/{created.json()['id']}")
    assert (answer.status_code, answer.content) == (200, created.content)
    assert answer["ETag"] == created["ETag"]
    assert answer["Cache-Control"] == "no-store"
    assert answer["Content-Type"] == "application/json"
    assert "Retry-After" not in answer


def test_304_only_where_the_caller_named_this_version(agent: AgentClient, made: World) -> None:
    obj = agent.submit(submission()).json()
    path = f"/actions/{obj['id']}"
    tag = agent.get(path)["ETag"]
    assert tag.startswith('"')
    for named in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        answer = agent.get(path, **{"If-None-Match": named})
        assert (answer.status_code, answer.content, answer["ETag"]) == (304, b"", tag)
        assert answer["Cache-Control"] == "no-store"
    assert agent.get(path, **{"If-None-Match": '"other"'}).status_code == 200
    settle(made, obj["id"], ActionStatus.REJECTED)
    answer = agent.get(path, **{"If-None-Match": tag})
    assert (answer.status_code, answer.json()["status"]) == (200, "rejected")
    assert answer["ETag"] != tag


def test_the_etag_covers_the_operations(agent: AgentClient, made: World) -> None:
    obj = agent.submit(submission()).json()
    settle(made, obj["id"], ActionStatus.APPROVED)
    approved = agent.get(f"/actions/{obj['id']}")
    body = approved.json()
    assert (body["status"], body["final"], body["hint"]) == ("approved", False, {"wait": True})
    assert body["decision"]["by"] == {"type": "reviewer", "names": ["rana"]}
    assert body["execution"]["status"] == "prepared"
    with tenant_transaction(made.tenant_id):
        Operation.objects.filter(action_id=obj["id"]).update(attempt_count=1)
    assert agent.get(f"/actions/{obj['id']}")["ETag"] != approved["ETag"]


def test_after_its_time_an_action_is_expired_and_says_what_to_do(
    agent: AgentClient, made: World, clock: Clock
) -> None:
    # K28, though no worker is running
    obj = agent.submit(submission(expires_in=60)).json()
    clock.ahead(61)
    answer = agent.get(f"/actions/{obj['id']}")
    body = answer.json()
    assert (body["status"], body["final"], body["hint"]) == ("expired", True, {"supersedes": obj["id"]})
    assert body["decision"]["by"]["type"] == "system"
    assert "Retry-After" not in answer
    agent.get(f"/actions/{obj['id']}")
    with tenant_reads(made.tenant_id):
        assert JournalEntry.objects.filter(event="action.expired").count() == 1


def test_the_list_closes_what_is_overdue_too(agent: AgentClient, clock: Clock) -> None:
    ids = [agent.submit(submission(expires_in=60)).json()["id"] for _ in range(2)]
    clock.ahead(61)
    items = agent.get("/actions").json()["items"]
    assert {(one["id"], one["status"]) for one in items} == {(one, "expired") for one in ids}
    assert agent.get("/actions?status=pending").json()["items"] == []


def test_requested_changes_are_told_with_the_second_hint(agent: AgentClient, made: World) -> None:
    obj = agent.submit(submission()).json()
    assert "changes_requested" not in obj
    request_changes(made, obj["id"])
    body = agent.get(f"/actions/{obj['id']}").json()
    assert (body["status"], body["hint"]) == ("pending", {"supersedes": obj["id"]})
    assert body["changes_requested"] == {"by": "rana", "note": "Which order?"}


def test_what_is_foreign_unknown_or_no_id_is_the_same_404(agent: AgentClient, made: World) -> None:
    # K43
    own = agent.submit(submission()).json()["id"]
    stranger = AgentClient(world())
    colleague = AgentClient(token=agents.create_agent(made.tenant_id, name="another-bot"))
    for other in (stranger, colleague):
        ids = (own, str(new_id()), "nonsense", own.upper().replace("-", ""), "%00", "0190")
        answers = [other.get(f"/actions/{one}") for one in ids] + [other.cancel(one) for one in ids]
        assert {one.status_code for one in answers} == {404}
        assert len({one.content for one in answers}) == 1
        assert {code(one) for one in answers} == {"not_found"}
        assert other.get("/actions").json()["items"] == []
    assert agent.get(f"/actions/{own}").json()["status"] == "pending"


@pytest.mark.parametrize("wait", ["x", "-1", "1.5", "", "1e2"])
def test_a_malformed_wait_is_422(agent: AgentClient, wait: str) -> None:
    obj = agent.submit(submission()).json()
    answer = agent.get(f"/actions/{obj['id']}?wait={wait}")
    assert (answer.status_code, code(answer)) == (422, "invalid_parameters")
    assert answer.json()["errors"][0]["pointer"] == "/wait"


def test_without_the_wrapper_wait_answers_at_once(agent: AgentClient) -> None:
    obj = agent.submit(submission()).json()
    for answer in (
        agent.get(f"/actions/{obj['id']}?wait=30"),
        agent.get(f"/actions/{obj['id']}", Prefer="wait=30"),
        agent.get(f"/actions/{obj['id']}", Prefer="wait=soon"),
    ):
        assert answer.status_code == 200
        assert "Preference-Applied" not in answer


def test_cancelling_is_final_and_again_is_the_same(agent: AgentClient, made: World) -> None:
    obj = agent.submit(submission()).json()
    first = agent.cancel(obj["id"])
    assert first.status_code == 200
    body = first.json()
    assert (body["status"], body["final"]) == ("cancelled", True)
    assert body["decision"]["by"] == {"type": "agent", "names": ["support-bot"]}
    again = agent.cancel(obj["id"])
    assert (again.status_code, again.content) == (200, first.content)
    with tenant_reads(made.tenant_id):
        assert JournalEntry.objects.filter(event="action.cancelled").count() == 1


@pytest.mark.parametrize("status", [ActionStatus.APPROVED, ActionStatus.REJECTED])
def test_what_is_decided_cannot_be_cancelled(agent: AgentClient, made: World, status: ActionStatus) -> None:
    # K32
    obj = agent.submit(submission()).json()
    settle(made, obj["id"], status)
    before = agent.get(f"/actions/{obj['id']}").content
    answer = agent.cancel(obj["id"])
    assert (answer.status_code, code(answer)) == (409, "already_decided")
    assert answer.json()["action"] == obj["id"]
    assert agent.get(f"/actions/{obj['id']}").content == before


def test_an_overdue_action_cannot_be_cancelled(agent: AgentClient, clock: Clock) -> None:
    obj = agent.submit(submission(expires_in=60)).json()
    clock.ahead(60)
    answer = agent.cancel(obj["id"])
    assert (answer.status_code, code(answer)) == (409, "already_decided")
    assert agent.get(f"/actions/{obj['id']}").json()["status"] == "expired"


def test_the_list_goes_through_all_pages_once(agent: AgentClient) -> None:
    ids = [agent.submit(submission(run_id="run_a" if n % 2 else "run_b")).json()["id"] for n in range(7)]
    seen: list[str] = []
    cursor = ""
    while True:
        page = agent.get(f"/actions?limit=3{cursor}").json()
        assert len(page["items"]) <= 3
        seen += [one["id"] for one in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert seen == sorted(ids, reverse=True)
    found = agent.get("/actions?run_id=run_a").json()
    assert {one["run_id"] for one in found["items"]} == {"run_a"}
    assert len(found["items"]) == 3
    assert len(agent.get("/actions?status=approved").json()["items"]) == 0


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "cursor=x", "status=done"])
def test_a_wrong_query_is_422(agent: AgentClient, query: str) -> None:
    answer = agent.get(f"/actions?{query}")
    assert (answer.status_code, code(answer)) == (422, "invalid_parameters")
    assert answer.json()["errors"][0]["pointer"] == "/" + query.partition("=")[0]


def test_the_list_costs_as_many_queries_for_fifty_as_for_two(agent: AgentClient, made: World) -> None:
    def queries(limit: int) -> int:
        with CaptureQueriesContext(connection) as captured:
            answer = agent.get(f"/actions?limit={limit}")
        assert len(answer.json()["items"]) == limit
        return len(captured)

    for _ in range(50):
        obj = agent.submit(submission()).json()
        settle(made, obj["id"], ActionStatus.APPROVED)
    assert queries(2) == queries(50)
    assert queries(50) <= 14


def test_a_poll_costs_few_queries(agent: AgentClient) -> None:
    obj = agent.submit(submission()).json()
    with CaptureQueriesContext(connection) as captured:
        agent.get(f"/actions/{obj['id']}")
    assert len(captured) <= 10, "\n".join(one["sql"] for one in captured.captured_queries)


def test_the_representation_is_byte_stable_and_valid_json(agent: AgentClient, made: World) -> None:
    obj = agent.submit(submission(parameters=submission()["parameters"] | {"note": "café \u202e ⟦"})).json()
    with tenant_reads(made.tenant_id):
        action = Action.objects.get(id=obj["id"])
        one, two = represent(action), represent(Action.objects.get(id=obj["id"]))
    assert render(one) == render(two)
    assert json.loads(render(one)) == obj
    assert "café \u202e ⟦".encode() in render(one)
    assert etag(one) == etag(two)
    assert phase(one) == "pending"


def test_phases() -> None:
    def of(status: str, final: bool) -> Any:
        return phase({"status": status, "final": final})

    assert of("pending", False) == "pending"
    assert of("approved", False) == "decided"
    assert of("approved", True) == "final"
    assert of("expired", True) == "final"
