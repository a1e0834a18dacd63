"""Many submissions at once: constraints judge, never timing, and never with a 5xx (R-A2, R-G4)."""

from collections import Counter
from typing import Any

import httpx
import pytest

from approvals.preparation import prepare
from tests.agent_calls import AgentClient, at_once, code, counts, new_key, submission, web_server
from tests.factories import World, world

pytestmark = pytest.mark.usefixtures("db")


@pytest.fixture
def made() -> World:
    return world()


@pytest.fixture
def agent(made: World) -> AgentClient:
    return AgentClient(made)


def test_twenty_submissions_at_once_with_one_key(agent: AgentClient, made: World) -> None:
    # R-A2, R-G4: exactly one 201 that is no replay; the others replay or are told to come again
    key, body = new_key(), submission()
    answers = at_once(20, lambda: AgentClient(made).submit(body, key))
    created = [one for one in answers if one.status_code == 201 and "Idempotent-Replayed" not in one]
    assert len(created) == 1
    for one in answers:
        assert one.status_code in {201, 409}
        if one.status_code == 409:
            assert code(one) == "in_progress"
            assert one["Retry-After"] == "1"
    again = [agent.submit(body, key) for _ in range(3)]
    assert {one.json()["id"] for one in again} == {created[0].json()["id"]}
    assert counts(made)[:2] == (1, 1)


def test_twenty_submissions_at_once_each_with_its_own_key(agent: AgentClient, made: World) -> None:
    # R-A2: the unique index on the operation judges; never 5xx
    body = submission()
    answers = at_once(20, lambda: AgentClient(made).submit(body))
    found = Counter(one.status_code for one in answers)
    assert found[201] == 1
    assert found.keys() <= {200, 201, 409}
    assert len({one.json()["id"] for one in answers if one.status_code != 409}) == 1
    assert counts(made)[0] == 1


def test_twenty_submissions_at_once_through_a_real_server(made: World) -> None:
    # R-G4
    key, body = new_key(), submission()
    with web_server() as server, httpx.Client(base_url=server.url, timeout=30) as client:

        def submit() -> httpx.Response:
            headers = {"Authorization": f"Bearer {made.token}", "Idempotency-Key": key}
            return client.post("/v1/actions", json=body, headers=headers)

        answers = at_once(20, submit)
        statuses = Counter(one.status_code for one in answers)
        assert statuses.keys() <= {201, 409}
        fresh = [
            one for one in answers if one.status_code == 201 and "Idempotent-Replayed" not in one.headers
        ]
        assert len(fresh) == 1
        assert all(one.headers["Retry-After"] == "1" for one in answers if one.status_code == 409)
        last = submit()
        assert (last.status_code, last.content) == (201, fresh[0].content)
    assert counts(made)[:2] == (1, 1)


def test_a_rival_that_commits_between_look_and_insert_is_found_and_not_a_5xx(
    agent: AgentClient, made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # R-A2: deterministic form of the race above
    body = submission()
    rivals: list[Any] = []

    def with_a_rival(*arguments: Any) -> Any:
        if not rivals:
            rivals.append(None)
            rivals[0] = at_once(1, lambda: AgentClient(made).submit(body))[0]
        return prepare(*arguments)

    monkeypatch.setattr("approvals.intake.prepare", with_a_rival)
    answer = agent.submit(body)
    assert (answer.status_code, answer["Idempotent-Replayed"]) == (200, "true")
    assert answer.json()["id"] == rivals[0].json()["id"]
    assert counts(made)[:2] == (1, 2)


def test_ten_revisions_at_once_are_one_revision(agent: AgentClient, made: World) -> None:
    """Each with its own key, all naming the same old action: one successor, and the others find it."""
    body = submission()
    old = agent.submit(body).json()
    again = body | {"supersedes": old["id"], "parameters": body["parameters"] | {"amount": 5_000}}
    answers = at_once(10, lambda: AgentClient(made).submit(again))
    found = Counter(one.status_code for one in answers)
    assert found[201] == 1
    assert found.keys() <= {200, 201, 409}
    assert all(code(one) == "in_progress" for one in answers if one.status_code == 409)
    assert len({one.json()["id"] for one in answers if one.status_code != 409}) == 1
    assert counts(made)[0] == 2


def test_a_cancel_and_a_revision_at_once_leave_one_outcome(agent: AgentClient, made: World) -> None:
    body = submission()
    old = agent.submit(body).json()
    again = body | {"supersedes": old["id"]}
    calls = [lambda: AgentClient(made).cancel(old["id"]), lambda: AgentClient(made).submit(again)]

    def one_of_them() -> Any:
        return calls.pop()()

    answers = at_once(2, one_of_them)
    assert {one.status_code for one in answers} <= {200, 201, 409}
    was = agent.get(f"/actions/{old['id']}").json()
    assert was["status"] in {"cancelled", "superseded"}
    assert was["superseded_by"] is not None
