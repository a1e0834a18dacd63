"""Deciding on the page: what is shown, what a verdict does, and what a verdict that came too late is told."""

from unittest.mock import patch
from uuid import UUID

import pytest
from django.db import OperationalError
from django.test import Client

from approvals.models import Decision, Vote
from ledger.errors import JournalError
from ledger.models import JournalEntry
from ledger.transactions import tenant_reads
from tests.conftest import Clock
from tests.desks import decide, fields_of, observe, question, row, signed_in, submit
from tests.factories import World, world

pytestmark = pytest.mark.usefixtures("db")

HTMX = {"HX-Request": "true", "HX-Target": "main"}


@pytest.fixture
def here() -> World:
    return world()


@pytest.fixture
def rana(here: World) -> Client:
    return signed_in(here.reviewers[0])


def votes(here: World, action_id: UUID) -> int:
    with tenant_reads(here.tenant_id):
        return Vote.objects.filter(action_id=action_id).count()


def page_of(client: Client, action_id: UUID) -> str:
    return client.get(f"/actions/{action_id}/").content.decode()


def test_the_page_shows_what_will_happen_and_why_one_is_asked(here: World, rana: Client) -> None:  # R-B2
    action_id = question(here)
    page = page_of(rana, action_id)
    for text in (
        "49.00 USD",
        "Dana Fox",
        "4242",
        "120.00",
        "71.00",
        "cannot be undone",
        "refunds up to 500",
        "charged twice for order 77",
        "not verified",
        "support-bot",
        row(here, action_id).fingerprint,
    ):
        assert text in page, text


def test_approving_without_javascript(here: World, rana: Client) -> None:  # R-B3
    action_id = question(here)
    answer = decide(rana, action_id, "approve", "seen")
    assert (answer.status_code, answer["Location"]) == (303, f"/actions/{action_id}/")
    page = rana.get(answer["Location"]).content.decode()
    assert "approved this" in page
    assert '<form class="verdict"' not in page
    assert row(here, action_id).status == "approved"


def test_approving_with_htmx_is_followed_to_the_fragment(here: World, rana: Client) -> None:
    action_id = question(here)
    fields = fields_of(rana, action_id) | {"verdict": "approve"}
    answer = rana.post(f"/actions/{action_id}/decide", fields, headers=HTMX)
    assert answer.status_code == 303
    fragment = rana.get(answer["Location"], headers=HTMX).content.decode()
    assert fragment.startswith("<title>")
    assert "data-focus" in fragment
    assert 'hx-trigger="every 2s"' in fragment


def test_rejecting_asks_for_a_reason_and_keeps_what_stands(here: World, rana: Client) -> None:
    action_id = question(here)
    answer = decide(rana, action_id, "reject", "  ")
    assert answer.status_code == 422
    assert b'aria-invalid="true"' in answer.content
    assert row(here, action_id).status == "pending"
    assert decide(rana, action_id, "reject", "a dispute is open").status_code == 303
    assert row(here, action_id).status == "rejected"
    assert "a dispute is open" in page_of(rana, action_id)


def test_a_field_error_keeps_what_was_typed(here: World, rana: Client) -> None:
    action_id = question(here)
    typed = "because " * 300
    answer = decide(rana, action_id, "reject", typed)
    assert answer.status_code == 422
    assert typed.strip() in answer.content.decode()


@pytest.mark.parametrize(
    "missing", ["state_version", "fingerprint", "policy_version", "view_digest", "seq", "verdict"]
)
def test_a_form_that_is_not_whole_decides_nothing(here: World, rana: Client, missing: str) -> None:  # R-B1
    action_id = question(here)
    fields = fields_of(rana, action_id) | {"verdict": "approve", "reason": ""}
    del fields[missing]
    assert rana.post(f"/actions/{action_id}/decide", fields).status_code == 422
    assert votes(here, action_id) == 0


@pytest.mark.parametrize("verdict", ["", "maybe", "approve\x00", "x" * 5000])
def test_an_unknown_verdict_decides_nothing(here: World, rana: Client, verdict: str) -> None:
    action_id = question(here)
    assert decide(rana, action_id, verdict).status_code == 422
    assert votes(here, action_id) == 0


def test_five_equal_posts_are_one_decision_with_five_equal_answers(here: World, rana: Client) -> None:  # K46
    action_id = question(here)
    fields = fields_of(rana, action_id) | {"verdict": "approve", "reason": ""}
    answers = [rana.post(f"/actions/{action_id}/decide", fields) for _ in range(5)]
    assert {(answer.status_code, answer["Location"]) for answer in answers} == {
        (303, f"/actions/{action_id}/")
    }
    with tenant_reads(here.tenant_id):
        assert Decision.objects.filter(action_id=action_id).count() == 1
        assert JournalEntry.objects.filter(action_id=action_id, event="action.approved").count() == 1
    assert votes(here, action_id) == 1


@pytest.mark.parametrize("method", ["get", "head"])
def test_following_a_link_decides_nothing(here: World, rana: Client, method: str) -> None:  # K45
    action_id = question(here)
    fields = fields_of(rana, action_id) | {"verdict": "approve", "reason": ""}
    for _ in range(10):
        for client in (rana, Client()):
            assert getattr(client, method)(f"/actions/{action_id}/decide", fields).status_code == 405
            getattr(client, method)(f"/actions/{action_id}/", fields)
    assert votes(here, action_id) == 0
    assert rana.post(f"/actions/{action_id}/decide", fields).status_code == 303


def test_a_post_from_elsewhere_is_refused(here: World) -> None:
    action_id = question(here)
    client = signed_in(here.reviewers[0], enforce_csrf_checks=True)
    fields = fields_of(client, action_id) | {"verdict": "approve"}
    stripped = {name: value for name, value in fields.items() if name != "csrfmiddlewaretoken"}
    refused = client.post(f"/actions/{action_id}/decide", stripped)
    assert refused.status_code == 403
    assert b"nothing was recorded" in refused.content
    assert client.post(f"/actions/{action_id}/decide", fields).status_code == 303


def test_who_comes_second_is_told_who_was_first_in_neutral_words(here: World, rana: Client) -> None:  # K29
    action_id = question(here)
    omar = signed_in(here.reviewers[1])
    fields = fields_of(omar, action_id) | {"verdict": "reject", "reason": "no"}
    assert decide(rana, action_id, "approve").status_code == 303
    late = omar.post(f"/actions/{action_id}/decide", fields)
    text = late.content.decode()
    assert late.status_code == 409
    assert f"{here.reviewers[0].username} approved this" in text
    assert "Your verdict was not needed" in text
    assert '<form class="verdict"' not in text
    assert row(here, action_id).status == "approved"


def test_after_its_time_a_verdict_is_told_so(here: World, rana: Client, clock: Clock) -> None:  # R-B5, K18
    action_id = question(here)
    fields = fields_of(rana, action_id) | {"verdict": "approve", "reason": ""}
    clock.at(row(here, action_id).expires_at)
    assert "The time for deciding ran out" in page_of(rana, action_id)
    assert row(here, action_id).status == "pending"  # looking closes nothing
    late = rana.post(f"/actions/{action_id}/decide", fields)
    assert late.status_code == 409
    assert b"The time for deciding ran out" in late.content
    assert row(here, action_id).status == "expired"


def test_what_changed_since_the_page_was_opened_is_named(here: World, rana: Client) -> None:  # R-B1
    action_id = question(here)
    for name, words in (
        ("fingerprint", "the parameters"),
        ("view_digest", "the provider&#x27;s record"),
        ("policy_version", "the policy"),
        ("state_version", "the question itself"),
    ):
        other = "7" if name.endswith("version") else "sha256:" + "0" * 64
        answer = decide(rana, action_id, "approve", **{name: other})
        assert answer.status_code == 409
        assert b"This changed since you looked" in answer.content
        assert words in answer.content.decode()
        assert b'<form class="verdict"' in answer.content  # the fresh question, ready to be answered
    assert votes(here, action_id) == 0


def test_who_owns_the_agent_may_look_and_not_decide(here: World) -> None:  # K38
    action_id = question(here)
    ada = signed_in(here.admin)
    page = page_of(ada, action_id)
    assert '<form class="verdict"' not in page
    fields = fields_of(signed_in(here.reviewers[0]), action_id) | {"verdict": "approve", "reason": ""}
    refused = ada.post(f"/actions/{action_id}/decide", fields)
    assert refused.status_code == 403
    assert row(here, action_id).status == "pending"


def test_before_the_record_is_read_approving_waits(here: World, rana: Client) -> None:
    action_id = submit(here)
    page = page_of(rana, action_id)
    assert "has not been read yet" in page
    assert decide(rana, action_id, "approve").status_code == 409
    observe(here, action_id)
    assert decide(rana, action_id, "approve").status_code == 303


def test_the_first_of_two_approvals_waits_for_the_second(here: World, rana: Client) -> None:
    action_id = question(here, amount=60_000, record={"amount": 100_000})
    assert "0 of 2 approved" in page_of(rana, action_id)
    assert decide(rana, action_id, "approve").status_code == 303
    page = page_of(rana, action_id)
    assert "1 of 2 approved" in page
    assert "It waits for somebody else" in page
    assert row(here, action_id).status == "pending"
    assert decide(signed_in(here.reviewers[1]), action_id, "approve").status_code == 303
    assert row(here, action_id).status == "approved"


@pytest.mark.parametrize("failure", [JournalError(), OperationalError()])
def test_what_could_not_be_written_down_consumes_nothing(
    here: World, rana: Client, failure: Exception
) -> None:
    action_id = question(here)
    with patch("ledger.journal.append", side_effect=failure):
        answer = decide(rana, action_id, "approve")
    assert answer.status_code == 503
    assert b"Nothing was recorded" in answer.content
    assert votes(here, action_id) == 0
    assert decide(rana, action_id, "approve").status_code == 303


def test_a_page_that_is_still_right_is_not_sent_again(here: World, rana: Client) -> None:
    action_id = question(here)
    seen = page_of(rana, action_id).split("?seen=")[1].split('"')[0]
    asked = f"/actions/{action_id}/?seen={seen}"
    headers = HTMX | {"HX-Target": "news"}
    assert rana.get(asked, headers=headers).status_code == 204
    decide(signed_in(here.reviewers[1]), action_id, "approve")
    news = rana.get(asked, headers=headers)
    assert news.status_code == 200
    assert f"{here.reviewers[1].username} approved this" in news.content.decode()
    assert b"<title>" not in news.content


def test_long_text_is_shown_whole(here: World, rana: Client) -> None:  # K52
    note = "".join(chr(ord("a") + i % 26) for i in range(4_980)) + " and the tail stands here"
    note = note[-5_000:]
    action_id = question(here, note=note)
    page = page_of(rana, action_id)
    assert note in page
    assert page.index(note[-20:]) < page.index('value="approve"')


def test_what_is_dangerous_in_text_is_only_text(here: World, rana: Client) -> None:  # K51, R-A9
    bad = '<img src=x onerror=alert(1)></td></table><script>alert(1)</script>"\' hx-get="/x"'
    action_id = question(
        here,
        reasoning=bad + "\u202e\u2066\u200b\U000e0041\u3164",
        note=bad + "\u202e",
        customer="D\u0430na <b>Fox</b>",
        record={"recipient": bad, "instrument": bad},
    )
    page = page_of(rana, action_id)
    assert "<img src=x" not in page
    assert "<script>" not in page
    assert "<b>Fox" not in page
    for number in ("202E", "2066", "200B", "E0041", "3164"):
        assert f"U+{number}" in page, number
    for character in "\u202e\u2066\u200b\U000e0041\u3164":
        assert character not in page
    inbox = rana.get("/").content.decode()
    assert "<img src=x" not in inbox


def test_the_inbox_is_ordered_by_time_left_and_then_by_amount(here: World, rana: Client) -> None:
    small, large = question(here, amount=100), question(here, amount=11_000)
    page = rana.get("/").content.decode()
    assert "2 waiting" in page
    at = [page.index(str(one)) for one in (large, small)]
    first, second = row(here, large), row(here, small)
    if first.expires_at.replace(second=0, microsecond=0) == second.expires_at.replace(
        second=0, microsecond=0
    ):
        assert at == sorted(at)


def test_the_inbox_says_what_came_and_not_more(here: World, rana: Client) -> None:
    question(here)
    page = rana.get("/").content.decode()
    since = page.split("?since=")[1].split('"')[0]
    headers = {"HX-Request": "true", "HX-Target": "fresh"}
    assert rana.get(f"/?since={since}", headers=headers).status_code == 204
    question(here)
    news = rana.get(f"/?since={since}", headers=headers)
    assert "1 new" in news.content.decode()
    for nonsense in ("", "yesterday", "2026-13-45T00:00:00Z", "2026-01-01T00:00:00"):
        assert rana.get("/", {"since": nonsense}, headers=headers).status_code == 204


def test_the_inbox_shows_what_may_still_be_decided(here: World, rana: Client, clock: Clock) -> None:
    action_id = question(here)
    clock.at(row(here, action_id).expires_at)
    page = rana.get("/").content.decode()
    assert "Nothing waits for you." in page
    assert "0 waiting" in page
    decide(rana, question(here), "reject", "no")
    assert "1 rejected" in rana.get("/").content.decode()


def test_a_hundred_rows_a_page(here: World, rana: Client) -> None:
    with patch("approvals.review.inbox.PAGE", 3):
        ids = {question(here, amount=100 + number) for number in range(7)}
        seen: list[str] = []
        address = "/"
        for _ in range(3):
            page = rana.get(address).content.decode()
            seen += [part.split("/")[0] for part in page.split('href="/actions/')[1:]]
            if "?after=" not in page:
                break
            address = "/?after=" + page.split("?after=")[1].split('"')[0]
    assert sorted(seen) == sorted(map(str, ids))
    assert rana.get("/?after=nonsense").status_code == 200
