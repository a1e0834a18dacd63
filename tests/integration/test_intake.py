"""What an agent may send, what is kept of it, and what the policy makes of it at once."""

import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from approvals import agents, tenants
from approvals.models import Action, Decision, IdempotencyRecord
from ledger import accounts
from ledger.journal import verify
from ledger.models import JournalEntry, JournalPayload, Operation, Outbox
from ledger.transactions import tenant_reads, tenant_transaction
from tests.agent_calls import AgentClient, code, new_key, submission
from tests.factories import POLICY, World, world

pytestmark = pytest.mark.usefixtures("db")


@pytest.fixture
def made() -> World:
    return world()


@pytest.fixture
def agent(made: World) -> AgentClient:
    return AgentClient(made)


def stored(made: World) -> tuple[int, int]:
    """How many actions and keys there are."""
    with tenant_reads(made.tenant_id):
        return Action.objects.count(), IdempotencyRecord.objects.count()


def with_parameters(**parameters: Any) -> dict[str, Any]:
    """A submission with changed parameters; `...` leaves one out."""
    body = submission()
    merged = body["parameters"] | parameters
    body["parameters"] = {name: value for name, value in merged.items() if value is not ...}
    return body


def pointers(answer: Any) -> set[str]:
    """Where the refusal points to."""
    return {error["pointer"] for error in answer.json()["errors"]}


def test_a_new_action_is_exactly_the_object_of_the_wire(agent: AgentClient, made: World) -> None:
    body = submission(
        reasoning="charged twice for order 77",
        expires_in=600,
        versions={"workflow": "support@12", "prompt": "refunds@4", "tool_schema": "refund@1"},
        model_result="s3://bucket/key",
    )
    answer = agent.submit(body)
    assert answer.status_code == 201
    obj = answer.json()
    assert answer["Location"] == f"/v1/actions/{obj['id']}" == obj["links"]["self"]
    assert "Idempotent-Replayed" not in answer
    named = ("kind", "run_id", "step_id", "parameters")
    assert {name: obj[name] for name in named} == {name: body[name] for name in named}
    expected = {
        "revision": 1,
        "status": "pending",
        "final": False,
        "state_version": 1,
        "policy_version": 1,
        "decision": None,
        "execution": None,
        "effects": [],
        "supersedes": None,
        "superseded_by": None,
        "hint": {"wait": True},
    }
    assert {name: obj[name] for name in expected} == expected
    assert obj["id"][14] == "7"
    assert obj["fingerprint"].startswith("sha256:")
    for name in ("created_at", "expires_at"):
        assert datetime.strptime(obj[name], "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    assert (moment(obj["expires_at"]) - moment(obj["created_at"])).total_seconds() == 600


def moment(text: str) -> datetime:
    """A time of the wire."""
    return datetime.fromisoformat(text)


def test_what_was_sent_is_kept_exactly_and_the_journal_names_run_step_and_agent(
    agent: AgentClient, made: World
) -> None:
    # R-A5, R-A9, R-B7
    raw = '{"payment": "pi_1", "amount":4900,\t"currency":"USD", "note": "caf\\u00e9 \\u202e"}'
    body = submission(parameters={})
    text = json.dumps(body).replace('"parameters": {}', f'"parameters": {raw}')
    key = new_key()
    obj = agent.submit(text, key).json()
    assert obj["parameters"]["currency"] == "usd"
    with tenant_reads(made.tenant_id):
        action = Action.objects.get()
        assert action.submitted == raw
        assert action.parameters == '{"amount":4900,"currency":"usd","note":"café \u202e","payment":"pi_1"}'
        assert (action.amount, action.currency) == (4900, "usd")
        assert action.resource_key == f"stripe:{made.account.id}:pi_1"
        entry = JournalEntry.objects.get(event="action.submitted", action_id=action.id)
        payload = json.loads(JournalPayload.objects.get(entry=entry).text)
        assert (payload["run_id"], payload["step_id"]) == (body["run_id"], body["step_id"])
        assert (payload["agent"], payload["key"], payload["attempt"]) == ("support-bot", key, 1)
        assert payload["parameters"] == obj["parameters"]
        assert (entry.actor_type, entry.actor_id) == ("agent", str(made.agent.id))
        assert verify(made.tenant_id).fault == ""


def test_a_pending_action_has_its_two_next_steps_in_the_outbox(agent: AgentClient, made: World) -> None:
    # R-C6, design: invariant 6
    obj = agent.submit(submission(expires_in=90)).json()
    rows = {row.step: row for row in Outbox.objects.filter(tenant_id=made.tenant_id)}
    assert rows.keys() == {"observe", "expire"}
    assert {str(row.subject_id) for row in rows.values()} == {obj["id"]}
    assert rows["expire"].due_at == moment(obj["expires_at"])
    assert rows["observe"].due_at == moment(obj["created_at"])


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (submission(status="approved"), "/status"),
        (submission(approved_by="rana"), "/approved_by"),
        (submission(run_id=""), "/run_id"),
        (submission(run_id="a b"), "/run_id"),
        (submission(run_id="run\u200b1"), "/run_id"),
        (submission(run_id="run_1\n"), "/run_id"),
        (submission(step_id="x" * 129), "/step_id"),
        (submission(step_id=7), "/step_id"),
        (submission(parameters=[]), "/parameters"),
        (submission(expires_in=0), "/expires_in"),
        (submission(expires_in=True), "/expires_in"),
        (submission(expires_in="60"), "/expires_in"),
        (submission(expires_in=1.5), "/expires_in"),
        (submission(expires_in=31 * 86_400), "/expires_in"),
        (submission(expires_in="2026-01-01T00:00:00"), "/expires_in"),
        (submission(schema_version="1"), "/schema_version"),
        (submission(versions={"model": "x"}), "/versions/model"),
        (submission(supersedes="not-an-id"), "/supersedes"),
        (with_parameters(amount="9899.00"), "/parameters/amount"),
        (with_parameters(amount="4900"), "/parameters/amount"),
        (with_parameters(amount=49.5), "/parameters/amount"),
        (with_parameters(amount=4900.0), "/parameters/amount"),
        (with_parameters(amount=True), "/parameters/amount"),
        (with_parameters(amount=-1), "/parameters/amount"),
        (with_parameters(amount=0), "/parameters/amount"),
        (with_parameters(amount=...), "/parameters/amount"),
        (with_parameters(currency="zzz"), "/parameters/currency"),
        (with_parameters(status="approved"), "/parameters/status"),
        (with_parameters(note="x" * 5001), "/parameters/note"),
    ],
)
def test_what_does_not_fit_is_422_with_a_pointer_and_nothing_is_kept(
    agent: AgentClient, made: World, body: dict[str, Any], where: str
) -> None:
    # K39 (status, approved_by), K52 (longer than the cap), K58 ("9899.00"), K67 (a naive time where seconds belong)
    answer = agent.submit(body)
    assert (answer.status_code, code(answer)) == (422, "invalid_parameters")
    assert where in pointers(answer)
    assert stored(made) == (0, 0)


@pytest.mark.parametrize(
    "body",
    [
        submission(kind="transfer"),
        submission(schema_version=99),
    ],
)
def test_an_unknown_kind_or_version_is_422(agent: AgentClient, made: World, body: dict[str, Any]) -> None:
    answer = agent.submit(body)
    assert (answer.status_code, code(answer)) == (422, "unknown_kind")
    assert stored(made) == (0, 0)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('{"reason":"\\ud800"}', "/reason"),
        ('{"parameters":{"list":[["\\udc00"]]}}', "/parameters/list/0/0"),
        ('{"\\ud800":1}', None),
        ('{"parameters":{"a\\u0000b":1}}', None),
        ('{"amount":100,"amount":99999}', "/amount"),
        ('{"parameters":{"amount":100,"amount":99999}}', "/parameters/amount"),
        ('{"amount":NaN}', "/amount"),
        ('{"amount":1e400}', "/amount"),
        ('{"amount":' + "9" * 5000 + "}", "/amount"),
        ("[" * 100_000, None),
        ('{"a":' * 200 + "1" + "}" * 200, None),
        ("{", None),
        (" ", None),
        ("null x", None),
    ],
)
def test_json_that_parsers_disagree_about_is_400(
    agent: AgentClient, made: World, text: str, where: str | None
) -> None:
    # K55 (lone surrogates, also in keys and nested), K57 (duplicate names)
    if len(text) > 65_536:
        text = text[:60_000]
    answer = agent.submit(text)
    assert (answer.status_code, code(answer)) == (400, "malformed_json")
    if where is not None:
        assert where in pointers(answer)
    assert stored(made) == (0, 0)


def test_bytes_that_are_no_utf8_are_400(agent: AgentClient) -> None:
    answer: Any = agent.client.generic(
        "POST",
        "/v1/actions",
        b'{"kind":"\xff"}',
        content_type="application/json",
        headers=agent.headers(**{"Idempotency-Key": new_key()}),
    )
    assert (answer.status_code, code(answer)) == (400, "malformed_json")


@pytest.mark.parametrize("text", ["[]", '"refund"', "7", "null"])
def test_json_that_is_no_object_is_422(agent: AgentClient, text: str) -> None:
    answer = agent.submit(text)
    assert (answer.status_code, code(answer)) == (422, "invalid_parameters")


def test_a_header_that_is_no_ascii_is_400(agent: AgentClient) -> None:
    # K55, headers
    answer = agent.submit(submission(), "kéy-12345678")
    assert (answer.status_code, code(answer)) == (400, "idempotency_key_malformed")


@pytest.mark.parametrize(
    ("header", "key"),
    [
        ("12345678", "12345678"),
        ('"12345678"', "12345678"),
        ('"12\\"34\\\\5678"', '12"34\\5678'),
        ("x" * 255, "x" * 255),
        ('"' + "y" * 255 + '"', "y" * 255),
        ("  padded-key  ", "padded-key"),
    ],
)
def test_forms_of_the_key_that_are_read(agent: AgentClient, made: World, header: str, key: str) -> None:
    assert agent.submit(submission(), header).status_code == 201
    with tenant_reads(made.tenant_id):
        assert IdempotencyRecord.objects.get().key == key


@pytest.mark.parametrize(
    "header",
    [
        "1234567",
        "x" * 256,
        '"1234567"',
        '"12345678',
        'ab"cdefgh"',
        "with a space",
        '"with a space"',
        '"tail\\x12345"',
    ],
)
def test_forms_of_the_key_that_are_refused(agent: AgentClient, made: World, header: str) -> None:
    if header == 'ab"cdefgh"':  # bare: a quote is a visible character like any other
        assert agent.submit(submission(), header).status_code == 201
        return
    answer = agent.submit(submission(), header)
    assert (answer.status_code, code(answer)) == (400, "idempotency_key_malformed")
    assert answer["Link"].endswith('rel="describedby"')
    assert stored(made) == (0, 0)


def test_the_policy_bounds_the_expiry(agent: AgentClient) -> None:
    obj = agent.submit(submission(expires_in=7 * 86_400)).json()
    assert (moment(obj["expires_at"]) - moment(obj["created_at"])).total_seconds() == POLICY["expires_in"]


def policy(*rules: dict[str, Any]) -> dict[str, Any]:
    """A policy of these rules."""
    return {"rules": list(rules), "expires_in": 3600, "execute_within": 600}


def test_a_policy_that_allows_decides_at_once_and_opens_the_operation() -> None:
    rule = {"name": "tiny", "when": {"max_amount": 5_000}, "outcome": "allow", "needs_observation": False}
    made = world(policy=policy(rule))
    answer = AgentClient(made).submit(submission())
    assert answer.status_code == 201
    obj = answer.json()
    assert (obj["status"], obj["final"], obj["hint"]) == ("approved", False, {"wait": True})
    decision = obj["decision"]
    assert decision["verdict"] == "approved"
    assert decision["by"] == {"type": "policy", "names": ["tiny"]}
    assert decision["fingerprint"] == obj["fingerprint"]
    assert (moment(decision["execute_before"]) - moment(decision["decided_at"])).total_seconds() == 600
    assert obj["execution"] == obj["effects"][0]
    assert obj["execution"]["status"] == "prepared"
    assert obj["execution"]["attempts"] == 0
    with tenant_reads(made.tenant_id):
        operation = Operation.objects.get()
        assert operation.operation_key == obj["execution"]["operation_key"]
        assert operation.fingerprint == obj["fingerprint"]
    steps = set(Outbox.objects.filter(tenant_id=made.tenant_id).values_list("step", flat=True))
    assert steps == {"execute"}


def test_a_denial_is_recorded_and_replayed() -> None:
    # K8: a business refusal after acceptance is replayed
    rule = {
        "name": "no euros",
        "when": {"currency": "eur"},
        "outcome": "deny",
        "reason": "We bill in dollars.",
    }
    made = world(policy=policy(rule))
    agent, key = AgentClient(made), new_key()
    body = with_parameters(currency="eur")
    first = agent.submit(body, key)
    assert first.status_code == 201
    obj = first.json()
    assert (obj["status"], obj["final"]) == ("rejected", True)
    assert obj["decision"]["by"] == {"type": "policy", "names": ["no euros"]}
    assert obj["decision"]["reason"] == "We bill in dollars."
    again = agent.submit(body, key)
    assert (again.status_code, again.content) == (201, first.content)
    assert again["Idempotent-Replayed"] == "true"
    assert not Outbox.objects.filter(tenant_id=made.tenant_id).exists()


def test_no_rule_and_no_policy_deny(made: World) -> None:
    # R-B8: what nobody allowed is refused
    obj = AgentClient(made).submit(with_parameters(currency="inr")).json()
    assert (obj["status"], obj["decision"]["by"]["type"]) == ("rejected", "policy")
    bare = tenants.create_tenant(slug=f"bare-{new_key()}", name="No policy")
    with tenant_transaction(bare) as tx:
        accounts.create_account(
            tx, provider="stripe", name="main", base_url="http://127.0.0.1:9", secret="sk_test"
        )
    obj = AgentClient(token=agents.create_agent(bare, name="bot")).submit(submission()).json()
    assert (obj["status"], obj["policy_version"]) == ("rejected", 0)
    with tenant_reads(bare):
        assert Decision.objects.get().by_type == "policy"


def test_a_tenant_without_an_account_at_the_provider_is_told_so() -> None:
    bare = tenants.create_tenant(slug=f"bare-{new_key()}", name="No account")
    answer = AgentClient(token=agents.create_agent(bare, name="bot")).submit(submission())
    assert (answer.status_code, code(answer)) == (409, "provider_account_missing")


def test_yen_have_no_decimals(agent: AgentClient) -> None:
    # K58
    obj = agent.submit(with_parameters(amount=9_899, currency="jpy")).json()
    assert obj["parameters"]["amount"] == 9_899


def test_times_do_not_depend_on_the_zone_of_the_process(
    agent: AgentClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # K67
    for zone in ("Asia/Kolkata", "America/New_York"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        obj = agent.submit(submission(expires_in=60)).json()
        assert obj["expires_at"].endswith("Z")
        assert (moment(obj["expires_at"]) - moment(obj["created_at"])).total_seconds() == 60
        assert abs((moment(obj["created_at"]) - datetime.now(UTC)).total_seconds()) < 30
    monkeypatch.undo()
    time.tzset()
