"""Policies: parsed strictly, evaluated purely."""

from typing import Any

import pytest

from approvals.policy.rules import Facts, Outcome, PolicyError, evaluate, parse
from tests.policies import DOCUMENT


def facts(amount: int | None = 4_900, currency: str = "usd", payment: int | None = None) -> Facts:
    return Facts(amount=amount, currency=currency, payment_amount=payment)


@pytest.mark.parametrize(
    ("amount", "currency", "outcome", "rule"),
    [
        (1_000, "usd", Outcome.ALLOW, "small change"),
        (1_001, "usd", Outcome.REVIEW, "refunds up to 500"),
        (50_000, "usd", Outcome.REVIEW, "refunds up to 500"),
        (50_001, "usd", Outcome.DENY, "too large"),
        (1, "eur", Outcome.DENY, ""),  # no match denies
    ],
)
def test_the_first_match_wins(amount: int, currency: str, outcome: Outcome, rule: str) -> None:  # R-B8
    verdict = evaluate(parse(DOCUMENT), facts(amount, currency, payment=100_000))
    assert (verdict.outcome, verdict.rule) == (outcome, rule)


def test_an_allowing_rule_waits_for_the_providers_record() -> None:
    early = evaluate(parse(DOCUMENT), facts(1_000))
    assert (early.outcome, early.needs_observation) == (Outcome.REVIEW, True)


def test_a_share_of_the_payment_needs_the_record() -> None:
    share = {"rules": [{"name": "half", "when": {"max_share": 50}, "outcome": "allow"}]}
    assert evaluate(parse(share), facts(50)).outcome is Outcome.REVIEW
    assert evaluate(parse(share), facts(50, payment=100)).outcome is Outcome.ALLOW
    assert evaluate(parse(share), facts(51, payment=100)).outcome is Outcome.DENY


def test_an_amount_that_is_unknown_matches_no_ceiling() -> None:
    assert evaluate(parse(DOCUMENT), facts(None, payment=1)).outcome is Outcome.DENY


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ([], "must be an object"),
        ({"rules": {}}, "rules must be a list"),
        ({"rules": [], "colour": 1}, "unknown members: colour"),
        ({"rules": [{"name": "a", "outcome": "maybe"}]}, "allow, deny or review"),
        ({"rules": [{"name": "a", "outcome": "deny"}]}, "must say why"),
        ({"rules": [{"name": "a", "outcome": "allow", "when": {"max_amount": True}}]}, "whole number"),
        ({"rules": [{"name": "a", "outcome": "allow", "when": {"python": "1"}}]}, "unknown members: python"),
        ({"rules": [{"name": "a", "outcome": "review", "quorum": 0}]}, "quorum"),
        ({"rules": [{"name": "a", "outcome": "review", "roles": ["agent"]}]}, "roles"),
        ({"rules": [{"name": "a", "outcome": "allow"}, {"name": "a", "outcome": "allow"}]}, "same name"),
        ({"rules": [], "expires_in": 1}, "expires_in"),
    ],
)
def test_bad_documents_say_what_is_wrong(document: Any, words: str) -> None:
    with pytest.raises(PolicyError, match=words):
        parse(document)
