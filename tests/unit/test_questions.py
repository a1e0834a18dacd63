"""The pure parts of a question: its title, its rule in words, what to look out for; and the waits of a back-off."""

from datetime import UTC, datetime

import pytest

from approvals import kinds, questions
from approvals.kinds.base import Title
from approvals.observation import next_wait
from approvals.refusals import AlreadyDecidedError, ExpiredError, SettledError
from ledger.providers.base import PaymentRecord

REFUND = kinds.version("refund", 1)
RECORD = PaymentRecord(id="pi_1", amount=10_000, currency="usd", status="succeeded", recipient="Dana Fox")
AT = datetime(2026, 5, 4, 12, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("title", "line"),
    [
        (Title(verb="Refund", amount=4_900, currency="usd", to="Dana Fox"), "Refund 49.00 USD to Dana Fox"),
        (Title(verb="Refund", amount=9_899, currency="jpy"), "Refund 9,899 JPY"),  # K58
        (Title(verb="Refund", amount=1_500, currency="kwd", to="x\u202ey"), "Refund 1.500 KWD to x\u202ey"),
    ],
)
def test_the_title_is_one_line_of_raw_text(title: Title, line: str) -> None:
    assert questions.title_text(title) == line


def test_the_rule_in_words() -> None:
    outcome = {"rule": "large refunds", "reason": "Above 500."}
    assert (
        questions.rule_text(outcome, 2, ("admin", "reviewer"))
        == "The rule “large refunds” asks 2 people with the role admin or reviewer. Above 500."
    )
    assert questions.rule_text({}, 1, ()) == "The policy asks 1 person with the role reviewer."


def warnings(reasoning: str = "", **parameters: str) -> tuple[str, ...]:
    """The warnings about a refund with these parameters."""
    given = {"payment": "pi_1", "amount": 4_900, "currency": "usd", **parameters}
    return questions.warnings(REFUND, given, REFUND.diff(given, RECORD), reasoning)


@pytest.mark.parametrize("character", ["\u202e", "\u2066", "\u200b", "\U000e0041", "\u3164"])
@pytest.mark.parametrize("field", ["note", "customer", "reasoning"])
def test_a_hidden_character_in_any_text_is_named(character: str, field: str) -> None:  # K51
    (warning,) = warnings(**{field: f"Dana{character}Fox"})
    assert f"U+{ord(character):04X}" in warning


def test_a_look_alike_in_the_payers_name_is_named() -> None:  # K51
    record = PaymentRecord(
        id="pi_1", amount=10_000, currency="usd", status="succeeded", recipient="D\u0430na Fox"
    )
    given = {"payment": "pi_1", "amount": 4_900, "currency": "usd"}
    assert len(questions.warnings(REFUND, given, REFUND.diff(given, record), "")) == 1


def test_plain_text_warns_of_nothing_and_consequences_are_told() -> None:
    assert warnings("charged twice", note="Zoë said so", customer="cus_7") == ()
    assert len(warnings(reason="fraudulent")) == 1


@pytest.mark.parametrize(
    ("waited", "seconds"),
    [(-5, 1), (0, 1), (0.9, 1), (1, 2), (3, 4), (7.5, 8), (31, 32), (62.9, 32), (63, 60), (1e9, 60)],
)
def test_waits_double_up_to_a_minute(waited: float, seconds: int) -> None:
    assert next_wait(waited) == seconds


@pytest.mark.parametrize(
    ("by_type", "names", "who"),
    [
        ("reviewer", ["rana", "omar"], "rana, omar"),
        ("policy", ["small change"], "the policy"),
        ("system", [], "the system"),
        ("agent", ["support-bot"], "support-bot"),
        ("agent", [], "the agent"),
    ],
)
def test_a_settled_one_says_who_and_when_in_neutral_words(
    by_type: str, names: list[str], who: str
) -> None:  # K29
    for error in (SettledError, AlreadyDecidedError):
        refusal = error(verdict="approved", by_type=by_type, by_names=names, decided_at=AT)
        assert refusal.message == f"This was approved by {who} at 2026-05-04 12:30:00 UTC."
        assert refusal.status == 409
    assert ExpiredError(AT).message == "The time for deciding ended at 2026-05-04 12:30:00 UTC."
