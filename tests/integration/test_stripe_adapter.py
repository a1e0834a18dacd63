"""The Stripe adapter against the sandbox, a process of its own; judged by its books. (R-G1, R-G3)"""

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from ledger.providers.base import Answer, Call, EffectRequest, Outcome, ProviderUnavailableError
from ledger.providers.stripe import StripeAdapter
from tests.sandbox_process import ACCOUNT, Sandbox, sandbox, wait_until
from tests.stripe_objects import OPERATION_KEY, adapter
from tests.stripe_objects import request as any_request
from tests.transport_calls import in_time, join_transport_threads

CALL = Call(deadline=20.0)
SHORT = Call(deadline=0.5)
DAY = 24 * 3600


@pytest.fixture(scope="module")
def provider() -> Iterator[Sandbox]:
    with sandbox() as running:
        yield running


@pytest.fixture
def books(provider: Sandbox) -> Sandbox:
    provider.reset()
    return provider


@pytest.fixture
def ours(books: Sandbox) -> StripeAdapter:
    return adapter(books.url, ACCOUNT)


@pytest.fixture
def pay(books: Sandbox) -> str:
    [payment] = books.seed({"name": "Dana Fox"})
    return payment


def key_for(payment: str) -> str:
    """A key of each test's own: a slow answer of an earlier test may still hold its key at the provider."""
    return hashlib.sha256(payment.encode()).hexdigest()[:32]


def request(*, payment: str, **parameters: Any) -> EffectRequest:
    """A refund of 49.00 USD on a payment of the books."""
    return replace(any_request(payment=payment, **parameters), provider_key=key_for(payment))


def refunds(books: Sandbox, payment: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = books.payment(payment)["refunds"]
    return found


def other(asked: EffectRequest, number: int = 1) -> EffectRequest:
    """The same refund as another operation."""
    return replace(asked, operation_key=f"{OPERATION_KEY}#{number}", provider_key=f"{number:032x}")


def test_a_refund_happens_once_and_its_receipt_comes_back(
    books: Sandbox, ours: StripeAdapter, pay: str
) -> None:
    asked = request(payment=pay, reason="requested_by_customer")
    first, again = ours.perform(asked, CALL), ours.perform(asked, CALL)
    assert first.outcome is again.outcome is Outcome.ACCEPTED
    assert first.receipt is not None
    assert first.receipt == again.receipt
    assert (first.receipt.amount, first.receipt.currency) == (4900, "usd")
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    [booked] = refunds(books, pay)
    assert (booked["id"], booked["amount"]) == (first.receipt.reference, 4900)
    assert booked["metadata"] == {"operation_key": OPERATION_KEY}


@pytest.mark.parametrize(
    ("currency", "total", "amount", "booked"),
    [
        ("jpy", 20000, 9899, 9899),
        ("kwd", 50000, 5120, 5120),
        ("isk", 500000, 500, 50000),
        ("mga", 900, 12300, 123),
    ],
)
def test_currencies_of_all_exponents_are_refunded_exactly(  # K58
    books: Sandbox, ours: StripeAdapter, currency: str, total: int, amount: int, booked: int
) -> None:
    [payment] = books.seed({"amount": total, "currency": currency})
    asked = request(payment=payment, amount=amount, currency=currency)
    before = ours.observe(asked, CALL)
    found = ours.perform(asked, CALL)
    assert found.receipt is not None
    assert found.receipt.amount == amount
    assert refunds(books, payment)[0]["amount"] == booked
    after = ours.observe(asked, CALL)
    assert (before.refunded, after.refunded) == (0, amount)
    assert before.amount == after.amount


def test_a_payment_is_observed_as_the_books_have_it(books: Sandbox, ours: StripeAdapter, pay: str) -> None:
    asked = request(payment=pay)
    ours.perform(asked, CALL)
    books.dispute(pay)
    found = ours.observe(asked, CALL)
    assert (found.id, found.amount, found.refunded, found.currency) == (pay, 100_000, 4900, "usd")
    assert (found.status, found.disputed, found.missing) == ("succeeded", True, False)
    assert (found.recipient, found.instrument) == ("Dana Fox", "visa ···· 4242")
    assert [(refund.amount, refund.operation_key) for refund in found.refunds] == [(4900, OPERATION_KEY)]


def test_a_charge_is_the_same_payment(books: Sandbox, ours: StripeAdapter, pay: str) -> None:
    charge = books.payment(pay)["charge"]
    asked = request(payment=charge)
    assert ours.perform(asked, CALL).outcome is Outcome.ACCEPTED
    found = ours.observe(asked, CALL)
    assert (found.id, found.refunded, found.recipient) == (charge, 4900, "Dana Fox")
    assert ours.look_up(asked, CALL).matches[0].reference == refunds(books, pay)[0]["id"]


def test_all_pages_are_read(books: Sandbox, ours: StripeAdapter, pay: str) -> None:
    asked = request(payment=pay, amount=10)
    ours.perform(asked, CALL)
    for number in range(104):
        assert ours.perform(other(asked, number), CALL).outcome is Outcome.ACCEPTED
    before = books.calls("refund.list")
    assert len(ours.observe(asked, CALL).refunds) == 105
    assert books.calls("refund.list") == before + 2
    # ours is the oldest, so it lies on the last page
    found = ours.look_up(asked, CALL)
    assert found.complete
    assert [match.amount for match in found.matches] == [10]


def test_an_account_sees_its_own_payments_only(books: Sandbox, ours: StripeAdapter, pay: str) -> None:
    foreign = adapter(books.url, "sk_test_globex")
    assert foreign.observe(request(payment=pay), CALL).missing
    assert foreign.perform(request(payment=pay), CALL).reason == "resource_missing"
    assert refunds(books, pay) == []
    assert ours.observe(request(payment="pi_unknown"), CALL).missing


# -- definite refusals ------------------------------------------------------------------------------------


def refused(answer: Answer) -> str:
    assert answer.outcome is Outcome.REFUSED
    return answer.reason


def test_what_the_provider_refuses_is_refused(books: Sandbox, ours: StripeAdapter, pay: str) -> None:
    asked = request(payment=pay, amount=100_001)
    assert refused(ours.perform(asked, CALL)) == "invalid_request_error"
    assert refused(ours.perform(asked, CALL)) == "invalid_request_error"  # replayed, and still a no
    assert refused(ours.perform(other(request(payment="pi_unknown")), CALL)) == "resource_missing"
    ours.perform(other(request(payment=pay, amount=100_000), 2), CALL)
    assert refused(ours.perform(other(request(payment=pay), 3), CALL)) == "charge_already_refunded"
    [disputed] = books.seed()
    books.dispute(disputed)
    assert refused(ours.perform(other(request(payment=disputed), 4), CALL)) == "charge_disputed"
    assert [refund["amount"] for refund in refunds(books, pay)] == [100_000]


def test_another_request_under_our_key_is_not_a_refusal(
    books: Sandbox, ours: StripeAdapter, pay: str
) -> None:
    ours.perform(request(payment=pay), CALL)
    found = ours.perform(request(payment=pay, amount=5000), CALL)
    assert (found.outcome, found.reason) == (Outcome.UNKNOWN, "idempotency_mismatch")
    assert len(refunds(books, pay)) == 1


@pytest.mark.parametrize(
    ("code", "outcome", "reason"),
    [
        ("card_declined", Outcome.REFUSED, "card_declined"),
        ("charge_disputed", Outcome.REFUSED, "charge_disputed"),
        ("rate_limit", Outcome.NOT_ACCEPTED, "rate_limited"),
        ("api_key_expired", Outcome.NOT_ACCEPTED, "unauthorized"),
        ("idempotency_key_in_use", Outcome.UNKNOWN, "key_in_use"),
        ("lock_timeout", Outcome.UNKNOWN, "lock_timeout"),
    ],
)
def test_an_armed_refusal_is_told_for_what_it_is(
    books: Sandbox, ours: StripeAdapter, pay: str, code: str, outcome: Outcome, reason: str
) -> None:
    books.fault("refund.create", "refuse", code=code)
    found = ours.perform(request(payment=pay), CALL)
    assert (found.outcome, found.reason) == (outcome, reason)
    assert refunds(books, pay) == []


# -- faults ------------------------------------------------------------------------------------------------

DONE_BUT_UNTOLD: list[tuple[str, dict[str, Any], str]] = [
    ("lose_ack", {}, "connection_lost"),
    ("error_after", {}, "http_500"),
    ("truncate", {}, "truncated"),
    ("slow", {"seconds": 3}, "timeout"),
    ("drip", {"seconds": 3600}, "timeout"),
]


@pytest.mark.parametrize(("fault", "more", "reason"), DONE_BUT_UNTOLD)
def test_done_without_an_answer_is_unknown_and_found_by_our_key(
    books: Sandbox, ours: StripeAdapter, pay: str, fault: str, more: dict[str, Any], reason: str
) -> None:
    books.fault("refund.create", fault, **more)
    asked = request(payment=pay)
    with in_time(0.5):
        found = ours.perform(asked, SHORT)
    assert (found.outcome, found.reason, found.receipt) == (Outcome.UNKNOWN, reason, None)
    assert books.calls("refund.create") == 1
    looked = ours.look_up(asked, CALL)
    [booked] = refunds(books, pay)
    assert [match.reference for match in looked.matches] == [booked["id"]]


def test_a_replayed_500_stays_unknown(books: Sandbox, ours: StripeAdapter, pay: str) -> None:
    books.fault("refund.create", "error_after")
    asked = request(payment=pay)
    ours.perform(asked, CALL)
    found = ours.perform(asked, CALL)
    assert (found.outcome, found.reason) == (Outcome.UNKNOWN, "http_500")
    assert found.headers["idempotent-replayed"] == "true"
    assert len(refunds(books, pay)) == 1


def test_not_done_and_a_503_is_unknown_as_well(books: Sandbox, ours: StripeAdapter, pay: str) -> None:
    books.fault("refund.create", "error_before")
    found = ours.perform(request(payment=pay), CALL)
    assert (found.outcome, found.reason) == (Outcome.UNKNOWN, "http_503")
    assert refunds(books, pay) == []


def test_an_effect_that_lands_late_is_unknown_until_it_is_found(
    books: Sandbox, ours: StripeAdapter, pay: str
) -> None:
    books.fault("refund.create", "delay_commit", seconds=600)
    asked = request(payment=pay)
    with in_time(0.5):
        assert ours.perform(asked, SHORT).reason == "timeout"
    absent = ours.look_up(asked, CALL)
    assert (absent.complete, absent.matches) == (True, ())
    in_use = ours.perform(asked, CALL)
    assert (in_use.outcome, in_use.reason) == (Outcome.UNKNOWN, "key_in_use")
    books.advance(600)
    assert len(ours.look_up(asked, CALL).matches) == 1
    assert len(refunds(books, pay)) == 1


def test_a_request_delivered_twice_is_one_refund(books: Sandbox, ours: StripeAdapter, pay: str) -> None:
    books.fault("refund.create", "duplicate_delivery")
    found = ours.perform(request(payment=pay), CALL)
    assert found.outcome is Outcome.ACCEPTED
    assert len(refunds(books, pay)) == 1


def test_a_refund_hidden_from_the_list_still_counts(books: Sandbox, ours: StripeAdapter, pay: str) -> None:
    books.fault("refund.create", "hide_from_list", seconds=600)
    asked = request(payment=pay)
    ours.perform(asked, CALL)
    assert ours.look_up(asked, CALL).matches == ()
    found = ours.observe(asked, CALL)
    assert (found.refunds, found.refunded) == ((), 4900)
    books.advance(601)
    assert len(ours.look_up(asked, CALL).matches) == 1


def test_after_the_retention_the_key_protects_no_more(books: Sandbox, ours: StripeAdapter, pay: str) -> None:
    """What the capability says is what the provider does: the ledger must not rely on it longer. (R-D4)"""
    asked = request(payment=pay)
    ours.perform(asked, CALL)
    retention = ours.capabilities.key_retention
    assert retention is not None
    assert retention.total_seconds() == DAY
    books.advance(DAY - ours.capabilities.key_retention_margin.total_seconds())
    ours.perform(asked, CALL)
    assert len(refunds(books, pay)) == 1
    books.advance(DAY)
    ours.perform(asked, CALL)
    assert len(refunds(books, pay)) == 2


@pytest.mark.parametrize(
    ("on", "fault", "more", "reason"),
    [
        ("payment.retrieve", "lose_ack", {}, "connection_lost"),
        ("payment.retrieve", "error_before", {}, "http_503"),
        ("payment.retrieve", "truncate", {}, "truncated"),
        ("payment.retrieve", "drip", {"seconds": 3600}, "timeout"),
        ("payment.retrieve", "refuse", {"code": "rate_limit"}, "rate_limited"),
        ("refund.list", "lose_ack", {}, "connection_lost"),
        ("refund.list", "error_after", {}, "http_500"),
        ("refund.list", "truncate", {}, "truncated"),
        ("refund.list", "slow", {"seconds": 3}, "timeout"),
    ],
)
def test_a_read_that_fails_says_so(
    books: Sandbox, ours: StripeAdapter, pay: str, on: str, fault: str, more: dict[str, Any], reason: str
) -> None:
    books.fault(on, fault, times=2, **more)
    with in_time(0.5), pytest.raises(ProviderUnavailableError) as caught:
        ours.observe(request(payment=pay), SHORT)
    assert caught.value.reason == reason
    if on == "refund.list":
        with in_time(0.5):
            found = ours.look_up(request(payment=pay), SHORT)
        assert (found.complete, found.reason) == (False, reason)


def test_a_provider_that_is_down_has_not_accepted(tmp_path: Any) -> None:
    with sandbox(tmp_path) as running:
        [payment] = running.seed()
        ours = adapter(running.url, ACCOUNT)
        running.kill()
        found = ours.perform(request(payment=payment), CALL)
        assert (found.outcome, found.reason) == (Outcome.NOT_ACCEPTED, "connect_failed")
        running.start()
        assert ours.perform(request(payment=payment), CALL).outcome is Outcome.ACCEPTED
        assert len(refunds(running, payment)) == 1


def test_a_provider_that_dies_while_it_answers_is_unknown(tmp_path: Any) -> None:
    with sandbox(tmp_path) as running:
        [payment] = running.seed()
        running.fault("refund.create", "slow", seconds=60)
        ours, answers = adapter(running.url, ACCOUNT), []
        thread = threading.Thread(target=lambda: answers.append(ours.perform(request(payment=payment), CALL)))
        thread.start()
        wait_until(lambda: refunds(running, payment), what="the refund")
        running.kill()
        thread.join(30)
        assert [(answer.outcome, answer.reason) for answer in answers] == [
            (Outcome.UNKNOWN, "connection_lost")
        ]
        running.start()
        assert len(ours.look_up(request(payment=payment), CALL).matches) == 1


def test_eight_at_once_under_one_key_are_one_refund(books: Sandbox, ours: StripeAdapter, pay: str) -> None:
    answers: list[Answer] = []
    threads = [
        threading.Thread(target=lambda: answers.append(ours.perform(request(payment=pay), CALL)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert {answer.outcome for answer in answers} <= {Outcome.ACCEPTED, Outcome.UNKNOWN}
    assert {answer.reason for answer in answers} <= {"ok", "key_in_use"}
    assert len({answer.receipt.reference for answer in answers if answer.receipt}) == 1
    assert len(refunds(books, pay)) == 1
    assert len(answers) == 8
    join_transport_threads()


def test_our_key_is_the_one_the_provider_saw(books: Sandbox, ours: StripeAdapter, pay: str) -> None:  # R-C1
    books.fault("refund.create", "delay_commit", seconds=600)
    ours.perform(request(payment=pay), SHORT)
    assert [row["key"] for row in books.books()["pending"]] == [key_for(pay)]
