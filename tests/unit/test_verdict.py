"""The verdict on an unknown outcome, by table and by property: values in, a value out."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.providers.base import Capabilities, ReceiptData
from ledger.states import Allowance, AttemptOutcome
from ledger.verdict import AttemptFact, Facts, Finding, LookUpFact, judge, key_protects_until

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
KEYS = Capabilities(key_retention=24 * HOUR, detects_mismatch=True, look_up="by_key")
BOUNDS = Capabilities(
    key_retention=None, look_up="by_key", processing_bound=5 * MINUTE, visibility_bound=MINUTE
)
NOTHING = Capabilities(key_retention=None, look_up="none")
FOUND = ReceiptData(reference="re_1", amount=4_900, currency="usd", provider_status="succeeded", created=1)

FAILED = ReceiptData(reference="re_9", amount=4_900, currency="usd", provider_status="failed", created=1)


def attempt(
    number: int = 1, outcome: AttemptOutcome = AttemptOutcome.UNKNOWN, ends: timedelta = MINUTE
) -> AttemptFact:
    return AttemptFact(number=number, outcome=outcome, lease_until=START + ends)


def look(
    at: timedelta, number: int = 1, *, complete: bool = True, matches: tuple[ReceiptData, ...] = ()
) -> LookUpFact:
    return LookUpFact(attempt_number=number, asked_at=START + at, complete=complete, matches=matches)


def facts(**more: Any) -> Facts:
    values: dict[str, Any] = {
        "amount": 4_900,
        "currency": "usd",
        "attempts": [attempt()],
        "look_ups": [],
        "receipts": [],
        "first_dispatched_at": START,
        "execute_before": START + 100 * HOUR,
        "recovery_refused": "",
    }
    return Facts(**values | more)


CASES = [
    # what is known, what the provider promises, when -> finding, reason
    ("nothing asked yet", facts(), KEYS, MINUTE, Finding.WAIT, "no_complete_look_up_yet"),
    (
        "an incomplete look-up is no look-up",  # R-D3
        facts(look_ups=[look(2 * MINUTE, complete=False)]),
        KEYS,
        3 * MINUTE,
        Finding.WAIT,
        "no_complete_look_up_yet",
    ),
    (
        "found by our key",  # R-D5
        facts(look_ups=[look(2 * MINUTE, matches=(FOUND,))]),
        NOTHING,
        3 * MINUTE,
        Finding.HAPPENED,
        "found_by_key",
    ),
    (
        "found even by a look-up that broke off later",
        facts(look_ups=[look(2 * MINUTE, complete=False, matches=(FOUND,))]),
        KEYS,
        3 * MINUTE,
        Finding.HAPPENED,
        "found_by_key",
    ),
    (
        "a receipt on our attempt",
        facts(receipts=[FOUND]),
        KEYS,
        MINUTE,
        Finding.HAPPENED,
        "receipt_on_attempt",
    ),
    (
        "ours, but another amount",
        facts(amount=1, look_ups=[look(2 * MINUTE, matches=(FOUND,))]),
        KEYS,
        3 * MINUTE,
        Finding.PERSON,
        "found_with_other_amount",
    ),
    (
        "not found, the key still protects",  # R-D1
        facts(look_ups=[look(2 * MINUTE)]),
        KEYS,
        3 * MINUTE,
        Finding.MAY_RESEND,
        "provider_guarantee",
    ),
    (
        "not found, the key's retention is nearly over",  # R-D4
        facts(look_ups=[look(23 * HOUR)]),
        KEYS,
        23 * HOUR,
        Finding.PERSON,
        "key_retention_passed",
    ),
    (
        "not found, the authorization has run out",
        facts(look_ups=[look(2 * MINUTE)], execute_before=START + MINUTE),
        KEYS,
        3 * MINUTE,
        Finding.PERSON,
        "authorization_expired",
    ),
    (
        "not found, a guard refused another attempt",
        facts(look_ups=[look(2 * MINUTE)], recovery_refused="reviewer_gone"),
        KEYS,
        3 * MINUTE,
        Finding.PERSON,
        "recovery_refused",
    ),
    (
        "a look-up from before a second attempt settles nothing",
        facts(attempts=[attempt(1), attempt(2)], look_ups=[look(MINUTE, number=1)]),
        KEYS,
        3 * MINUTE,
        Finding.WAIT,
        "no_complete_look_up_yet",
    ),
    (
        "inside the bounds not found means nothing",  # R-D3
        facts(look_ups=[look(6 * MINUTE)]),
        BOUNDS,
        6 * MINUTE,
        Finding.WAIT,
        "inside_the_providers_bounds",
    ),
    (
        "the bounds count from the lease's end, exclusively",
        facts(look_ups=[look(7 * MINUTE)]),
        BOUNDS,
        7 * MINUTE,
        Finding.WAIT,
        "inside_the_providers_bounds",
    ),
    (
        "asked after the bounds: it did not happen",
        facts(look_ups=[look(7 * MINUTE + timedelta(microseconds=1))]),
        BOUNDS,
        8 * MINUTE,
        Finding.MAY_RESEND,
        "confirmed_not_executed",
    ),
    (
        "it did not happen, and may not any more",
        facts(look_ups=[look(8 * MINUTE)], execute_before=START),
        BOUNDS,
        9 * MINUTE,
        Finding.NOT_EXECUTED,
        "confirmed_not_executed",
    ),
    (
        "every attempt provably never began",
        facts(attempts=[attempt(outcome=AttemptOutcome.NOT_ACCEPTED)]),
        NOTHING,
        MINUTE,
        Finding.MAY_RESEND,
        "confirmed_not_executed",
    ),
    (
        "no attempt and no look-up prove nothing",
        facts(attempts=[]),
        KEYS,
        MINUTE,
        Finding.WAIT,
        "no_complete_look_up_yet",
    ),
    (
        "our key was seen and is not found: a person looks",
        facts(attempts=[], look_ups=[look(MINUTE, number=0)]),
        KEYS,
        HOUR,
        Finding.PERSON,
        "seen_and_not_found",
    ),
    (
        "accepted, under a reference that is not ours",
        facts(attempts=[attempt(outcome=AttemptOutcome.ACCEPTED)], look_ups=[look(MINUTE)]),
        KEYS,
        HOUR,
        Finding.PERSON,
        "accepted_without_a_receipt",
    ),
    (
        "a late definite no is not sent again",
        facts(attempts=[attempt(outcome=AttemptOutcome.REFUSED)]),
        KEYS,
        HOUR,
        Finding.NOT_EXECUTED,
        "confirmed_not_executed",
    ),
    (
        "taken in and failed at the provider",
        facts(look_ups=[look(MINUTE, matches=(FAILED,))]),
        KEYS,
        HOUR,
        Finding.PERSON,
        "failed_at_the_provider",
    ),
    (
        "without keys, bounds or look-up only a person can say",  # R-C8
        facts(look_ups=[look(50 * HOUR)]),
        NOTHING,
        60 * HOUR,
        Finding.PERSON,
        "not_found_is_inconclusive",
    ),
]


@pytest.mark.parametrize(
    ("known", "promises", "at", "finding", "reason"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_the_table(
    known: Facts, promises: Capabilities, at: timedelta, finding: Finding, reason: str
) -> None:
    verdict = judge(known, promises, START + at)
    assert (verdict.finding, verdict.reason) == (finding, reason)


def test_two_references_under_our_key_are_named() -> None:  # R-D8
    other = ReceiptData(
        reference="re_2", amount=4_900, currency="usd", provider_status="succeeded", created=2
    )
    verdict = judge(facts(look_ups=[look(MINUTE, matches=(other, FOUND))]), KEYS, START + HOUR)
    assert verdict.receipt == FOUND
    assert verdict.duplicates == (other,)


minutes = st.integers(min_value=0, max_value=60 * 72).map(lambda n: n * MINUTE)
promises = st.builds(
    Capabilities,
    key_retention=st.none() | st.just(24 * HOUR),
    detects_mismatch=st.booleans(),
    look_up=st.sampled_from(["by_key", "none"]),
    processing_bound=st.none() | st.just(5 * MINUTE),
    visibility_bound=st.none() | st.just(MINUTE),
)
look_ups = st.lists(st.builds(look, minutes, st.integers(1, 3), complete=st.booleans()), max_size=4)
attempt_lists = st.lists(
    st.builds(attempt, st.integers(1, 3), st.sampled_from(list(AttemptOutcome)), minutes),
    min_size=1,
    max_size=3,
)


@given(promises, attempt_lists, look_ups, minutes, st.booleans(), st.sampled_from(["", "a_guard"]))
def test_nothing_is_sent_again_without_a_ground(
    capabilities: Capabilities,
    attempts: list[AttemptFact],
    asked: list[LookUpFact],
    at: timedelta,
    in_force: bool,
    refused: str,
) -> None:  # R-D1
    now = START + at
    known = facts(
        attempts=attempts,
        look_ups=asked,
        execute_before=now + HOUR if in_force else now,
        recovery_refused=refused,
    )
    verdict = judge(known, capabilities, now)
    open_ = [one for one in attempts if one.outcome in {AttemptOutcome.PENDING, AttemptOutcome.UNKNOWN}]
    if verdict.finding is Finding.MAY_RESEND:
        assert in_force
        assert not refused
        if verdict.ground is Allowance.PROVIDER_GUARANTEE:
            until = key_protects_until(known, capabilities)
            assert until is not None
            assert now < until
        else:
            assert verdict.ground is Allowance.CONFIRMED_NOT_EXECUTED
            assert AttemptOutcome.ACCEPTED not in {one.outcome for one in attempts}
            assert not open_ or any(
                one.complete and one.asked_at > max(late.lease_until for late in open_) + 6 * MINUTE
                for one in asked
            )
    if verdict.finding in {Finding.HAPPENED}:
        raise AssertionError("nothing was ever found")
    if verdict.finding is Finding.NOT_EXECUTED:
        assert not open_ or (capabilities.processing_bound and capabilities.visibility_bound)
