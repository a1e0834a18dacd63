"""Policies: parsed strictly, evaluated purely."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"roles": [{}]}, "roles"),
        ({"roles": "admin"}, "roles"),
        ({1: 2}, "unknown members: 1"),
        ({"when": {"currency": "us"}}, "ISO 4217"),
        ({"when": {"currency": "zzz"}}, "ISO 4217"),
        ({"when": {"currency": None}}, "ISO 4217"),
        ({"when": {"min_amount": 2, "max_amount": 1}}, "matches nothing"),
        ({"when": {"max_amount": 1.0}}, "whole number"),
        ({"when": {"max_share": 0}}, "whole number"),
        ({"when": {"max_share": 50}, "needs_observation": False}, "looks at the record"),
        ({"needs_observation": 1}, "true or false"),
        ({"outcome": ["allow"]}, "allow, deny or review"),
        ({"outcome": None}, "allow, deny or review"),
        ({"name": ""}, "name"),
    ],
)
def test_bad_rules_say_what_is_wrong(rule: dict[Any, Any], words: str) -> None:
    with pytest.raises(PolicyError, match=words):
        parse({"rules": [{"name": "a", "outcome": "allow"} | rule]})


def test_a_rule_that_cannot_be_evaluated_asks_an_admin_and_never_allows() -> None:
    document = {"rules": [{"name": "all", "when": {"max_amount": 5}, "outcome": "allow"}]}
    broken = Facts(amount="4900", currency="usd", payment_amount=1)  # type: ignore[arg-type]
    verdict = evaluate(parse(document), broken)
    assert (verdict.outcome, verdict.roles, verdict.rule) == (Outcome.REVIEW, ("admin",), "all")


@given(
    st.lists(
        st.fixed_dictionaries(
            {"outcome": st.sampled_from(["deny", "review"]), "reason": st.just("because")},
            optional={
                "when": st.fixed_dictionaries(
                    {},
                    optional={"currency": st.sampled_from(["usd", "JPY"]), "max_share": st.integers(1, 100)},
                )
            },
        ),
        max_size=4,
    ),
    st.one_of(st.none(), st.integers(0, 10**9)),
    st.sampled_from(["usd", "jpy", "eur"]),
    st.one_of(st.none(), st.integers(0, 10**9)),
)
def test_nothing_is_allowed_that_no_rule_allows(
    bodies: list[dict[str, Any]], amount: int | None, currency: str, payment: int | None
) -> None:
    ruleset = parse({"rules": [body | {"name": f"r{n}"} for n, body in enumerate(bodies)]})
    verdict = evaluate(ruleset, facts(amount, currency, payment))
    assert verdict.outcome is not Outcome.ALLOW
    assert verdict.as_json()["outcome"] in {"deny", "review"}
