"""The Stripe adapter against scripted servers: what it sends, and that it sends it once. (R-C1, K11, K12)"""

import itertools
import json
import logging
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs

import pytest
import stripe

from ledger.providers.base import Account, Call, Outcome, ProviderUnavailableError
from ledger.providers.registry import UnknownProviderError, adapter_for, capabilities_of
from ledger.providers.stripe import API_VERSION, STRIPE, StripeAdapter
from tests.sandbox_process import wait_until
from tests.socket_server import Connection, Script, answer, json_answer, says, scripted
from tests.stripe_objects import (
    OPERATION_KEY,
    PROVIDER_KEY,
    SECRET,
    adapter,
    charge,
    error,
    intent,
    listing,
    refund,
    request,
)
from tests.transport_calls import in_time, join_transport_threads, silence

CALL = Call(deadline=20.0)
NOWHERE = "http://127.0.0.1:1"


def head_of(raw: bytes) -> tuple[str, dict[str, str], dict[str, list[str]]]:
    """The request line, the headers in lower case and the form of a request."""
    head, _, body = raw.decode().partition("\r\n\r\n")
    first, *lines = head.split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return first, headers, parse_qs(body)


def routed(*answers: tuple[str, bytes]) -> Script:
    """Answers by the beginning of the request line; each is used once, the last of its kind for ever."""
    left = list(answers)

    def script(connection: Connection) -> None:
        line = bytes(connection.received).split(b" HTTP/")[0].decode()
        for index, (start, data) in enumerate(left):
            if line.startswith(start):
                if sum(line.startswith(other) for other, _ in left) > 1:
                    del left[index]
                connection.send(data)
                return
        raise AssertionError(f"unexpected request: {line}")

    return script


# -- what a refund looks like on the wire -----------------------------------------------------------------


def test_a_refund_is_sent_once_with_our_key_and_nothing_about_us() -> None:
    with scripted(says(json_answer(200, refund()))) as server:
        found = adapter(server.base_url).perform(request(reason="requested_by_customer"), CALL)
        [raw] = server.requests
    assert (found.outcome, found.reason) == (Outcome.ACCEPTED, "ok")
    line, headers, form = head_of(raw)
    assert line == "POST /v1/refunds HTTP/1.1"
    assert headers["idempotency-key"] == PROVIDER_KEY
    assert headers["stripe-version"] == API_VERSION
    assert headers["authorization"] == f"Bearer {SECRET}"
    assert not [name for name in headers if name.startswith("x-stripe-client")]
    assert headers["user-agent"] == f"SecondKey (stripe-python {stripe.VERSION})"
    assert form == {
        "payment_intent": ["pi_1"],
        "amount": ["4900"],
        "reason": ["requested_by_customer"],
        "metadata[operation_key]": [OPERATION_KEY],
    }


def test_every_attempt_is_byte_for_byte_the_same() -> None:  # K11
    with scripted(says(json_answer(500, error("api_error")))) as server:
        for _ in range(3):
            adapter(server.base_url).perform(request(), CALL)
        assert len(server.requests) == 3
        assert len(set(server.requests)) == 1


@pytest.mark.parametrize(
    ("amount", "currency", "sent"), [(9899, "jpy", "9899"), (500, "isk", "50000"), (5120, "kwd", "5120")]
)
def test_the_amount_is_in_the_providers_units(amount: int, currency: str, sent: str) -> None:  # K58
    told = refund(amount=int(sent), currency=currency)
    with scripted(says(json_answer(200, told))) as server:
        found = adapter(server.base_url).perform(request(amount=amount, currency=currency), CALL)
        assert head_of(server.requests[0])[2]["amount"] == [sent]
    assert found.receipt is not None
    assert found.receipt.amount == amount


def test_a_charge_is_refunded_as_a_charge() -> None:
    with scripted(says(json_answer(200, refund(payment_intent=None)))) as server:
        found = adapter(server.base_url).perform(request(payment="ch_1"), CALL)
        form = head_of(server.requests[0])[2]
    assert found.outcome is Outcome.ACCEPTED
    assert form["charge"] == ["ch_1"]
    assert "payment_intent" not in form


@pytest.mark.parametrize(
    "data",
    [
        json_answer(500, error("api_error"), "Stripe-Should-Retry: true"),
        json_answer(409, error(), "Stripe-Should-Retry: true"),
        json_answer(429, error(), "Stripe-Should-Retry: true", "Retry-After: 0"),
        json_answer(503, error("api_error")),
        b"",
    ],
)
def test_nothing_makes_the_sdk_send_again(data: bytes) -> None:  # K12
    with scripted(says(data)) as server:
        adapter(server.base_url).perform(request(), CALL)
        assert len(server.connections) == 1


def test_the_sdk_keeps_no_telemetry_and_no_account() -> None:
    assert stripe.enable_telemetry is False
    with scripted(says(json_answer(200, refund(), "Request-Id: req_1"))) as server:
        one, two = adapter(server.base_url, "sk_test_one"), adapter(server.base_url, "sk_test_two")
        one.perform(request(), CALL)
        two.perform(request(), CALL)
        one.perform(request(), CALL)
        keys = [head_of(raw)[1]["authorization"] for raw in server.requests]
    assert keys == ["Bearer sk_test_one", "Bearer sk_test_two", "Bearer sk_test_one"]
    assert stripe.api_key is None
    assert stripe.default_http_client is None


def test_a_notice_of_the_provider_is_no_warning() -> None:
    with scripted(says(json_answer(200, refund(), "Stripe-Notice: upgrade now"))) as server:
        assert adapter(server.base_url).perform(request(), CALL).outcome is Outcome.ACCEPTED


# -- what comes of it -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (silence, "timeout"),
        (says(b""), "connection_lost"),
        (says(json_answer(200, refund())[:-20]), "truncated"),
        (says(b"HTTP/1.1 200 OK\r\nX: "), "malformed"),
        (says(answer(200, b"x" * 2_000_000)), "too_large"),
        (says(answer(200, b'{"error": ')), "malformed"),
    ],
)
def test_without_a_complete_answer_the_outcome_is_unknown(script: Script, reason: str) -> None:
    with scripted(script) as server:
        with in_time(1):
            found = adapter(server.base_url).perform(request(), Call(deadline=1.0))
        assert (found.outcome, found.reason, found.receipt) == (Outcome.UNKNOWN, reason, None)


def test_what_was_cut_is_kept() -> None:
    with scripted(says(json_answer(200, refund(), "Request-Id: req_1")[:-20])) as server:
        found = adapter(server.base_url).perform(request(), CALL)
    assert (found.status, found.headers) == (200, {"request-id": "req_1"})
    assert found.body == json.dumps(refund())[:-20]


def test_a_connection_that_fails_is_not_accepted() -> None:
    found = adapter(NOWHERE).perform(request(), CALL)
    assert (found.outcome, found.reason) == (Outcome.NOT_ACCEPTED, "connect_failed")


def test_without_a_lease_nothing_is_sent() -> None:
    with scripted(silence) as server:
        found = adapter(server.base_url).perform(request(), Call(deadline=20, may_write=lambda: False))
        assert (found.outcome, found.reason) == (Outcome.NOT_ACCEPTED, "lease_expired")
        join_transport_threads()
        wait_until(lambda: server.connections, what="the connection to have been accepted")
        assert all(connection.ended.wait(10) for connection in server.connections)
        assert server.requests == [b""]


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"payment": "../charges"}, "invalid_payment"),
        ({"payment": "pi_1/../../x"}, "invalid_payment"),
        ({"payment": "pi_1\n"}, "invalid_payment"),
        ({"payment": "pi_é"}, "invalid_payment"),
        ({"payment": "re_1"}, "invalid_payment"),
        ({"payment": None}, "invalid_payment"),
        ({"amount": 4900.0}, "invalid_amount"),
        ({"amount": True}, "invalid_amount"),
        ({"amount": "4900"}, "invalid_amount"),
        ({"amount": 0}, "invalid_amount"),
        ({"amount": -1}, "invalid_amount"),
        ({"currency": "xyz"}, "invalid_amount"),
        ({"currency": None}, "invalid_amount"),
        ({"amount": 5124, "currency": "kwd"}, "amount_not_representable"),
    ],
)
def test_what_cannot_be_asked_is_never_sent(parameters: dict[str, Any], reason: str) -> None:
    found = adapter(NOWHERE).perform(request(**parameters), CALL)
    assert (found.outcome, found.reason) == (Outcome.REFUSED, reason)


def test_a_missing_key_is_never_made_up() -> None:  # R-C1
    for broken in ("", "k" * 256, "k\r\nX: 1"):
        found = adapter(NOWHERE).perform(replace(request(), provider_key=broken), CALL)
        assert (found.outcome, found.reason) == (Outcome.REFUSED, "invalid_provider_key")
    assert adapter(NOWHERE).perform(replace(request(), operation_key=""), CALL).outcome is Outcome.REFUSED
    assert adapter(NOWHERE).perform(replace(request(), effect="notify"), CALL).reason == "unsupported_effect"


def test_the_secret_is_neither_kept_nor_logged(caplog: pytest.LogCaptureFixture) -> None:
    echo = json_answer(400, {"error": {"type": "x", "message": f"key {SECRET}"}}, f"Request-Id: {SECRET}")
    with caplog.at_level(logging.DEBUG), scripted(says(echo)) as server:
        ours = adapter(server.base_url)
        found = ours.perform(request(), CALL)
        with pytest.raises(ProviderUnavailableError) as caught:
            ours.observe(request(), CALL)
        looked = ours.look_up(request(), CALL)
    assert SECRET not in repr((found, looked, caught.value, ours)) + str(caught.value) + caplog.text
    assert "[secret]" in found.body


# -- reading ----------------------------------------------------------------------------------------------


def test_a_payment_is_observed_with_all_pages_of_its_refunds() -> None:
    first = [refund(id=f"re_{index}", amount=10, metadata={}) for index in range(100)]
    second = [refund(id="re_last", amount=20)]
    script = routed(
        (
            "GET /v1/payment_intents/pi_1",
            json_answer(200, intent(latest_charge=charge(amount_refunded=1020))),
        ),
        ("GET /v1/refunds", json_answer(200, listing(*first, has_more=True))),
        ("GET /v1/refunds", json_answer(200, listing(*second))),
    )
    with scripted(script) as server:
        found = adapter(server.base_url).observe(request(), CALL)
        lines = [head_of(raw)[0] for raw in server.requests]
    assert lines == [
        "GET /v1/payment_intents/pi_1?expand[0]=latest_charge HTTP/1.1",
        "GET /v1/refunds?payment_intent=pi_1&limit=100 HTTP/1.1",
        "GET /v1/refunds?payment_intent=pi_1&limit=100&starting_after=re_99 HTTP/1.1",
    ]
    assert (len(found.refunds), found.refunded, found.amount) == (101, 1020, 12000)
    assert found.refunds[-1].operation_key == OPERATION_KEY
    assert found.refunds[0].operation_key is None


def test_a_charge_is_observed_too() -> None:
    script = routed(
        ("GET /v1/charges/ch_1", json_answer(200, charge(amount_refunded=4900))),
        ("GET /v1/refunds?charge=ch_1", json_answer(200, listing(refund()))),
    )
    with scripted(script) as server:
        found = adapter(server.base_url).observe(request(payment="ch_1"), CALL)
    assert (found.id, found.amount, found.refunded, found.status) == ("ch_1", 12000, 4900, "succeeded")


def test_a_payment_that_stripe_does_not_know_is_missing() -> None:
    with scripted(says(json_answer(404, error(code="resource_missing")))) as server:
        found = adapter(server.base_url).observe(request(), CALL)
    assert (found.id, found.missing) == ("pi_1", True)


@pytest.mark.parametrize("payment", ["../refunds", "pi_1?x=1", "", None, 7, "pi_1/x", "ＰＩ_1"])
def test_what_cannot_be_an_id_is_missing_without_asking(payment: object) -> None:
    assert adapter(NOWHERE).observe(request(payment=payment), CALL).missing
    assert adapter(NOWHERE).look_up(request(payment=payment), CALL).reason == "invalid_payment"


UNREADABLE: list[tuple[str, bytes]] = [
    ("unauthorized", json_answer(401, error())),
    ("rate_limited", json_answer(429, error())),
    ("http_500", json_answer(500, error("api_error"))),
    ("http_404", answer(404, b"not found")),
    ("http_302", answer(302, b"", "Location: /")),
    ("connection_lost", b""),
    ("malformed", answer(200, b"[]")),
    ("malformed", json_answer(200, intent(id="pi_2"))),
    ("malformed", json_answer(200, intent(latest_charge="ch_1"))),
    ("malformed", json_answer(200, intent(amount_received=12.5))),
]


@pytest.mark.parametrize(("reason", "data"), UNREADABLE)
def test_a_payment_that_could_not_be_read_is_said_to_be_so(reason: str, data: bytes) -> None:
    script = routed(("GET /v1/payment_intents", data), ("GET /v1/refunds", json_answer(200, listing())))
    with scripted(script) as server, pytest.raises(ProviderUnavailableError) as caught:
        adapter(server.base_url).observe(request(), CALL)
    assert caught.value.reason == reason


BAD_PAGES: list[tuple[str, bytes]] = [
    ("http_500", json_answer(500, error("api_error"))),
    ("truncated", json_answer(200, listing(refund()))[:-3]),
    ("resource_missing", json_answer(404, error(code="resource_missing"))),
    ("malformed", json_answer(200, {"data": []})),
    ("malformed", json_answer(200, {**listing(), "has_more": None})),
    ("malformed", json_answer(200, listing(has_more=True))),
    ("malformed", json_answer(200, listing(refund(id="re_0"), has_more=True))),  # the first page again
    ("malformed", json_answer(200, listing(refund(payment_intent="pi_2")))),
    ("malformed", json_answer(200, listing("re_2"))),
]


@pytest.mark.parametrize(("reason", "data"), BAD_PAGES)
def test_a_page_that_fails_leaves_no_evidence_of_absence(reason: str, data: bytes) -> None:  # R-D3
    page = json_answer(200, listing(refund(id="re_0", metadata={}), has_more=True))
    with scripted(routed(("GET /v1/refunds", page), ("GET /v1/refunds", data))) as server:
        found = adapter(server.base_url).look_up(request(), CALL)
    assert (found.complete, found.matches, found.reason) == (False, (), reason)


def test_only_our_exact_key_is_a_match() -> None:  # R-D5
    others = [
        refund(id="re_2", metadata={"operation_key": OPERATION_KEY + "x"}),
        refund(id="re_3", metadata={"operation_key": OPERATION_KEY.upper()}),
        refund(id="re_4", metadata={"other": OPERATION_KEY}),
        refund(id="re_5", metadata=None),
        refund(id="re_6", metadata={}),
    ]
    with scripted(says(json_answer(200, listing(*others, refund(status="pending"))))) as server:
        found = adapter(server.base_url).look_up(request(), CALL)
    assert found.complete
    assert [(match.reference, match.amount, match.provider_status) for match in found.matches] == [
        ("re_1", 4900, "pending")
    ]
    assert json.loads(found.body)["others"] == ["re_2", "re_3", "re_4", "re_5", "re_6"]


def test_nothing_found_is_told_with_what_was_seen() -> None:
    with scripted(says(json_answer(200, listing(refund(id="re_2", metadata={}))))) as server:
        found = adapter(server.base_url).look_up(request(), CALL)
    assert (found.complete, found.matches, found.reason) == (True, (), "ok")
    assert json.loads(found.body) == {"ours": [], "others": ["re_2"]}


def test_all_pages_share_one_deadline() -> None:
    ids = itertools.count()

    def endless(connection: Connection) -> None:
        if b"payment_intents" in connection.received:
            connection.send(json_answer(200, intent()))
        elif not connection.closing.wait(0.05):
            connection.send(json_answer(200, listing(refund(id=f"re_{next(ids)}"), has_more=True)))

    with scripted(endless) as server:
        ours, call = adapter(server.base_url), Call(deadline=0.5)
        with in_time(0.5):
            assert not ours.look_up(request(), call).complete
        with in_time(0.5), pytest.raises(ProviderUnavailableError) as caught:
            ours.observe(request(), call)
    assert caught.value.reason in {"timeout", "connect_failed"}
    join_transport_threads()


# -- accounts ---------------------------------------------------------------------------------------------


def test_a_resource_is_named_by_account_and_payment() -> None:
    assert adapter(NOWHERE).resource_key(request()) == "stripe:acc_1:pi_1"


def test_an_account_gets_the_adapter_of_its_provider() -> None:
    account = Account(id="acc_1", provider="stripe", base_url="https://api.stripe.com", secret=SECRET)
    assert isinstance(adapter_for(account), StripeAdapter)
    assert capabilities_of("stripe") is STRIPE
    with pytest.raises(UnknownProviderError):
        adapter_for(replace(account, provider="acme"))


@pytest.mark.parametrize("secret", ["", "short", "sk_test_with space", "sk_test_\r\nX: 1", "sk_test_é"])
def test_a_secret_that_cannot_be_sent_is_refused_without_being_quoted(secret: str) -> None:
    with pytest.raises(ValueError) as caught:
        adapter("https://api.stripe.com", secret)
    assert not secret or secret not in str(caught.value)


@pytest.mark.parametrize("url", ["http://api.stripe.com", "https://api.stripe.com@evil.example", "file:///"])
def test_a_base_url_that_leads_elsewhere_is_refused(url: str) -> None:
    with pytest.raises(ValueError):
        adapter(url)
