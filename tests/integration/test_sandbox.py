"""The sandbox provider judged by the official Stripe client and by its own books. No Django here."""

import http.client
import json
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests
import stripe
from stripe import StripeClient

from tests.sandbox_process import ACCOUNT, ROOT, Sandbox, SandboxError, sandbox, wait_until

DAY = 24 * 3600
type Connect = Callable[..., StripeClient]


@pytest.fixture(scope="module")
def running() -> Iterator[Sandbox]:
    with sandbox() as found:
        yield found


@pytest.fixture
def box(running: Sandbox) -> Sandbox:
    running.reset()
    return running


@pytest.fixture
def connect() -> Iterator[Connect]:
    """The official client, retries off, as the gateway uses it."""
    sessions: list[requests.Session] = []

    def client(box: Sandbox, account: str = ACCOUNT, timeout: float = 10) -> StripeClient:
        session = requests.Session()
        sessions.append(session)
        return StripeClient(
            account,
            base_addresses={"api": box.url},
            max_network_retries=0,
            http_client=stripe.RequestsClient(timeout=timeout, session=session),
        )

    yield client
    for session in sessions:
        session.close()


def refund(client: StripeClient, payment: str, key: str | None = None, **params: Any) -> stripe.Refund:
    options: Any = {} if key is None else {"idempotency_key": key}
    wanted: Any = {"payment_intent": payment, **params}
    return client.v1.refunds.create(wanted, options)


def code_of(error: stripe.StripeError) -> str:
    """The provider's code; the client itself leaves `code` empty on a 409."""
    return str(json.loads(str(error.http_body))["error"].get("code"))


def test_a_payment_is_made_read_and_refunded_in_parts(box: Sandbox, connect: Connect) -> None:
    client = connect(box)
    intent = client.v1.payment_intents.create(
        {
            "amount": 100_000,
            "currency": "usd",
            "confirm": True,
            "payment_method_data": {
                "type": "card",
                "card": {"token": "tok_visa"},  # type: ignore[typeddict-unknown-key]
                "billing_details": {"name": "Dana Fox"},
            },
            "metadata": {"order": "77"},
            "expand": ["latest_charge"],
        }
    )
    assert intent.status == "succeeded"
    charge = intent.latest_charge
    assert isinstance(charge, stripe.Charge)
    assert charge.billing_details.name == "Dana Fox"
    details = charge.payment_method_details
    assert details is not None
    assert details.card is not None
    assert (details.card.brand, details.card.last4) == ("visa", "4242")

    first = refund(client, intent.id, amount=4_900, reason="requested_by_customer", metadata={"key": "k1"})
    second = client.v1.refunds.create({"charge": charge.id, "amount": 100})
    assert (first.status, first.amount, first.currency, first.charge) == (
        "succeeded",
        4_900,
        "usd",
        charge.id,
    )
    assert first.payment_intent == second.payment_intent == intent.id
    assert first.metadata is not None
    assert first.metadata["key"] == "k1"

    again = client.v1.payment_intents.retrieve(intent.id, {"expand": ["latest_charge"]})
    assert isinstance(again.latest_charge, stripe.Charge)
    assert again.latest_charge.amount_refunded == 5_000
    assert not again.latest_charge.refunded
    assert refund(client, intent.id).amount == 95_000  # all that is left
    assert client.v1.charges.retrieve(charge.id).refunded
    assert [found.id for found in client.v1.charges.list({"payment_intent": intent.id})] == [charge.id]
    assert [found.id for found in client.v1.payment_intents.list()] == [intent.id]
    expanded = client.v1.refunds.retrieve(first.id, {"expand": ["charge.payment_intent"]}).charge
    assert isinstance(expanded, stripe.Charge)
    assert isinstance(expanded.payment_intent, stripe.PaymentIntent)
    assert box.payment(intent.id)["refunded"] == 100_000


def test_books_are_as_the_wire_says(box: Sandbox, connect: Connect) -> None:
    (payment,) = box.seed()
    made = refund(connect(box), payment, amount=10, metadata={"a": "b"})
    books = box.books()
    (entry,) = books["payments"]
    assert {name: entry[name] for name in ("id", "amount", "currency", "refunded", "disputed")} == {
        "id": payment, "amount": 100_000, "currency": "usd", "refunded": 10, "disputed": False,
    }  # fmt: skip
    (line,) = entry["refunds"]
    assert {name: line[name] for name in ("id", "amount", "status", "metadata", "created")} == {
        "id": made.id, "amount": 10, "status": "succeeded", "metadata": {"a": "b"}, "created": made.created,
    }  # fmt: skip
    assert books["calls"] == {
        "refund.create": 1,
        "refund.list": 0,
        "refund.retrieve": 0,
        "payment.retrieve": 0,
    }


def test_lists_are_paged_newest_first_with_ten_as_the_default(box: Sandbox, connect: Connect) -> None:
    client = connect(box)
    payment, other = box.seed({}, {})
    made = [refund(client, payment, amount=10).id for _ in range(25)][::-1]
    refund(client, other)
    page = client.v1.refunds.list({"payment_intent": payment})
    assert [found.id for found in page.data] == made[:10]
    assert page.has_more
    assert [found.id for found in page.auto_paging_iter()] == made
    last = client.v1.refunds.list({"payment_intent": payment, "starting_after": made[14], "limit": 10})
    assert [found.id for found in last.data] == made[15:]
    assert not last.has_more
    before = client.v1.refunds.list({"payment_intent": payment, "ending_before": made[14], "limit": 10})
    assert [found.id for found in before.data] == made[4:14]
    assert before.has_more
    charge = client.v1.refunds.retrieve(made[0]).charge
    assert isinstance(charge, str)
    assert len(client.v1.refunds.list({"charge": charge, "limit": 100}).data) == 25
    box.advance(100)
    newest = refund(client, payment, amount=10)
    since = client.v1.refunds.list({"created": {"gte": newest.created}, "expand": ["data.payment_intent"]})
    assert [found.id for found in since.data] == [newest.id]
    assert isinstance(since.data[0].payment_intent, stripe.PaymentIntent)
    assert newest.id not in {
        found.id for found in client.v1.refunds.list({"created": {"lt": newest.created}, "limit": 100})
    }
    for limit in (0, 101):
        with pytest.raises(stripe.InvalidRequestError):
            client.v1.refunds.list({"limit": limit})
    with pytest.raises(stripe.InvalidRequestError) as raised:
        client.v1.refunds.list({"starting_after": "re_unknown"})
    assert raised.value.code == "resource_missing"


@pytest.mark.parametrize(
    ("params", "code", "param"),
    [
        ({"payment_intent": "pi_unknown"}, "resource_missing", "payment_intent"),
        ({"charge": "ch_unknown"}, "resource_missing", "charge"),
        ({"amount": 0}, "parameter_invalid_integer", "amount"),
        ({"amount": -5}, "parameter_invalid_integer", "amount"),
        ({"amount": "1_000"}, "parameter_invalid_integer", "amount"),
        ({"amount": "１２"}, "parameter_invalid_integer", "amount"),
        ({"amount": 100_001}, None, "amount"),
        ({"reason": "because"}, None, "reason"),
        ({"colour": "blue"}, "parameter_unknown", "colour"),
        ({"metadata": {"k" * 41: "v"}}, None, "metadata"),
        ({"expand": ["amount"]}, None, "expand"),
    ],
)
def test_wrong_refunds_are_refused_and_nothing_is_booked(
    box: Sandbox, connect: Connect, params: dict[str, Any], code: str | None, param: str
) -> None:
    (payment,) = box.seed()
    wanted = params if "charge" in params else {"payment_intent": payment, **params}
    with pytest.raises(stripe.InvalidRequestError) as raised:
        connect(box).v1.refunds.create(wanted)  # type: ignore[arg-type]
    assert (raised.value.code, raised.value.param) == (code, param)
    assert box.payment(payment)["refunds"] == []


def test_over_refund_and_dispute_are_refused_in_stripes_words(box: Sandbox, connect: Connect) -> None:
    client = connect(box)
    full, partly, disputed, unpaid = box.seed({}, {}, {}, {"status": "requires_payment_method"})
    refund(client, full)
    refund(client, partly, amount=60_000)
    box.dispute(disputed)
    refused: dict[str, stripe.StripeError] = {}
    for payment in (full, partly, disputed, unpaid):
        with pytest.raises(stripe.InvalidRequestError) as raised:
            refund(client, payment, amount=60_000)
        refused[payment] = raised.value
    assert refused[full].code == "charge_already_refunded"
    assert refused[partly].code is None
    assert refused[disputed].code == "charge_disputed"
    assert "successful charge" in str(refused[unpaid])
    intent = client.v1.payment_intents.retrieve(disputed, {"expand": ["latest_charge"]})
    assert isinstance(intent.latest_charge, stripe.Charge)
    assert intent.latest_charge.disputed
    assert {payment: box.payment(payment)["refunded"] for payment in refused} == {
        full: 100_000, partly: 60_000, disputed: 0, unpaid: 0,
    }  # fmt: skip
    with pytest.raises(SandboxError, match="No such"):
        box.dispute("pi_unknown")


def test_declined_and_unconfirmed_payments_have_nothing_to_refund(box: Sandbox, connect: Connect) -> None:
    client = connect(box)
    with pytest.raises(stripe.CardError) as raised:
        client.v1.payment_intents.create(
            {"amount": 500, "currency": "eur", "confirm": True, "payment_method": "pm_card_chargeDeclined"}
        )
    assert raised.value.code == "card_declined"
    intent = client.v1.payment_intents.create({"amount": 500, "currency": "eur"})
    assert (intent.status, intent.latest_charge) == ("requires_payment_method", None)
    with pytest.raises(stripe.InvalidRequestError):
        refund(client, intent.id)


def test_currencies_keep_their_decimals(box: Sandbox, connect: Connect) -> None:  # K58
    client = connect(box)
    yen, dinar = box.seed({"amount": 9_899, "currency": "jpy"}, {"amount": 12_340, "currency": "kwd"})
    assert refund(client, yen, amount=9_899).amount == 9_899
    assert refund(client, dinar, amount=1_230).currency == "kwd"
    with pytest.raises(stripe.InvalidRequestError) as raised:
        refund(client, dinar, amount=1_235)
    assert raised.value.param == "amount"
    assert box.payment(dinar)["refunded"] == 1_230
    with pytest.raises(SandboxError, match="divisible by 10"):
        box.seed({"amount": 1_001, "currency": "kwd"})
    with pytest.raises(SandboxError, match="currency"):
        box.seed({"currency": "xyz"})


def test_each_secret_key_is_an_account_of_its_own(box: Sandbox, connect: Connect) -> None:
    (payment,) = box.seed()
    mine, theirs = connect(box), connect(box, "sk_test_globex")
    made = refund(mine, payment, "the-same-key", amount=10)
    for ask in (
        lambda: theirs.v1.payment_intents.retrieve(payment),
        lambda: theirs.v1.refunds.retrieve(made.id),
        lambda: refund(theirs, payment, "the-same-key", amount=10),
    ):
        with pytest.raises(stripe.InvalidRequestError) as raised:
            ask()
        assert raised.value.http_status == 404
    assert theirs.v1.refunds.list().data == []
    assert box.books("sk_test_globex")["payments"] == []
    assert box.books("sk_test_globex")["calls"]["refund.create"] == 1
    assert box.books()["calls"]["refund.create"] == 2
    for secret in ("sk_live_real", "rk_test_x", "sk_test_"):
        with pytest.raises(stripe.AuthenticationError):
            connect(box, secret).v1.refunds.list()
    assert requests.get(f"{box.url}/v1/refunds", timeout=5).status_code == 401


def test_a_key_replays_the_first_answer_errors_included(box: Sandbox, connect: Connect) -> None:
    client = connect(box)
    (payment,) = box.seed()
    first = refund(client, payment, "key-1", amount=60_000)
    again = refund(client, payment, "key-1", amount=60_000)
    assert first.last_response is not None
    assert again.last_response is not None
    assert first.last_response.body == again.last_response.body
    assert "Idempotent-Replayed" not in first.last_response.headers
    assert again.last_response.headers["Idempotent-Replayed"] == "true"
    assert again.last_response.headers["Original-Request"] == first.last_response.request_id
    assert again.last_response.request_id != first.last_response.request_id
    bodies = set()
    for _ in range(2):
        with pytest.raises(stripe.InvalidRequestError) as raised:
            refund(client, payment, "key-2", amount=60_000)
        bodies.add(raised.value.http_body)
    assert len(bodies) == 1
    assert raised.value.headers is not None
    assert raised.value.headers["Idempotent-Replayed"] == "true"
    assert [line["amount"] for line in box.payment(payment)["refunds"]] == [60_000]


def test_failed_validation_is_not_saved_under_the_key(box: Sandbox, connect: Connect) -> None:
    client = connect(box)
    (payment,) = box.seed()
    with pytest.raises(stripe.InvalidRequestError):
        refund(client, payment, "key-1", amount=0)
    assert refund(client, payment, "key-1", amount=5).amount == 5


def test_a_key_with_other_parameters_or_endpoint_is_an_idempotency_error(
    box: Sandbox, connect: Connect
) -> None:
    client = connect(box)
    (payment,) = box.seed()
    refund(client, payment, "key-1", amount=5)
    with pytest.raises(stripe.IdempotencyError) as raised:
        refund(client, payment, "key-1", amount=6)
    assert raised.value.http_status == 400
    with pytest.raises(stripe.IdempotencyError, match="endpoint"):
        client.v1.payment_intents.create({"amount": 5, "currency": "usd"}, {"idempotency_key": "key-1"})
    assert box.payment(payment)["refunded"] == 5
    with pytest.raises(stripe.InvalidRequestError):
        refund(client, payment, "k" * 256, amount=5)
    assert refund(client, payment, "k" * 255, amount=5).amount == 5


def test_a_key_is_forgotten_after_a_day_of_the_providers_clock(box: Sandbox, connect: Connect) -> None:
    client = connect(box)
    (payment,) = box.seed()
    first = refund(client, payment, "key-1", amount=5)
    box.advance(DAY - 60)
    assert refund(client, payment, "key-1", amount=5).id == first.id
    box.advance(60)
    second = refund(client, payment, "key-1", amount=5)
    assert second.id != first.id
    assert second.created >= first.created + DAY
    assert box.payment(payment)["refunded"] == 10


def test_twenty_threads_never_refund_more_than_was_paid(box: Sandbox, connect: Connect) -> None:  # K61
    (payment,) = box.seed()

    def one(index: int) -> str:
        try:
            refund(connect(box), payment, f"key-{index}", amount=30_000)
        except stripe.InvalidRequestError as error:
            return str(error.param)
        return "done"

    with ThreadPoolExecutor(20) as pool:
        outcomes = Counter(pool.map(one, range(20)))
    assert outcomes == {"done": 3, "amount": 17}
    assert box.payment(payment)["refunded"] == 90_000


def test_twenty_threads_with_one_key_refund_once(box: Sandbox, connect: Connect) -> None:
    (payment,) = box.seed()

    def one(_index: int) -> str:
        try:
            return refund(connect(box), payment, "key-1", amount=10).id
        except stripe.APIError as error:
            return code_of(error)

    with ThreadPoolExecutor(20) as pool:
        outcomes = set(pool.map(one, range(20)))
    (made,) = outcomes - {"idempotency_key_in_use"}
    assert [line["id"] for line in box.payment(payment)["refunds"]] == [made]


# Faults, each for real on the socket and judged by the books.


def test_lose_ack_refunds_and_answers_nothing(box: Sandbox, connect: Connect) -> None:
    client = connect(box)
    (payment,) = box.seed()
    box.fault("refund.create", "lose_ack")
    with pytest.raises(stripe.APIConnectionError):
        refund(client, payment, "key-1", amount=5)
    (line,) = box.payment(payment)["refunds"]
    assert refund(client, payment, "key-1", amount=5).id == line["id"]
    assert box.calls("refund.create") == 2


def test_error_after_refunds_and_the_key_replays_the_500(box: Sandbox, connect: Connect) -> None:
    client = connect(box)
    (payment,) = box.seed()
    box.fault("refund.create", "error_after")
    for _ in range(2):  # a replayed 500 teaches nothing
        with pytest.raises(stripe.APIError) as raised:
            refund(client, payment, "key-1", amount=5)
        assert raised.value.http_status == 500
    assert len(box.payment(payment)["refunds"]) == 1


def test_error_before_does_nothing_and_saves_nothing(box: Sandbox, connect: Connect) -> None:
    client = connect(box)
    (payment,) = box.seed()
    box.fault("refund.create", "error_before", times=2)
    for _ in range(2):
        with pytest.raises(stripe.APIError) as raised:
            refund(client, payment, "key-1", amount=5)
        assert raised.value.http_status == 503
    assert box.payment(payment)["refunds"] == []
    assert refund(client, payment, "key-1", amount=5).amount == 5


def test_delay_commit_lands_later_with_its_key_in_use_meanwhile(
    box: Sandbox, connect: Connect
) -> None:  # K14
    (payment,) = box.seed()
    box.fault("refund.create", "delay_commit", seconds=1_000)
    with pytest.raises(stripe.APIConnectionError):
        refund(connect(box, timeout=0.3), payment, "key-1", amount=5)
    client = connect(box)
    assert box.payment(payment)["refunds"] == []
    assert len(box.books()["pending"]) == 1
    with pytest.raises(stripe.APIError) as raised:
        refund(client, payment, "key-1", amount=5)
    assert (raised.value.http_status, code_of(raised.value)) == (409, "idempotency_key_in_use")
    box.advance(1_000)
    (line,) = box.payment(payment)["refunds"]
    assert refund(client, payment, "key-1", amount=5).id == line["id"]
    assert box.books()["pending"] == []


def test_delay_commit_lands_by_itself_without_a_key_too(box: Sandbox, connect: Connect) -> None:
    (payment,) = box.seed()
    box.fault("refund.create", "delay_commit", seconds=0.4)
    body = {"payment_intent": payment, "amount": "5"}
    with pytest.raises(requests.Timeout):
        requests.post(f"{box.url}/v1/refunds", data=body, auth=(ACCOUNT, ""), timeout=0.1)
    assert box.payment(payment)["refunds"] == []
    wait_until(lambda: box.payment(payment)["refunds"], what="the late effect")


def test_delayed_effects_and_books_survive_a_kill(connect: Connect, tmp_path: Path) -> None:
    with sandbox(tmp_path) as box:
        (payment,) = box.seed()
        first = refund(connect(box), payment, "key-1", amount=5)
        box.advance(500)
        box.fault("refund.create", "delay_commit", seconds=1_000)
        with pytest.raises(stripe.APIConnectionError):
            refund(connect(box, timeout=0.3), payment, "key-2", amount=7)
        before = box.books()
        box.kill()
        with pytest.raises(stripe.APIConnectionError):
            connect(box).v1.refunds.list()
        box.start()
        after = box.books()
        assert after.pop("now") >= before.pop("now")  # the clock stays advanced
        assert after == before
        client = connect(box)
        assert refund(client, payment, "key-1", amount=5).id == first.id
        with pytest.raises(stripe.APIError) as raised:
            refund(client, payment, "key-2", amount=7)
        assert raised.value.http_status == 409
        box.advance(1_000)
        assert [line["amount"] for line in box.payment(payment)["refunds"]] == [5, 7]
        assert refund(client, payment, "key-2", amount=7).amount == 7
        assert box.payment(payment)["refunded"] == 12


def test_kills_under_load_lose_no_acknowledged_refund_and_double_none(
    connect: Connect, tmp_path: Path
) -> None:
    with sandbox(tmp_path) as box:
        payments = box.seed(*[{}] * 4)
        acknowledged: dict[str, str] = {}
        halt = threading.Event()

        def load(worker: int) -> None:
            client = connect(box)
            for index in range(10_000):
                if halt.is_set():
                    return
                key = f"{worker}-{index}"
                try:
                    made = refund(client, payments[worker], key, amount=1, metadata={"key": key})
                except stripe.APIConnectionError:
                    halt.wait(0.01)
                else:
                    acknowledged[key] = made.id

        threads = [threading.Thread(target=load, args=(worker,)) for worker in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            count = len(acknowledged)
            wait_until(lambda count=count: len(acknowledged) >= count + 40, 30, "progress")
            box.kill()
            box.start()
        halt.set()
        for thread in threads:
            thread.join()
        booked = [
            (line["metadata"]["key"], line["id"])
            for one in box.books()["payments"]
            for line in one["refunds"]
        ]
        assert len({key for key, _ in booked}) == len(booked)
        assert acknowledged.items() <= dict(booked).items()
        assert all(one["refunded"] == len(one["refunds"]) for one in box.books()["payments"])


def test_duplicate_delivery_doubles_only_without_a_key(box: Sandbox, connect: Connect) -> None:
    client = connect(box)
    keyed, bare = box.seed({}, {})
    box.fault("refund.create", "duplicate_delivery", times=2)
    made = refund(client, keyed, "key-1", amount=5)
    assert [line["id"] for line in box.payment(keyed)["refunds"]] == [made.id]
    response = requests.post(
        f"{box.url}/v1/refunds", data={"payment_intent": bare, "amount": "5"}, auth=(ACCOUNT, ""), timeout=5
    )
    assert response.status_code == 200
    assert len(box.payment(bare)["refunds"]) == 2
    assert box.calls("refund.create") == 2  # as many as were sent


def test_a_refund_hides_from_lists_but_not_from_the_charge(box: Sandbox, connect: Connect) -> None:
    client = connect(box)
    (payment,) = box.seed()
    box.faults(
        [
            {"on": "refund.create", "fault": "lose_ack"},
            {"on": "refund.create", "fault": "hide_from_list", "seconds": 300},
        ]
    )
    with pytest.raises(stripe.APIConnectionError):  # both on the same refund
        refund(client, payment, "key-1", amount=5)
    (line,) = box.payment(payment)["refunds"]
    assert client.v1.refunds.list({"payment_intent": payment}).data == []
    assert client.v1.refunds.retrieve(line["id"]).amount == 5
    assert client.v1.charges.list({"payment_intent": payment}).data[0].amount_refunded == 5
    box.advance(300)
    assert [found.id for found in client.v1.refunds.list({"payment_intent": payment})] == [line["id"]]


def test_a_list_can_lag_behind(box: Sandbox, connect: Connect) -> None:
    client = connect(box)
    (payment,) = box.seed()
    old = refund(client, payment, amount=5)
    box.advance(60)
    new = refund(client, payment, amount=5)
    box.fault("refund.list", "hide_from_list", seconds=30, times=2)
    seen = [[found.id for found in client.v1.refunds.list({"payment_intent": payment})] for _ in range(3)]
    assert seen == [[old.id], [old.id], [new.id, old.id]]


def test_slow_refunds_at_once_and_keeps_its_key_in_use(box: Sandbox, connect: Connect) -> None:
    (payment,) = box.seed()
    box.fault("refund.create", "slow", seconds=1)
    with ThreadPoolExecutor(1) as pool:
        start = time.monotonic()
        late = pool.submit(refund, connect(box), payment, "key-1", amount=5)
        wait_until(lambda: box.payment(payment)["refunds"], what="the effect")
        with pytest.raises(stripe.APIError) as raised:
            refund(connect(box), payment, "key-1", amount=5)
        assert code_of(raised.value) == "idempotency_key_in_use"
        assert late.result().amount == 5
        assert time.monotonic() - start >= 1
    assert refund(connect(box), payment, "key-1", amount=5).id == late.result().id
    box.fault("payment.retrieve", "slow", seconds=5)
    with pytest.raises(stripe.APIConnectionError):
        connect(box, timeout=0.2).v1.payment_intents.retrieve(payment)


def test_drip_defeats_a_read_timeout_and_is_valid_in_the_end(box: Sandbox, connect: Connect) -> None:
    (payment,) = box.seed()
    box.fault("refund.create", "drip", seconds=1.5)
    start = time.monotonic()
    made = refund(connect(box, timeout=0.5), payment, "key-1", amount=5)  # each byte resets the time-out
    assert time.monotonic() - start >= 1.4
    assert [line["id"] for line in box.payment(payment)["refunds"]] == [made.id]


def test_truncate_refunds_and_sends_half_an_answer(box: Sandbox, connect: Connect) -> None:
    (payment,) = box.seed()
    box.fault("refund.create", "truncate")
    connection = http.client.HTTPConnection("127.0.0.1", box.port, timeout=5)
    headers = {
        "Authorization": f"Bearer {ACCOUNT}",
        "Content-Type": "application/x-www-form-urlencoded",
        "Idempotency-Key": "key-1",
    }
    connection.request("POST", "/v1/refunds", f"payment_intent={payment}&amount=5", headers)
    response = connection.getresponse()
    announced = int(response.headers["Content-Length"])
    with pytest.raises(http.client.IncompleteRead) as raised:
        response.read()
    connection.close()
    assert len(raised.value.partial) == announced // 2
    assert len(box.payment(payment)["refunds"]) == 1
    assert refund(connect(box), payment, "key-1", amount=5).amount == 5


def test_refuse_is_definite_and_saved_like_any_refusal(box: Sandbox, connect: Connect) -> None:
    client = connect(box)
    (payment,) = box.seed()
    box.fault("refund.create", "refuse", code="charge_disputed")
    for _ in range(2):
        with pytest.raises(stripe.InvalidRequestError) as raised:
            refund(client, payment, "key-1", amount=5)
        assert raised.value.code == "charge_disputed"
    box.faults(
        [
            {"on": "refund.create", "fault": "refuse", "code": code}
            for code in ("rate_limit", "idempotency_key_in_use")
        ]
    )
    with pytest.raises(stripe.RateLimitError):
        refund(client, payment, "key-2", amount=5)
    with pytest.raises(stripe.APIError) as conflict:
        refund(client, payment, "key-2", amount=5)
    assert conflict.value.http_status == 409
    assert box.payment(payment)["refunds"] == []
    assert refund(client, payment, "key-2", amount=5).amount == 5  # neither was saved


def test_faults_are_taken_in_order_and_by_their_payment(box: Sandbox, connect: Connect) -> None:
    client = connect(box)
    one, two = box.seed({}, {})
    box.fault("refund.create", "error_before", payment=two)
    box.fault("refund.create", "refuse", code="expired_card")
    with pytest.raises(stripe.CardError):
        refund(client, one)
    assert refund(client, one).amount == 100_000
    with pytest.raises(stripe.APIError):
        refund(client, two)
    assert refund(client, two).amount == 100_000
    box.fault("refund.create", "error_before", times=5)
    assert len(box.ask("GET", "faults")["armed"]) == 1
    box.faults([])
    assert box.ask("GET", "faults")["armed"] == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"on": "refund.delete", "fault": "slow", "seconds": 1},
        {"on": "refund.create", "fault": "explode"},
        {"on": "refund.create", "fault": "slow"},
        {"on": "refund.create", "fault": "slow", "seconds": True},
        {"on": "refund.create", "fault": "refuse"},
        {"on": "refund.create", "fault": "lose_ack", "times": 0},
        {"on": "refund.create", "fault": "lose_ack", "tims": 1},
        {"on": "refund.retrieve", "fault": "hide_from_list", "seconds": 1},
        "lose_ack",
    ],
)
def test_a_wrong_fault_arms_nothing(box: Sandbox, wrong: Any) -> None:
    with pytest.raises(SandboxError, match="Fault 1"):
        box.faults([{"on": "refund.create", "fault": "lose_ack"}, wrong])
    assert box.ask("GET", "faults")["armed"] == []
    with pytest.raises(SandboxError, match="list"):
        box.ask("POST", "faults", {"on": "refund.create", "fault": "lose_ack"})


def test_reads_fail_on_demand(box: Sandbox, connect: Connect) -> None:
    client = connect(box)
    (payment,) = box.seed()
    made = refund(client, payment)
    box.faults(
        [
            {"on": "refund.list", "fault": "lose_ack"},
            {"on": "refund.list", "fault": "truncate"},
            {"on": "refund.retrieve", "fault": "error_after"},
            {"on": "payment.retrieve", "fault": "error_before"},
            {"on": "payment.retrieve", "fault": "refuse", "code": "resource_missing"},
        ]
    )
    for ask in (
        client.v1.refunds.list,
        client.v1.refunds.list,
        lambda: client.v1.refunds.retrieve(made.id),
        lambda: client.v1.payment_intents.retrieve(payment),
        lambda: client.v1.payment_intents.retrieve(payment),
    ):
        with pytest.raises(stripe.StripeError):
            ask()
        # Every fault is spent with its request.
    assert box.ask("GET", "faults")["armed"] == []
    assert client.v1.refunds.retrieve(made.id).id == made.id


def test_a_refund_can_fail_days_later(box: Sandbox, connect: Connect) -> None:
    client = connect(box)
    (payment,) = box.seed()
    made = refund(client, payment, amount=40_000)
    box.ask("POST", "refund", {"refund": made.id, "status": "failed", "failure_reason": "declined"})
    failed = client.v1.refunds.retrieve(made.id)
    assert (failed.status, failed.failure_reason) == ("failed", "declined")
    assert box.payment(payment)["refunded"] == 0
    assert refund(client, payment).amount == 100_000


# The process and its socket.


def test_a_taken_port_and_a_taken_store_are_clear_errors(box: Sandbox, tmp_path: Path) -> None:
    def start(port: int, store: Path) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-m",
            "ledger.providers.sandbox",
            "--port",
            str(port),
            "--store",
            str(store),
        ]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20, check=False)

    taken = start(box.port, tmp_path / "other.sqlite3")
    assert taken.returncode == 1
    assert str(box.port) in taken.stderr
    assert "Traceback" not in taken.stderr
    shared = start(0, box.store)
    assert shared.returncode == 1
    assert "another sandbox" in shared.stderr


def test_it_loads_neither_django_nor_the_ledgers_models() -> None:
    code = "import sys, ledger.providers.sandbox.__main__; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "ledger.providers.sandbox.service" in loaded
    assert not loaded & {"django", "stripe", "ledger.models", "approvals", "ledger.providers.base"}


def test_sigterm_ends_it_at_once_even_while_a_client_waits(connect: Connect) -> None:
    with sandbox() as box:
        (payment,) = box.seed()
        box.fault("refund.create", "delay_commit", seconds=100)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(refund, connect(box), payment)
            wait_until(lambda: box.books()["pending"], what="the deferred effect")
            start = time.monotonic()
            assert box.stop() == 0
            assert time.monotonic() - start < 2
            assert isinstance(waiting.exception(10), stripe.APIConnectionError)


def test_connections_are_kept_and_broken_requests_are_refused(box: Sandbox) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", box.port, timeout=5)
    headers = {"Authorization": f"Bearer {ACCOUNT}"}
    for _ in range(3):
        connection.request("GET", "/v1/refunds", headers=headers)
        response = connection.getresponse()
        assert json.load(response)["data"] == []
        assert response.headers["Request-Id"].startswith("req_")
        sock = connection.sock
        assert sock is not None, "closed after an ordinary answer"
    connection.request(
        "POST", "/v1/refunds", '{"amount": 5}', {**headers, "Content-Type": "application/json"}
    )
    response = connection.getresponse()
    assert (response.status, "content type" in response.read().decode()) == (400, True)
    connection.request(
        "POST",
        "/v1/refunds",
        "amount=5&amount=6",
        {**headers, "Content-Type": "application/x-www-form-urlencoded"},
    )
    response = connection.getresponse()
    assert (response.status, "twice" in response.read().decode()) == (400, True)
    connection.request("DELETE", "/v1/refunds", headers=headers)
    response = connection.getresponse()
    assert response.status == 404
    response.read()
    connection.close()
    with socket.create_connection(("127.0.0.1", box.port), 5) as raw:
        raw.sendall(b"POST /v1/refunds HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 413 ")


def test_it_keeps_up_with_more_than_300_refunds_a_second(box: Sandbox) -> None:
    payments = box.seed(*[{}] * 4)

    def load(payment: str, turn: int, each: int = 150) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", box.port, timeout=30)
        headers = {
            "Authorization": f"Bearer {ACCOUNT}",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        for index in range(each):
            keyed = {**headers, "Idempotency-Key": f"{payment}-{turn}-{index}"}
            connection.request("POST", "/v1/refunds", f"payment_intent={payment}&amount=1", keyed)
            response = connection.getresponse()
            response.read()
            assert response.status == 200
        connection.close()
        return each

    rates = []
    for turn in range(3):  # the best of three: the machine may be busy with something else
        start = time.monotonic()
        with ThreadPoolExecutor(4) as pool:
            count = sum(pool.map(load, payments, [turn] * 4))
        rates.append(count / (time.monotonic() - start))
        if rates[-1] > 300:
            break
    assert max(rates) > 300, rates
