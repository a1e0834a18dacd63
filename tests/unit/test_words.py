"""What the pages say of a state: every state and every event has words, and facts stand in the right column."""

import re
from pathlib import Path

import pytest

from approvals.audit import words as entry_words
from approvals.models.actions import ActionStatus
from approvals.review import words
from ledger.states import FINAL, HAPPENED, Allowance, AttemptOutcome, OperationState

ROOT = Path(__file__).resolve().parents[2]
OF_NO_ACTION = {"agent", "member", "policy", "tenant"}


def events() -> set[str]:
    """Every event of an action that the code writes into the journal."""
    found = set()
    for path in [*(ROOT / "approvals").rglob("*.py"), *(ROOT / "ledger").rglob("*.py")]:
        if "audit" in path.parts or "migrations" in path.parts:
            continue
        found |= set(re.findall(r'"((?:action|vote|operation|case)\.[a-z_]+)"', path.read_text()))
    return found


@pytest.mark.parametrize("event", sorted(events()))
def test_every_event_of_an_action_has_a_sentence(event: str) -> None:
    assert event in entry_words.SENTENCES
    assert entry_words.sentence(event, {})  # an empty payload is no accident of the page
    assert "erased" in entry_words.sentence(event, None)


def test_an_event_without_words_is_still_named() -> None:
    assert entry_words.sentence("case.escalated_twice", {}) == "Case escalated twice"


def test_every_state_has_a_mark_a_word_and_a_sentence() -> None:
    assert set(words.ACTION_WORDS) == {str(one) for one in ActionStatus}
    assert set(words.EFFECT_WORDS) == set(words.EFFECT_SENTENCES) == {str(one) for one in OperationState}
    assert set(words.ALLOWANCE_SENTENCES) == {str(one) for one in Allowance}
    assert set(words.ATTEMPT_WORDS) == {str(one) for one in AttemptOutcome}


def test_only_what_happened_is_marked_as_good() -> None:
    good = {state for state, word in words.EFFECT_WORDS.items() if word.tone == "ok"}
    assert good == {str(state) for state in HAPPENED}
    waiting = {state for state, word in words.EFFECT_WORDS.items() if word.tone == "wait"}
    assert not waiting & {str(state) for state in FINAL}


def test_an_unknown_outcome_is_said_plainly() -> None:
    assert words.EFFECT_SENTENCES["outcome_unknown"] == (
        "We sent it and got no answer. We are asking the provider. Do not send it again by hand."
    )


def test_nobody_is_blamed_and_nothing_is_shouted() -> None:
    said = " ".join(
        [
            *words.EFFECT_SENTENCES.values(),
            *words.ALLOWANCE_SENTENCES.values(),
            *(entry_words.sentence(event, {}) for event in events()),
        ]
    )
    assert "!" not in said
    assert not re.search(r"success|sorry|oops|fail|error", said, re.IGNORECASE)


@pytest.mark.parametrize(
    ("verdict", "by_type", "names", "sentence"),
    [
        ("approved", "reviewer", ["rana"], "rana approved this"),
        ("approved", "reviewer", ["rana", "omar"], "rana and omar approved this"),
        ("approved", "policy", ["small refunds"], "The policy approved this"),
        ("rejected", "system", [], "The system rejected this"),
        ("cancelled", "agent", ["support-bot"], "The agent support-bot took this back"),
        ("expired", "system", [], "The time for deciding ran out"),
        ("superseded", "agent", ["support-bot"], "A newer revision replaced this"),
    ],
)
def test_who_settled_it_in_neutral_words(verdict: str, by_type: str, names: list[str], sentence: str) -> None:
    assert words.verdict_sentence(verdict, by_type, names) == sentence  # K29


def test_a_refusal_stands_as_asked_approved_and_now() -> None:  # R-C5
    detail = {
        "requested": {
            "code": "amount_exceeds_refundable",
            "amount": 4_900,
            "currency": "usd",
            "payment": "pi_1",
        },
        "now": {"refundable": 3_000, "refunded": 9_000, "currency": "usd"},
    }
    record = {"amount": 12_000, "refunded": 0, "currency": "usd", "status": "succeeded", "disputed": False}
    lines = {line.name: line for line in words.differences(detail, currency="usd", record=record)}
    assert set(lines) == {"Refundable", "Refunded"}  # an equal currency says nothing
    refundable = lines["Refundable"]
    assert (refundable.asked, refundable.approved, refundable.now) == (
        "at least 49.00 USD",
        "120.00 USD",
        "30.00 USD",
    )
    assert refundable.differs
    assert lines["Refunded"].differs


def test_the_moment_is_held_against_the_limit_that_was_approved() -> None:
    detail = {"approved": {"execute_before": "12:00"}, "now": {"time": "12:01"}}
    (line,) = words.differences(detail)
    assert (line.name, line.approved, line.now, line.differs) == ("Had to start by", "12:00", "12:01", True)


def test_a_refusal_without_facts_has_no_table() -> None:
    assert words.differences({}) == ()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "yes"),
        (False, "no"),
        (7, "7"),
        (["a", True], "a, yes"),
        ({"run_id": "r"}, "Run id r"),
    ],
)
def test_a_plain_fact_as_text(value: object, text: str) -> None:
    assert words.say(value) == text
