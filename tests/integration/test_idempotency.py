"""The second identical call changes nothing: same key, other key, late, at once, from another tenant (R-A1 to R-A6)."""

import json
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import connection

from approvals import agents, idempotency, tasks
from approvals.models import Action, Agent, IdempotencyRecord
from ledger.journal import SYSTEM
from ledger.locks import lock_number
from ledger.models import JournalEntry
from ledger.operations import cancel_undispatched, lock_for_action
from ledger.transactions import tenant_reads, tenant_transaction
from tests.agent_calls import AgentClient, at_once, changed, code, counts, new_key, submission
from tests.conftest import Clock
from tests.factories import World, world

pytestmark = pytest.mark.usefixtures("db")
ALLOW = {
    "rules": [{"name": "tiny", "when": {}, "outcome": "allow", "needs_observation": False}],
    "expires_in": 3600,
    "execute_within": 600,
}


@pytest.fixture
def made() -> World:
    return world()


@pytest.fixture
def agent(made: World) -> AgentClient:
    return AgentClient(made)


def test_the_second_identical_call_changes_nothing() -> None:
    # R-G4, R-A3, K22: saved for ever
    made = world(policy=ALLOW)
    agent, key, body = AgentClient(made), new_key(), submission()
    first = agent.submit(body, key)
    before = counts(made)
    second = agent.submit(body, key)
    assert (first.status_code, second.status_code) == (201, 201)
    assert second.content == first.content
    assert second["Location"] == first["Location"]
    assert second["ETag"] == first["ETag"]
    assert ("Idempotent-Replayed" in first, second["Idempotent-Replayed"]) == (False, "true")
    assert counts(made) == before
    assert before[:3] == (1, 1, 1)  # one record in the collection, one movement to come
    assert [one["id"] for one in agent.get("/actions").json()["items"]] == [first.json()["id"]]


def test_what_identifies_a_request(agent: AgentClient) -> None:
    """Its meaning, not its bytes, its reasoning or its versions: a restarted model words things anew."""
    key = new_key()
    body = submission(reasoning="first words", versions={"prompt": "refunds@4"})
    first = agent.submit(body, key)
    spaced = json.dumps(dict(reversed(body.items())), indent=3)
    reworded = body | {
        "reasoning": "other words",
        "versions": {"prompt": "refunds@5"},
        "model_result": "s3://x",
    }
    for again in (spaced, reworded):
        answer = agent.submit(again, key)
        assert (answer.status_code, answer.content) == (201, first.content)
    for other in (
        changed(body, amount=4_901),
        body | {"expires_in": 60},
        body | {"step_id": "another"},
        body | {"schema_version": None},
    ):
        answer = agent.submit(other, key)
        assert (answer.status_code, code(answer)) == (422, "idempotency_key_reused")


def test_the_same_key_with_another_request_is_422_and_nothing_changes(
    agent: AgentClient, made: World
) -> None:
    # R-A3
    key, body = new_key(), submission()
    first = agent.submit(body, key)
    before = counts(made)
    answer = agent.submit(changed(body, amount=99_999), key)
    assert (answer.status_code, code(answer)) == (422, "idempotency_key_reused")
    assert answer.json()["action"] == first.json()["id"]
    assert counts(made) == before
    assert agent.submit(body, key).content == first.content


def test_a_key_is_read_bare_or_quoted_as_the_same(agent: AgentClient) -> None:
    key, body = new_key(), submission()
    first = agent.submit(body, key)
    assert agent.submit(body, f'"{key}"').content == first.content


def test_the_same_operation_under_another_key_is_the_same_action(agent: AgentClient, made: World) -> None:
    # R-A4, R-A6: 200, and the new key answers from then on
    body = submission()
    first = agent.submit(body)
    other = new_key()
    again = agent.submit(changed(body, currency="USD"), other)
    assert (again.status_code, again["Idempotent-Replayed"]) == (200, "true")
    assert again.content == first.content
    assert again["Location"] == first["Location"]
    with tenant_reads(made.tenant_id):
        assert Action.objects.count() == 1
        assert IdempotencyRecord.objects.count() == 2
        assert JournalEntry.objects.filter(event="action.repeated").count() == 1
    third = agent.submit(changed(body, currency="USD"), other)
    assert (third.status_code, third.content) == (200, first.content)
    assert code(agent.submit(changed(body, amount=1), other)) == "idempotency_key_reused"


def test_the_same_operation_with_other_parameters_is_409_and_names_the_action(
    agent: AgentClient, made: World
) -> None:
    # R-A6
    body = submission()
    first = agent.submit(body).json()
    before = counts(made)
    answer = agent.submit(changed(body, amount=5_000))
    assert (answer.status_code, code(answer)) == (409, "operation_conflict")
    assert answer.json()["action"] == first["id"]
    assert counts(made) == before


def test_a_genuine_second_request_that_looks_alike_is_let_through(agent: AgentClient) -> None:
    # R-A6
    one = submission()
    two = one | {"step_id": "another-step"}
    first, second = agent.submit(one), agent.submit(two)
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json()["id"] != second.json()["id"]


def test_a_failed_validation_leaves_the_key_free(agent: AgentClient, made: World) -> None:
    # K8
    key, body = new_key(), submission()
    assert agent.submit(changed(body, amount="4900"), key).status_code == 422
    assert agent.submit(body | {"kind": "nothing"}, key).status_code == 422
    assert counts(made)[:2] == (0, 0)
    assert agent.submit(body, key).status_code == 201


def test_a_key_of_a_terminal_action_gives_that_action(agent: AgentClient, clock: Clock) -> None:
    # K9: expired and cancelled, marked replayed, neither created nor pending
    expiring, cancelled = (new_key(), submission(expires_in=60)), (new_key(), submission())
    for key, body in (expiring, cancelled):
        assert agent.submit(body, key).status_code == 201
    cancelled_id = agent.submit(cancelled[1], cancelled[0]).json()["id"]
    assert agent.cancel(cancelled_id).status_code == 200
    clock.ahead(61)
    for (key, body), status in ((expiring, "expired"), (cancelled, "cancelled")):
        for answer, code_ in ((agent.submit(body, key), 201), (agent.submit(body), 200)):
            assert (answer.status_code, answer["Idempotent-Replayed"]) == (code_, "true")
            assert (answer.json()["status"], answer.json()["final"]) == (status, True)


def test_keys_belong_to_one_agent_of_one_tenant(made: World) -> None:
    # K6
    key, body = new_key(), submission()
    first = AgentClient(made).submit(body, key)
    colleague = AgentClient(token=agents.create_agent(made.tenant_id, name="another-bot"))
    stranger = AgentClient(world())
    ids = {first.json()["id"]}
    for other in (colleague, stranger):
        answer = other.submit(body, key)
        assert answer.status_code == 201
        assert "Idempotent-Replayed" not in answer
        assert first.json()["id"] not in answer.content.decode()
        ids.add(answer.json()["id"])
        assert code(other.submit(changed(body, amount=1), key)) == "idempotency_key_reused"
    assert len(ids) == 3
    assert AgentClient(made).submit(body, key).content == first.content


def key_lock(made: World, agent_id: Any, key: str) -> int:
    """The number of the advisory lock that a running request holds."""
    return lock_number("key:" + "|".join(map(str, (made.tenant_id, agent_id, idempotency.ENDPOINT, key))))


def test_a_key_that_is_held_open_is_409_and_holds_up_nobody_else(agent: AgentClient, made: World) -> None:
    # K2, R-A3; a key whose owner crashed becomes claimable again
    key, body = new_key(), submission()
    other = AgentClient(world())
    with psycopg.connect(address()) as holder:
        holder.execute("SELECT pg_advisory_xact_lock(%s)", [key_lock(made, made.agent.id, key)])
        answer = agent.submit(body, key)
        assert (answer.status_code, code(answer)) == (409, "in_progress")
        assert answer["Retry-After"] == "1"
        began = time.monotonic()
        assert other.submit(submission(), key).status_code == 201
        assert agent.submit(submission()).status_code == 201
        assert time.monotonic() - began < 1
        terminate(holder)  # the owner crashes
    wait_for(lambda: agent.submit(body, key).status_code == 201)


def address() -> str:
    """The tests' database as the application's role."""
    found = connection.settings_dict
    return psycopg.conninfo.make_conninfo(
        host=found["HOST"],
        port=found["PORT"],
        user=found["USER"],
        password=found["PASSWORD"],
        dbname=found["NAME"],
    )


def terminate(holder: psycopg.Connection) -> None:
    """End a connection as a crash does: without a word."""
    holder.pgconn.finish()


def wait_for(ask: Callable[[], bool], seconds: float = 5) -> None:
    """Until it is true."""
    until = time.monotonic() + seconds
    while not ask():
        assert time.monotonic() < until


def test_a_key_that_is_purged_between_conflict_and_look_gives_a_true_answer(
    agent: AgentClient, made: World, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    # K5
    key, body = new_key(), submission(expires_in=60)
    agent.submit(body, key)
    agent.cancel(agent.submit(body, key).json()["id"])
    clock.ahead(25 * 3600)
    find = idempotency.find

    def with_a_sweep(*arguments: Any, **named: Any) -> Any:
        found = find(*arguments, **named)
        at_once(1, tasks.purge_keys)
        return found

    monkeypatch.setattr(idempotency, "find", with_a_sweep)
    answer = agent.submit(body, key)
    assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
    assert agent.submit(changed(body, amount=1), key).status_code == 422


def test_keys_lapse_by_the_databases_clock_and_only_when_the_action_is_final(
    agent: AgentClient, made: World, clock: Clock
) -> None:
    # R-A4, K5: purge refuses keys whose action is not terminal
    open_key, open_body = new_key(), submission(expires_in=3600)
    done_key, done_body = new_key(), submission()
    agent.submit(open_body, open_key)
    done = agent.submit(done_body, done_key).json()
    agent.cancel(done["id"])
    assert tasks.purge_keys() == 0
    clock.ahead(settings.IDEMPOTENCY_RETENTION.total_seconds() + 1)
    assert idempotency.purge(made.tenant_id) == 1
    assert idempotency.purge(made.tenant_id) == 0
    with tenant_reads(made.tenant_id):
        assert IdempotencyRecord.objects.get().key == open_key
    answer = agent.submit(done_body, done_key)  # late: the operation is known for ever
    assert (answer.status_code, answer["Idempotent-Replayed"]) == (200, "true")
    assert answer.json()["id"] == done["id"]
    assert counts(made)[0] == 2


def test_a_lapsed_key_is_free_for_another_operation(agent: AgentClient, made: World, clock: Clock) -> None:
    # R-A4: without waiting for the sweep
    key, body = new_key(), submission()
    first = agent.submit(body, key).json()
    agent.cancel(first["id"])
    clock.ahead(settings.IDEMPOTENCY_RETENTION.total_seconds() - 1)
    assert code(agent.submit(submission(), key)) == "idempotency_key_reused"
    clock.ahead(settings.IDEMPOTENCY_RETENTION.total_seconds() + 1)
    answer = agent.submit(submission(), key)
    assert answer.status_code == 201
    assert answer.json()["id"] != first["id"]


def test_the_key_of_an_approved_action_lapses_only_when_every_effect_is_settled(clock: Clock) -> None:
    made = world(policy=ALLOW)
    agent = AgentClient(made)
    obj = agent.submit(submission()).json()
    clock.ahead(settings.IDEMPOTENCY_RETENTION.total_seconds() + 1)
    assert idempotency.purge(made.tenant_id) == 0
    with tenant_transaction(made.tenant_id) as tx:
        (operation,) = lock_for_action(obj["id"])
        assert cancel_undispatched(tx, operation, reason="test", actor=SYSTEM)
    assert idempotency.purge(made.tenant_id) == 1


def test_two_sweeps_at_once_remove_each_key_once(agent: AgentClient, made: World, clock: Clock) -> None:
    # K18
    for _ in range(10):
        agent.cancel(agent.submit(submission()).json()["id"])
    clock.ahead(settings.IDEMPOTENCY_RETENTION.total_seconds() + 1)
    gone = at_once(3, lambda: idempotency.purge(made.tenant_id))
    assert sum(gone) == 10


def test_an_overdue_action_that_is_found_by_its_key_is_closed_first(
    agent: AgentClient, made: World, clock: Clock
) -> None:
    # K28, on the way of submitting; and the journal tells it once
    key, body = new_key(), submission(expires_in=60)
    obj = agent.submit(body, key).json()
    clock.at(expiry_of(made, obj["id"]) - timedelta(microseconds=1))
    assert agent.submit(body, key).json()["status"] == "pending"
    clock.at(expiry_of(made, obj["id"]))
    assert agent.submit(body, key).json()["status"] == "expired"
    assert agent.submit(body).json()["status"] == "expired"
    with tenant_reads(made.tenant_id):
        assert JournalEntry.objects.filter(event="action.expired").count() == 1


def expiry_of(made: World, action_id: str) -> Any:
    """When the time for deciding ends."""
    with tenant_reads(made.tenant_id):
        return Action.objects.get(id=action_id).expires_at


def test_the_agent_is_looked_up_inside_the_fence(made: World) -> None:
    """A token names ids only; names and scopes are read as the tenant."""
    assert not Agent.objects.exists()
    assert AgentClient(made).get("/me").json()["name"] == "support-bot"
