"""Questions for the pages' tests: submitted as agents do, observed against a record that the test gives."""

from collections.abc import Mapping
from typing import Any
from unittest.mock import patch
from uuid import UUID

from django.test import Client

from approvals.demo.browser import form_of
from approvals.models import Action, User
from approvals.observation import observe as read_record
from ledger import clock, observations
from ledger.providers.base import PaymentRecord
from ledger.transactions import tenant_reads
from tests.agent_calls import AgentClient, submission
from tests.factories import World


def record_of(body: Mapping[str, Any], **changes: Any) -> PaymentRecord:
    """A payment of 120.00 in the submission's currency, of which nothing is refunded."""
    values: dict[str, Any] = {
        "id": body["parameters"]["payment"],
        "amount": 12_000,
        "currency": body["parameters"]["currency"].lower(),
        "status": "succeeded",
        "recipient": "Dana Fox",
        "instrument": "visa ···· 4242",
        "created": 1_794_000_000,
    }
    return PaymentRecord(**values | changes)


def submit(here: World, *, reasoning: str = "charged twice for order 77", **parameters: Any) -> UUID:
    """A pending refund whose record nobody has read yet."""
    body = submission(reasoning=reasoning)
    body["parameters"] |= parameters
    answer = AgentClient(here).submit(body)
    assert answer.status_code == 201, answer.content
    return UUID(answer.json()["id"])


def observe(here: World, action_id: UUID, **record: Any) -> None:
    """Let the provider's record be read; `record` changes what it says."""
    found = row(here, action_id)
    currency, payment = found.currency, found.resource_key.rpartition(":")[2]
    known = record_of({"parameters": {"payment": payment, "currency": currency}}, **record)
    with patch.object(observations, "read", lambda *_: (clock.now(), known)):
        read_record(here.tenant_id, action_id)


def question(here: World, *, record: Mapping[str, Any] | None = None, **more: Any) -> UUID:
    """A pending refund that can be decided."""
    action_id = submit(here, **more)
    observe(here, action_id, **(record or {}))
    return action_id


def row(here: World, action_id: UUID) -> Action:
    """The action as it is stored."""
    with tenant_reads(here.tenant_id):
        return Action.objects.select_related("agent", "observation").get(id=action_id)


def signed_in(user: User, **options: Any) -> Client:
    """A session of that person."""
    client = Client(**options)
    client.force_login(user)
    return client


def fields_of(client: Client, action_id: UUID) -> dict[str, str]:
    """The hidden fields of the decide form, as the page has them now."""
    page = client.get(f"/actions/{action_id}/")
    assert page.status_code == 200, page.status_code
    return form_of(page.content.decode(), "/decide").fields


def decide(client: Client, action_id: UUID, verdict: str, reason: str = "", **fields: str) -> Any:
    """Read the page, then post a verdict with what it was bound to (`fields` replace some of it)."""
    bound = fields_of(client, action_id) | {"verdict": verdict, "reason": reason} | fields
    return client.post(f"/actions/{action_id}/decide", bound)
