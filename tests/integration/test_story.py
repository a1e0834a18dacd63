"""The story of an action answers the three questions from what is stored, whatever happened on the way."""

from collections.abc import Iterator
from uuid import UUID

import psycopg
import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from approvals.audit import records
from approvals.audit.story import Story
from approvals.audit.text import as_text
from ledger.transactions import tenant_reads
from tests.conftest import Clock
from tests.desks import decide, question, row, signed_in, submit
from tests.factories import World, world
from tests.ledger_steps import drive, run_due
from tests.sandbox_process import Sandbox, sandbox

pytestmark = pytest.mark.usefixtures("db")


@pytest.fixture(scope="module")
def provider() -> Iterator[Sandbox]:
    with sandbox() as running:
        yield running


@pytest.fixture(autouse=True)
def quick(settings: Settings) -> None:
    settings.LEDGER_DEADLINE_SECONDS = 2.0
    settings.LEDGER_LEASE_SECONDS = 4.0
    settings.LEDGER_BACKOFF_SECONDS = 0.05


@pytest.fixture
def here(provider: Sandbox) -> World:
    provider.faults([])
    return world(provider_url=provider.url)


@pytest.fixture
def payment(provider: Sandbox, here: World) -> str:
    return provider.seed(
        {"amount": 12_000, "currency": "usd", "name": "Dana Fox"}, account=here.provider_secret
    )[0]


def approved(here: World, payment: str) -> UUID:
    """A refund of a payment at the sandbox, observed and approved, and not executed yet."""
    action_id = submit(here, payment=payment)
    run_due(here.tenant_id)  # the record is read
    answer = decide(signed_in(here.reviewers[0]), action_id, "approve", "the order shows it twice")
    assert answer.status_code == 303, answer.content
    return action_id


def told(here: World, action_id: UUID) -> Story:
    with tenant_reads(here.tenant_id):
        story = records.story(action_id)
    assert story is not None
    return story


def page_of(here: World, action_id: UUID) -> str:
    answer = signed_in(here.admin).get(f"/audit/actions/{action_id}/")
    assert answer.status_code == 200
    return answer.content.decode()


def test_a_plain_refund_answers_the_three_questions(
    here: World, payment: str, provider: Sandbox, clock: Clock
) -> None:  # R-F1
    action_id = approved(here, payment)
    drive(here.tenant_id, clock)
    reference = provider.payment(payment)["refunds"][0]["id"]
    story, stored = told(here, action_id), row(here, action_id)
    text = as_text(story)
    assert story.authorized is not None
    assert story.authorized.fingerprint == stored.fingerprint
    assert story.authorized.matches is True
    assert story.authorized.names == (here.reviewers[0].username,)
    for part in (
        f"{here.reviewers[0].username} approved this",
        "refunds up to 500",
        "policy version 1",
        "the order shows it twice",
        payment,
        f"Receipt {reference}",
        "There was no other attempt.",
    ):
        assert part in text, part
        assert part.removeprefix("Receipt ") in page_of(here, action_id).replace("&#x27;", "'"), part


def test_a_lost_answer_is_told_with_why_a_second_attempt_was_allowed(
    here: World, payment: str, provider: Sandbox, clock: Clock
) -> None:  # R-D1, R-D2, R-G2
    provider.faults([{"on": "refund.create", "times": 1, "fault": "lose_ack"}])
    action_id = approved(here, payment)
    drive(here.tenant_id, clock)
    assert len(provider.payment(payment)["refunds"]) == 1
    story = told(here, action_id)
    (effect,) = story.effects
    assert effect.word.word == "Done"
    assert effect.attempts[0].why == "The first attempt: the decision itself allows it."
    assert effect.attempts[0].responses
    assert effect.look_ups
    assert effect.receipts
    text = as_text(story)
    assert "outcome unknown: it may have landed" in text
    assert provider.payment(payment)["refunds"][0]["id"] in text
    events = [entry.event for entry in story.timeline]
    assert "operation.outcome_unknown" in events
    assert [entry.seq for entry in story.timeline] == sorted(entry.seq for entry in story.timeline)
    assert page_of(here, action_id)


def test_a_second_attempt_names_the_permission_that_was_recorded_before_it(
    here: World, payment: str, provider: Sandbox, clock: Clock
) -> None:  # R-D1, R-D2
    provider.faults([{"on": "refund.create", "times": 1, "fault": "error_before"}])
    action_id = approved(here, payment)
    drive(here.tenant_id, clock)
    assert len(provider.payment(payment)["refunds"]) == 1
    story = told(here, action_id)
    (again,) = story.again
    assert again.number == 2
    assert again.permission is not None
    assert again.permission.granted_at <= again.started_at
    text = as_text(story)
    assert again.why in text
    assert "Recorded before it by rule" in text
    assert again.why in page_of(here, action_id)


def test_what_was_blocked_is_told_as_asked_approved_and_now(
    here: World, payment: str, provider: Sandbox, clock: Clock
) -> None:  # R-C5
    action_id = approved(here, payment)
    provider.ask("POST", "dispute", {"payment": payment})
    drive(here.tenant_id, clock)
    assert provider.calls("refund.create") == 0 or not provider.payment(payment)["refunds"]
    page = signed_in(here.reviewers[0]).get(f"/actions/{action_id}/").content.decode()
    for part in ("Asked", "Approved", "Now", "Disputed", "changed:", "Not sent"):
        assert part in page, part
    assert "Nothing was sent" in as_text(told(here, action_id)) or "disputes" in as_text(
        told(here, action_id)
    )


def test_a_rejection_and_a_pending_question_are_stories_too(here: World) -> None:
    pending, rejected = question(here), question(here)
    decide(signed_in(here.reviewers[0]), rejected, "reject", "not ours")
    assert "Nothing: no decision is recorded." in as_text(told(here, pending))
    text = as_text(told(here, rejected))
    assert "rejected this" in text
    assert "not ours" in text
    assert "nothing was to be sent" in text


def test_erased_details_leave_a_story_that_says_so(here: World, owner: psycopg.Connection) -> None:
    action_id = question(here)
    decide(signed_in(here.reviewers[0]), action_id, "reject", "not ours")
    with owner.transaction():
        owner.execute(
            "DELETE FROM ledger_journalpayload WHERE entry_id IN"
            " (SELECT id FROM ledger_journalentry WHERE action_id = %s)",
            [action_id],
        )
    story = told(here, action_id)
    assert story.erased
    assert "were erased" in as_text(story)
    assert "were erased" in page_of(here, action_id)


@pytest.mark.parametrize("by", ["id", "run", "step", "payment", "reference", "operation key"])
def test_an_action_is_found_by_what_is_known_of_it(
    here: World, payment: str, provider: Sandbox, clock: Clock, by: str
) -> None:  # R-F1
    action_id = approved(here, payment)
    drive(here.tenant_id, clock)
    other = question(here)
    stored, story = row(here, action_id), told(here, action_id)
    text = {
        "id": str(action_id),
        "run": stored.run_id,
        "step": stored.step_id,
        "payment": payment,
        "reference": story.effects[0].receipts[0].reference,
        "operation key": story.effects[0].operation_key,
    }[by]
    page = signed_in(here.admin).get("/audit/", {"q": f" {text} "}).content.decode()
    assert f"/audit/actions/{action_id}/" in page
    assert (f"/audit/actions/{other}/" in page) == (by == "run")


@pytest.mark.parametrize("text", ["", "nothing", "%", "'; --", "\x00", "x" * 9000, "0190"])
def test_any_search_is_answered(here: World, text: str) -> None:
    client: Client = signed_in(here.admin)
    for status in ("", "pending", "nonsense"):
        assert client.get("/audit/", {"q": text, "status": status, "before": text}).status_code == 200


def test_a_story_costs_as_many_queries_whatever_happened(
    here: World, payment: str, provider: Sandbox, clock: Clock
) -> None:
    provider.faults([{"on": "refund.create", "times": 2, "fault": "error_before"}])
    long = approved(here, payment)
    drive(here.tenant_id, clock)
    counts = []
    for action_id in (question(here), long):
        with CaptureQueriesContext(connection) as captured:
            told(here, action_id)
        counts.append(len(captured))
    assert max(counts) <= 16
