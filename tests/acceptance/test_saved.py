"""The saved test (R-G4): whatever an agent repeats, the provider's books move once.

Same resource id, same body while nothing changed, one record in the collection, one movement of the balance.
"""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.factories import World
from tests.ledger_steps import in_parallel
from tests.live import Live, live, refund_body

pytestmark = pytest.mark.timeout(180)
KEY = "run_8812:refund-order-77"


@pytest.fixture(scope="module")
def system(django_db_setup: None) -> Iterator[Live]:
    with live() as running:
        running.start_worker()
        running.start_beat()
        yield running


@pytest.fixture
def here(system: Live) -> World:
    system.sandbox.faults([])
    return system.world()


def submit(system: Live, here: World, body: dict[str, Any], key: str = KEY) -> httpx.Response:
    with system.agent(here) as agent:
        return agent.submit(body, key=key)


def collection(system: Live, here: World) -> list[dict[str, Any]]:
    with system.agent(here) as agent:
        answer = agent.http.get("/v1/actions", params={"run_id": "run_8812"})
    answer.raise_for_status()
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


def test_whatever_is_repeated_the_books_move_once(system: Live, here: World) -> None:
    payment = system.payment(here)
    body = refund_body(payment)
    first = submit(system, here, body)
    assert first.status_code == 201
    action_id = first.json()["id"]
    assert first.headers["Location"].endswith(action_id)

    # the second identical call, at once: the stored status, the same resource
    again = submit(system, here, body)
    assert (again.status_code, again.headers["Idempotent-Replayed"]) == (201, "true")
    assert again.json()["id"] == action_id
    if again.json()["state_version"] == first.json()["state_version"]:
        assert again.content == first.content

    # the same key for something else: refused, nothing changed
    other = submit(system, here, refund_body(payment, amount=4_901))
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")

    # another key for the same operation: the same action; with another amount: a conflict that names it
    renamed = submit(system, here, body, key="quite-another-key")
    assert (renamed.status_code, renamed.json()["id"]) == (200, action_id)
    changed = submit(system, here, refund_body(payment, amount=4_901), key="a-third-key")
    assert (changed.status_code, changed.json()["code"]) == (409, "operation_conflict")
    assert changed.json()["action"] == action_id

    system.approve(here, action_id)
    final = system.final(here, action_id)
    assert final["execution"]["status"] == "succeeded"

    # and again when it is done: the final state, replayed, byte for byte the same twice
    done, twice = submit(system, here, body), submit(system, here, body)
    assert done.headers["Idempotent-Replayed"] == twice.headers["Idempotent-Replayed"] == "true"
    assert done.content == twice.content
    assert done.json()["final"] is True
    assert [one["id"] for one in collection(system, here)] == [action_id]
    assert system.refunds(payment) == [4_900]
    assert system.sandbox.payment(payment)["refunded"] == 4_900


def test_concurrent_duplicates_are_one(system: Live, here: World) -> None:
    payment = system.payment(here)
    answers = in_parallel(*[lambda: submit(system, here, refund_body(payment)) for _ in range(12)])
    assert {answer.status_code for answer in answers} <= {201, 409}
    assert len({answer.json()["id"] for answer in answers if answer.status_code == 201}) == 1
    action_id = next(answer.json()["id"] for answer in answers if answer.status_code == 201)
    system.approve(here, action_id)
    system.final(here, action_id)
    assert len(collection(system, here)) == 1
    assert system.refunds(payment) == [4_900]


def test_a_genuine_second_request_that_looks_alike_goes_through(
    system: Live, here: World
) -> None:  # R-A6, G2
    payment = system.payment(here)
    first = submit(system, here, refund_body(payment, step="first")).json()["id"]
    second = submit(system, here, refund_body(payment, step="second"), key="another-operation").json()["id"]
    assert first != second
    for action_id in (first, second):
        system.approve(here, action_id)
        assert system.final(here, action_id)["execution"]["status"] == "succeeded"
    assert system.refunds(payment) == [4_900, 4_900]


def test_a_rejected_refund_never_reaches_the_provider(system: Live, here: World) -> None:  # K33
    payment = system.payment(here)
    action_id = system.submit(here, payment)
    with system.reviewer(here) as person:
        assert person.decide(action_id, "reject", reason="not ours").status_code == 303
    final = system.final(here, action_id)
    assert (final["status"], final["execution"]) == ("rejected", None)
    assert (
        submit(system, here, refund_body(payment), key=f"key-{payment}-step").json()["status"] == "rejected"
    )
    assert system.refunds(payment) == []
    assert system.sandbox.books(here.provider_secret)["calls"].get("refund.create", 0) == 0


def test_polling_with_an_etag(system: Live, here: World) -> None:
    payment = system.payment(here)
    action_id = system.submit(here, payment)
    system.approve(here, action_id)
    system.final(here, action_id)
    with system.agent(here) as agent:
        answer = agent.http.get(f"/v1/actions/{action_id}")
        same = agent.http.get(f"/v1/actions/{action_id}", headers={"If-None-Match": answer.headers["ETag"]})
    assert (answer.status_code, same.status_code, same.content) == (200, 304, b"")
    assert answer.headers["Cache-Control"] == "no-store"
