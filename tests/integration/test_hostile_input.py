"""Input that no decent program sends: a clear refusal or a plain answer, never a 500."""

from typing import Any

import pytest
from django.test import Client

from approvals import agents, decisions, intake
from approvals.models import Action
from approvals.refusals import ActionNotFoundError
from approvals.submissions import IntakeError
from ledger.providers.stripe_answers import MalformedError, receipt_of
from ledger.transactions import tenant_reads
from tests.desks import question
from tests.factories import World, world
from tests.stripe_objects import refund as refund_object

pytestmark = pytest.mark.usefixtures("db")
CHARSETS = ("base64", "idna", "undefined", "unicode_escape", "utf-16", "nonsense")
ADDRESSES = ("/v1/actions?run_id=x", "/accounts/login/?next=%5Cud800", "/?after=%5Cud800", "/docs/")


@pytest.fixture
def here() -> World:
    return world(reviewers=1)


@pytest.fixture
def client(here: World) -> Client:
    made = Client(raise_request_exception=False)
    made.force_login(here.reviewers[0], backend="allauth.account.auth_backends.AuthenticationBackend")
    return made


@pytest.mark.parametrize("charset", CHARSETS)
@pytest.mark.parametrize("address", ADDRESSES)
def test_a_strange_charset_changes_nothing(address: str, charset: str, here: World, client: Client) -> None:
    answer = client.generic(
        "GET",
        address,
        content_type=f"text/plain; charset={charset}",
        headers={"Authorization": f"Bearer {here.token}"},
    )
    assert answer.status_code in {200, 302, 404, 422}
    assert answer["X-Request-ID"]


@pytest.mark.parametrize("charset", CHARSETS)
@pytest.mark.parametrize("kind", ["multipart/form-data; boundary=b", "application/x-www-form-urlencoded"])
def test_a_form_in_a_strange_charset_decides_nothing(kind: str, charset: str, client: Client) -> None:
    address = "/actions/01a22f4e-c669-7037-a943-b1102089b06d/decide"
    answer = client.generic(
        "POST", address, data=b"reason=%5Cud800", content_type=f"{kind}; charset={charset}"
    )
    assert 400 <= answer.status_code < 500


@pytest.mark.parametrize("query", ["run_id=%00", "step_id=a%00b", "run_id=%0a", "step_id=" + "x" * 200])
def test_a_filter_that_is_no_name_is_422(query: str, here: World, client: Client) -> None:
    answer = client.get(f"/v1/actions?{query}", headers={"Authorization": f"Bearer {here.token}"})
    assert answer.status_code == 422
    assert answer["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize(
    "since", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "x", "2026-01-01"]
)
def test_a_moment_that_no_clock_has_brings_no_news(since: str, client: Client) -> None:
    answer = client.get("/", {"since": since}, headers={"HX-Request": "true", "HX-Target": "fresh"})
    assert answer.status_code in {200, 204}


@pytest.mark.parametrize("created", [10**15, -1, True, "1"])
def test_a_time_that_a_provider_cannot_mean_is_left_out(created: Any) -> None:
    assert receipt_of(refund_object(created=created)).created is None


def test_an_amount_that_a_provider_cannot_mean_is_malformed() -> None:
    with pytest.raises(MalformedError):
        receipt_of(refund_object(amount=2**60))


def test_nothing_of_a_revoked_agent_is_written_any_more(here: World) -> None:
    # design: a stop that has answered holds, also for a request that was let in before it
    action_id = question(here)
    agents.revoke_agent(here.tenant_id, here.agent.id)
    with pytest.raises(ActionNotFoundError):
        decisions.cancel(tenant_id=here.tenant_id, agent_id=here.agent.id, action_id=action_id)
    with tenant_reads(here.tenant_id):
        assert Action.objects.get(id=action_id).status == "pending"
    with pytest.raises(IntakeError, match="revoked"), tenant_reads(here.tenant_id):
        intake.living(here.agent.id)
