"""What Stripe's answers mean, as a table: accepted, not accepted, refused; all else is unknown (R-D1)."""

import json
from typing import Any

import pytest

from ledger.providers.base import KnownRefund, Outcome, ReceiptData
from ledger.providers.response import Response
from ledger.providers.stripe_answers import Asked, classify, payment_record, retry_after
from tests.stripe_objects import OPERATION_KEY, charge, error, intent, refund

ASKED = Asked(payment="pi_1", amount=4900, currency="usd", operation_key=OPERATION_KEY)
REPLAYED = {"idempotent-replayed": "true"}


def response(status: int, body: object, headers: dict[str, str] | None = None) -> Response:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Response(status=status, headers=headers or {}, body=raw)


CARD, IDEMPOTENCY, API = "card_error", "idempotency_error", "api_error"

TABLE: list[tuple[int, object, dict[str, str], Outcome, str]] = [
    # a receipt, whatever status the refund itself has
    (200, refund(), {}, Outcome.ACCEPTED, "ok"),
    (200, refund(), REPLAYED, Outcome.ACCEPTED, "ok"),
    (201, refund(), {}, Outcome.ACCEPTED, "ok"),
    (200, refund(status="pending"), {}, Outcome.ACCEPTED, "ok"),
    (200, refund(status="failed"), {}, Outcome.REFUSED, "refund_failed"),
    (200, refund(status="canceled"), {}, Outcome.REFUSED, "refund_canceled"),
    (200, refund(id="pyr_1"), {}, Outcome.ACCEPTED, "ok"),
    (200, refund(metadata={}), {}, Outcome.ACCEPTED, "ok"),
    # a receipt for something else
    (200, refund(amount=4901), {}, Outcome.UNKNOWN, "mismatched_receipt"),
    (200, refund(currency="eur"), {}, Outcome.UNKNOWN, "mismatched_receipt"),
    (200, refund(payment_intent="pi_2"), {}, Outcome.UNKNOWN, "mismatched_receipt"),
    (200, refund(payment_intent=None), {}, Outcome.UNKNOWN, "mismatched_receipt"),
    (200, refund(metadata={"operation_key": "other"}), {}, Outcome.UNKNOWN, "mismatched_receipt"),
    # not a receipt
    (200, b"", {}, Outcome.UNKNOWN, "malformed"),
    (200, b"OK", {}, Outcome.UNKNOWN, "malformed"),
    (200, b'{"id": "re_1", "amo', {}, Outcome.UNKNOWN, "malformed"),
    (200, b"\xff\xfe", {}, Outcome.UNKNOWN, "malformed"),
    (200, b"[" * 100_000, {}, Outcome.UNKNOWN, "malformed"),
    (200, [refund()], {}, Outcome.UNKNOWN, "malformed"),
    (200, {}, {}, Outcome.UNKNOWN, "malformed"),
    (200, error(), {}, Outcome.UNKNOWN, "malformed"),
    (200, refund(id="pi_1"), {}, Outcome.UNKNOWN, "malformed"),
    (200, refund(id=None), {}, Outcome.UNKNOWN, "malformed"),
    (200, refund(object="charge"), {}, Outcome.UNKNOWN, "malformed"),
    (200, refund(amount=4900.0), {}, Outcome.UNKNOWN, "malformed"),
    (200, refund(amount=True), {}, Outcome.UNKNOWN, "malformed"),
    (200, refund(amount="4900"), {}, Outcome.UNKNOWN, "malformed"),
    (200, refund(amount=-4900), {}, Outcome.UNKNOWN, "malformed"),
    (200, refund(currency="xyz"), {}, Outcome.UNKNOWN, "malformed"),
    (200, refund(status=None), {}, Outcome.UNKNOWN, "malformed"),
    (204, b"", {}, Outcome.UNKNOWN, "malformed"),
    # provably never taken in
    (401, error(), {}, Outcome.NOT_ACCEPTED, "unauthorized"),
    (429, error(code="rate_limit"), {}, Outcome.NOT_ACCEPTED, "rate_limited"),
    (429, error("rate_limit_error"), {}, Outcome.NOT_ACCEPTED, "rate_limited"),
    # but not in a voice other than Stripe's, nor as a replay, nor behind a lock
    (401, b"<html>", {}, Outcome.UNKNOWN, "http_401"),
    (429, b"slow down", {}, Outcome.UNKNOWN, "http_429"),
    (429, error(), REPLAYED, Outcome.UNKNOWN, "http_429"),
    (429, error(code="lock_timeout"), {}, Outcome.UNKNOWN, "lock_timeout"),
    # a definite no
    (400, error(code="charge_already_refunded"), {}, Outcome.REFUSED, "charge_already_refunded"),
    (400, error(code="charge_disputed"), {}, Outcome.REFUSED, "charge_disputed"),
    (400, error(), {}, Outcome.REFUSED, "invalid_request_error"),
    (400, error(code="charge_already_refunded"), REPLAYED, Outcome.REFUSED, "charge_already_refunded"),
    (402, error(CARD, "card_declined"), {}, Outcome.REFUSED, "card_declined"),
    (403, error(), {}, Outcome.REFUSED, "invalid_request_error"),
    (404, error(code="resource_missing"), {}, Outcome.REFUSED, "resource_missing"),
    (400, error(code="<script>"), {}, Outcome.REFUSED, "invalid_request_error"),
    # our key stands for something that is already there, or is on its way
    (400, error(IDEMPOTENCY), {}, Outcome.UNKNOWN, "idempotency_mismatch"),
    (409, error(IDEMPOTENCY), {}, Outcome.UNKNOWN, "key_in_use"),
    (409, error(code="idempotency_key_in_use"), {}, Outcome.UNKNOWN, "key_in_use"),
    (400, error(IDEMPOTENCY, "idempotency_key_in_use"), {}, Outcome.UNKNOWN, "key_in_use"),
    (409, error(code="lock_timeout"), {}, Outcome.UNKNOWN, "lock_timeout"),
    # a 4xx that proves nothing
    (400, error(API), {}, Outcome.UNKNOWN, "http_400"),
    (400, b"<html>Bad Request</html>", {}, Outcome.UNKNOWN, "http_400"),
    (400, {"error": "invalid_client"}, {}, Outcome.UNKNOWN, "http_400"),
    (400, {"error": []}, {}, Outcome.UNKNOWN, "http_400"),
    (400, {"error": {"message": "no"}}, {}, Outcome.UNKNOWN, "http_400"),
    (404, b"not found", {}, Outcome.UNKNOWN, "http_404"),
    (403, {"message": "Forbidden"}, {}, Outcome.UNKNOWN, "http_403"),
    (408, error(), {}, Outcome.UNKNOWN, "http_408"),
    (422, error(), {}, Outcome.UNKNOWN, "http_422"),
    (499, error(), {}, Outcome.UNKNOWN, "http_499"),
    # everything else, a replayed 500 included
    (500, error(API), {}, Outcome.UNKNOWN, "http_500"),
    (500, error(API), REPLAYED, Outcome.UNKNOWN, "http_500"),
    (500, refund(), {}, Outcome.UNKNOWN, "http_500"),
    (502, b"<html>", {}, Outcome.UNKNOWN, "http_502"),
    (503, error(API), {}, Outcome.UNKNOWN, "http_503"),
    (302, b"", {}, Outcome.UNKNOWN, "http_302"),
    (304, b"", {}, Outcome.UNKNOWN, "http_304"),
    (600, refund(), {}, Outcome.UNKNOWN, "http_600"),
]


@pytest.mark.parametrize(("status", "body", "headers", "outcome", "reason"), TABLE)
def test_what_an_answer_says_about_the_outcome(
    status: int, body: object, headers: dict[str, str], outcome: Outcome, reason: str
) -> None:
    answer = classify(ASKED, response(status, body, headers))
    assert (answer.outcome, answer.reason) == (outcome, reason)
    assert (answer.receipt is not None) == (outcome is Outcome.ACCEPTED)
    assert answer.status == status


@pytest.mark.parametrize("body", [b"", b"{}", b"null", b'{"error": null}', b"\x00"])
def test_no_status_without_stripes_own_words_is_certain(body: bytes) -> None:
    outcomes = {classify(ASKED, response(status, body)).outcome for status in range(200, 700)}
    assert outcomes == {Outcome.UNKNOWN}


def test_a_receipt_is_in_iso_minor_units() -> None:
    asked = Asked(payment="pi_1", amount=50000, currency="isk", operation_key=OPERATION_KEY)
    answer = classify(asked, response(200, refund(amount=50000, currency="isk", status="pending")))
    assert answer.receipt == ReceiptData(
        reference="re_1", amount=500, currency="isk", provider_status="pending", created=1_790_000_000
    )


def test_a_charge_is_matched_as_a_charge() -> None:
    asked = Asked(payment="ch_1", amount=4900, currency="USD", operation_key=OPERATION_KEY)
    assert classify(asked, response(200, refund(payment_intent=None))).outcome is Outcome.ACCEPTED
    assert classify(asked, response(200, refund(charge="ch_2"))).reason == "mismatched_receipt"


def test_the_exact_body_and_the_headers_that_are_evidence_are_kept() -> None:
    headers = {"request-id": "req_1", "idempotent-replayed": "true", "date": "x", "set-cookie": "private"}
    answer = classify(ASKED, response(500, b'{"a":  1}\xff\x00', headers))
    assert answer.body == '{"a":  1}\\xff\\x00'
    assert answer.headers == {"request-id": "req_1", "idempotent-replayed": "true", "date": "x"}


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "999999999"}, 86400.0),
        ({"retry-after": "Fri, 12 Nov 2027 10:00:30 GMT", "date": "Fri, 12 Nov 2027 10:00:00 GMT"}, 30.0),
        ({"retry-after": "Fri, 12 Nov 2027 09:00:00 GMT", "date": "Fri, 12 Nov 2027 10:00:00 GMT"}, 0.0),
        ({"retry-after": "Fri, 12 Nov 2027 10:00:30 GMT"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "٧"}, None),
        ({}, None),
    ],
)
def test_how_long_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds
    assert classify(ASKED, response(429, error(), headers)).retry_after == seconds


# -- the record of a payment ------------------------------------------------------------------------------


def record(payment: dict[str, Any], *refunds: KnownRefund) -> Any:
    return payment_record(payment, payment["latest_charge"] or {}, refunds)


def known(amount: int, status: str) -> KnownRefund:
    return KnownRefund(id=f"re_{amount}", amount=amount, status=status, operation_key=None)


def test_a_record_says_who_gets_the_money_back() -> None:
    found = record(intent())
    assert (found.recipient, found.instrument) == ("Dana Fox", "visa ···· 4242")
    assert (found.amount, found.refunded, found.currency, found.status) == (12000, 0, "usd", "succeeded")
    assert not found.missing
    assert not found.disputed


def test_what_arrived_can_go_back_and_no_more() -> None:
    assert record(intent(amount=12000, amount_received=9000)).amount == 9000
    assert record(intent(amount=12000, amount_received=0, status="requires_capture")).amount == 12000


def test_refunds_that_failed_do_not_count() -> None:
    refunds = known(1000, "failed"), known(2000, "canceled"), known(300, "succeeded"), known(70, "pending")
    assert record(intent(), *refunds).refunded == 370


@pytest.mark.parametrize(("told", "listed"), [(5000, 4000), (4000, 5000)])
def test_where_the_two_reads_differ_the_larger_sum_holds(told: int, listed: int) -> None:
    found = record(intent(latest_charge=charge(amount_refunded=told)), known(listed, "succeeded"))
    assert found.refunded == 5000


def test_a_dispute_is_seen() -> None:
    assert record(intent(latest_charge=charge(disputed=True))).disputed


def test_a_payment_without_a_charge_has_no_recipient() -> None:
    found = record(intent(latest_charge=None, amount_received=0, status="requires_payment_method"))
    assert (found.recipient, found.instrument, found.refunded) == ("", "", 0)


def test_text_of_the_provider_can_be_stored() -> None:
    found = record(intent(latest_charge=charge(billing_details={"name": "D\x00\ud800"})))
    assert found.recipient == "D\\x00\\ud800"


@pytest.mark.parametrize(
    "broken",
    [
        intent(amount_received=12000.0),
        intent(amount_received=True),
        intent(currency=None),
        intent(currency="xyz"),
        intent(latest_charge=charge(amount_refunded=None)),
        intent(latest_charge=charge(amount_refunded=-1)),
        intent(currency="isk", amount_received=4010),
        intent(status=None),
    ],
)
def test_a_record_that_money_cannot_stand_on_is_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        record(broken)
