"""The door of the agent API: who may enter, in which order requests are refused, and in which form."""

import json
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError
from django.test import Client
from pytest_django.fixtures import Settings

from approvals import agents, intake
from approvals.api import errors, requests
from approvals.api.limits import limiter
from approvals.models import Action, Agent, IdempotencyRecord
from ledger import journal
from ledger.locks import stop_lock_shared
from ledger.transactions import tenant_reads
from tests.agent_calls import AgentClient, code, new_key, submission
from tests.factories import PASSWORD, World, world

pytestmark = pytest.mark.usefixtures("db")


@pytest.fixture
def made() -> World:
    return world()


@pytest.fixture
def agent(made: World) -> AgentClient:
    return AgentClient(made)


def nothing_stored(made: World) -> bool:
    """Neither an action nor a key was kept."""
    with tenant_reads(made.tenant_id):
        return not Action.objects.exists() and not IdempotencyRecord.objects.exists()


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer x", "Basic YTpi", "Bearer sk2_" + "0" * 43])
def test_without_a_valid_token_it_is_401(authorization: str) -> None:
    answer: Any = Client().get("/v1/me", headers={"Authorization": authorization} if authorization else {})
    assert (answer.status_code, code(answer)) == (401, "unauthenticated")
    assert answer["WWW-Authenticate"].startswith("Bearer")
    assert "RateLimit-Limit" in answer


def test_me_says_whose_token_it_is(agent: AgentClient, made: World) -> None:
    answer = agent.get("/me")
    assert answer.status_code == 200
    assert answer.json() == {
        "agent": str(made.agent.id),
        "name": "support-bot",
        "tenant": str(made.tenant_id),
        "scopes": ["actions:read", "actions:write"],
    }


def test_a_session_never_stands_in_for_a_token(made: World) -> None:
    client = Client()
    assert client.login(username=made.admin.username, password=PASSWORD)
    answer: Any = client.get("/v1/actions")
    assert (answer.status_code, code(answer)) == (401, "unauthenticated")


def test_a_revoked_agent_is_401_at_once(agent: AgentClient, made: World) -> None:
    agents.revoke_agent(made.tenant_id, made.agent.id)
    assert code(agent.get("/me")) == "unauthenticated"
    answer = agent.submit(submission())
    assert (answer.status_code, code(answer)) == (401, "unauthenticated")
    assert nothing_stored(made)


def test_an_agent_revoked_after_it_was_authenticated_is_refused_under_the_stop_lock(
    agent: AgentClient, made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # design: invariant 9, a stop that has answered holds
    def revoked_just_before(tenant_id: Any) -> None:
        Agent.objects.filter(id=made.agent.id).update(revoked_at=made.agent.created_at)
        stop_lock_shared(tenant_id)

    monkeypatch.setattr("approvals.intake.stop_lock_shared", revoked_just_before)
    answer = agent.submit(submission())
    assert (answer.status_code, code(answer)) == (401, "unauthenticated")
    assert nothing_stored(made)


def test_scopes(made: World) -> None:
    reader = AgentClient(token=agents.create_agent(made.tenant_id, name="reader", scopes=("actions:read",)))
    assert reader.get("/actions").status_code == 200
    answer = reader.submit(submission())
    assert (answer.status_code, code(answer)) == (403, "scope")
    writer = AgentClient(token=agents.create_agent(made.tenant_id, name="writer", scopes=("actions:write",)))
    answer = writer.get("/actions")
    assert (answer.status_code, code(answer)) == (403, "scope")
    assert nothing_stored(made)


def test_refusals_come_in_the_published_order(made: World) -> None:
    """401 → 403 → 413 → 415 → 400 for the key → 400 for the JSON → 422."""
    client = Client()
    reader = agents.create_agent(made.tenant_id, name="reader", scopes=("actions:read",))
    huge = "x" * 70_000
    good_key = {"Idempotency-Key": new_key()}
    steps: list[tuple[str, dict[str, str], str, str, str]] = [
        ("", {}, huge, "text/plain", "unauthenticated"),
        (reader, {}, huge, "text/plain", "scope"),
        (made.token, {}, huge, "text/plain", "body_too_large"),
        (made.token, {}, "{", "text/plain", "unsupported_media_type"),
        (made.token, {}, "{", "application/json", "idempotency_key_missing"),
        (made.token, {"Idempotency-Key": "short"}, "{", "application/json", "idempotency_key_malformed"),
        (made.token, good_key, "{", "application/json", "malformed_json"),
        (made.token, good_key, "{}", "application/json", "invalid_parameters"),
    ]
    for token, headers, body, media, expected in steps:
        named = headers | ({"Authorization": f"Bearer {token}"} if token else {})
        answer: Any = client.post("/v1/actions", data=body, content_type=media, headers=named)
        assert code(answer) == expected, expected
        assert "RateLimit-Remaining" in answer
    assert nothing_stored(made)


@pytest.mark.parametrize(
    ("media", "accepted"),
    [
        ("application/json", True),
        ("application/json; charset=utf-8", True),
        ("application/json; charset=UTF-8", True),
        ("application/json; charset=latin-1", False),
        ("text/json", False),
        ("application/x-www-form-urlencoded", False),
        ("", False),
    ],
)
def test_media_types(agent: AgentClient, media: str, accepted: bool) -> None:
    answer: Any = agent.client.post(
        "/v1/actions",
        data=json.dumps(submission()),
        content_type=media,
        headers=agent.headers(**{"Idempotency-Key": new_key()}),
    )
    assert answer.status_code == (201 if accepted else 415)


def test_a_body_of_64_kib_is_read_and_one_byte_more_is_413(agent: AgentClient, made: World) -> None:
    body = json.dumps(submission()).encode()
    assert agent.submit((body + b" " * (65_536 - len(body))).decode()).status_code == 201
    answer = agent.submit((body + b" " * (65_537 - len(body))).decode())
    assert (answer.status_code, code(answer)) == (413, "body_too_large")


def test_unknown_addresses_and_methods_are_problems_too(agent: AgentClient) -> None:
    for path in ("/v1/", "/v1/nothing", "/v1/actions/", "/v1/actions/x/y/z"):
        answer: Any = agent.client.get(path, headers=agent.headers())
        assert (answer.status_code, code(answer)) == (404, "not_found"), path
    answer = agent.client.put("/v1/actions", headers=agent.headers())
    assert (answer.status_code, code(answer)) == (405, "method_not_allowed")
    assert answer["Allow"] == "GET, HEAD, OPTIONS, POST"
    answer = agent.client.options("/v1/actions", headers=agent.headers())
    assert (answer.status_code, answer["Allow"]) == (204, "GET, HEAD, OPTIONS, POST")
    assert agent.client.delete("/v1/errors").status_code == 405


def test_head_is_a_get_without_a_body(agent: AgentClient) -> None:
    made = agent.submit(submission()).json()
    got = agent.get(f"/actions/{made['id']}")
    head: Any = agent.client.head(f"/v1/actions/{made['id']}", headers=agent.headers())
    assert (head.status_code, head.content) == (200, b"")
    assert head["ETag"] == got["ETag"]
    assert head["Content-Length"] == str(len(got.content))


def test_every_answer_has_a_request_id_and_keeps_a_uuid_of_the_caller(agent: AgentClient) -> None:
    own = "0190b3a4-1111-7222-8333-444455556666"
    assert agent.get("/me", **{"X-Request-ID": own})["X-Request-ID"] == own
    assert agent.get("/nothing", **{"X-Request-ID": "evil\tvalue"})["X-Request-ID"] != "evil\tvalue"


def test_an_unexpected_exception_is_500_without_details(
    agent: AgentClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(**arguments: Any) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(intake, "submit", broken)
    answer = agent.submit(submission())
    assert (answer.status_code, code(answer)) == (500, "internal")
    assert b"secret" not in answer.content


def test_without_the_database_it_is_503_with_retry_after(
    agent: AgentClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(*arguments: Any, **named: Any) -> None:
        raise OperationalError("connection refused on 10.0.0.1")

    monkeypatch.setattr(requests, "authenticate", down)
    answer = agent.submit(submission())
    assert (answer.status_code, code(answer)) == (503, "unavailable")
    assert int(answer["Retry-After"]) >= 1
    assert b"10.0.0.1" not in answer.content


def test_a_journal_that_cannot_be_written_is_503_and_keeps_nothing(
    agent: AgentClient, made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # K69, on the side of submitting: no entry, no action
    def broken(*arguments: Any) -> None:
        raise IntegrityError("journal")

    key, body = new_key(), submission()
    with monkeypatch.context() as patched:
        patched.setattr(journal, "_append", broken)
        answer = agent.submit(body, key)
    assert (answer.status_code, code(answer)) == (503, "unavailable")
    assert nothing_stored(made)
    assert agent.submit(body, key).status_code == 201


def test_too_many_requests_are_429_with_retry_after(made: World, settings: Settings) -> None:
    settings.API_RATE_PER_MINUTE = 3
    limiter.forget()
    agent, other = AgentClient(made), AgentClient(world())
    remaining = [int(agent.get("/me")["RateLimit-Remaining"]) for _ in range(3)]
    assert remaining == [2, 1, 0]
    answer = agent.get("/me")
    assert (answer.status_code, code(answer)) == (429, "rate_limited")
    assert 1 <= int(answer["Retry-After"]) <= 60
    assert answer["RateLimit-Limit"] == "3"
    assert other.get("/me").status_code == 200
    limiter.forget()


def test_the_catalogue_lists_every_code_with_what_to_do(agent: AgentClient) -> None:
    answer: Any = Client().get("/v1/errors")
    assert answer.status_code == 200
    listed = {one["code"]: one for one in answer.json()["errors"]}
    assert listed.keys() == errors.CATALOGUE.keys()
    assert all(one["advice"] and one["title"] for one in listed.values())
    wire = {
        "idempotency_key_reused": 422,
        "operation_conflict": 409,
        "in_progress": 409,
        "idempotency_key_missing": 400,
        "idempotency_key_malformed": 400,
        "malformed_json": 400,
        "invalid_parameters": 422,
        "unknown_kind": 422,
        "scope": 403,
        "stopped": 403,
        "already_decided": 409,
    }
    assert {name: listed[name]["status"] for name in wire} == wire


def test_kinds_and_their_schemas(agent: AgentClient) -> None:
    kinds = agent.get("/kinds").json()["kinds"]
    refund = next(kind for kind in kinds if kind["kind"] == "refund")
    assert refund["versions"][0]["schema_version"] == 1
    assert refund["versions"][0]["schema"]["additionalProperties"] is False


def test_the_schema_is_openapi_3_1_and_names_problem_documents() -> None:
    schema = Client().get("/v1/openapi.json").json()
    assert schema["openapi"].startswith("3.1")
    submit = schema["paths"]["/v1/actions"]["post"]
    assert "application/problem+json" in submit["responses"]["422"]["content"]
    assert submit["requestBody"]["content"]["application/json"]["schema"]["additionalProperties"] is False
    assert any(parameter["name"] == "Idempotency-Key" for parameter in submit["parameters"])
    named = set(json.dumps(schema).split('"#/components/schemas/')[1:])
    for reference in named:
        assert reference.split('"')[0] in schema["components"]["schemas"]


def test_the_documentation_is_a_page_without_foreign_scripts() -> None:
    answer: Any = Client().get("/v1/docs")
    assert answer.status_code == 200
    text = answer.content.decode()
    assert "https://cdn" not in text
    assert "/v1/actions" in text
    assert "idempotency_key_reused" in text
