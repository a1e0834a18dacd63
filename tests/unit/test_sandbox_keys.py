"""The sandbox's key layer and its books, in one process: the races made certain, the boundaries exact."""

import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ledger.providers.sandbox import store as store_module
from ledger.providers.sandbox.errors import ApiError, Reply
from ledger.providers.sandbox.idempotency import Delivery, KeyLayer
from ledger.providers.sandbox.landing import Landing
from ledger.providers.sandbox.payments import INSTRUMENTS, insert_payment
from ledger.providers.sandbox.service import Request, Service, plan
from ledger.providers.sandbox.store import KEY_RETENTION, Books, Store


class Clock:
    """The machine's clock, set by hand."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(store_module, "time", found)
    return found


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    found = Store(tmp_path / "books.sqlite3")
    yield found
    found.close()


def delivery(
    key: str | None = "key-1", fingerprint: str = "f", endpoint: str = "POST /v1/refunds"
) -> Delivery:
    return Delivery(account="a", key=key, endpoint=endpoint, fingerprint=fingerprint, request_id="req_1")


def bump(books: Books) -> Reply:
    books.count("a", "effect")
    return Reply.json(200, books.calls("a")["effect"])


def effects(store: Store) -> int:
    with store.transaction() as books:
        return books.calls("a").get("effect", 0)


def test_a_key_is_in_use_from_claim_to_answer(store: Store) -> None:
    keys = KeyLayer(store)
    inside, go = threading.Event(), threading.Event()

    def linger() -> None:
        inside.set()
        assert go.wait(10)

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(keys.run, delivery(), lambda: bump, linger=linger)
        assert inside.wait(10)
        assert effects(store) == 1  # the effect is there already
        for rival in (delivery(), delivery(fingerprint="other")):
            with pytest.raises(ApiError) as raised:
                keys.run(rival, lambda: bump)
            assert raised.value.code == "idempotency_key_in_use"
        go.set()
        answer = first.result(10)
    again = keys.run(delivery(), lambda: bump)
    assert (again.status, again.body) == (answer.status, answer.body)
    assert ("Idempotent-Replayed", "true") in again.headers
    assert effects(store) == 1


def test_a_crash_inside_the_effect_leaves_neither_effect_nor_key(store: Store) -> None:
    keys = KeyLayer(store)

    def crash(books: Books) -> Reply:
        bump(books)
        raise RuntimeError("died")

    with pytest.raises(RuntimeError):
        keys.run(delivery(), lambda: crash)
    assert effects(store) == 0
    assert keys.run(delivery(), lambda: bump).body == "1"


def test_a_refusal_is_saved_and_undoes_what_was_written_before_it(store: Store) -> None:
    keys = KeyLayer(store)

    def refuse(books: Books) -> Reply:
        bump(books)
        raise ApiError(400, "no", code="charge_disputed")

    first = keys.run(delivery(), lambda: refuse)
    assert first.status == 400
    assert keys.run(delivery(), lambda: bump).body == first.body
    assert effects(store) == 0


def test_failed_validation_saves_nothing(store: Store) -> None:
    keys = KeyLayer(store)

    def invalid() -> None:
        raise ApiError(400, "wrong")

    with pytest.raises(ApiError):
        keys.run(delivery(), invalid)  # type: ignore[arg-type]
    assert keys.run(delivery(), lambda: bump).body == "1"


@pytest.mark.parametrize("other", [{"fingerprint": "g"}, {"endpoint": "POST /v1/payment_intents"}])
def test_a_mismatch_is_an_idempotency_error(store: Store, other: dict[str, str]) -> None:
    keys = KeyLayer(store)
    keys.run(delivery(), lambda: bump)
    with pytest.raises(ApiError) as raised:
        keys.run(delivery(**other), lambda: bump)
    assert (raised.value.status, raised.value.type) == (400, "idempotency_error")
    assert effects(store) == 1


def test_retention_ends_exactly_after_a_day(store: Store, clock: Clock) -> None:
    keys = KeyLayer(store)
    keys.run(delivery(), lambda: bump)
    clock.now += KEY_RETENTION - 0.001
    keys.run(delivery(), lambda: bump)
    assert effects(store) == 1
    clock.now += 0.001
    assert keys.run(delivery(), lambda: bump).body == "2"


def test_without_a_key_every_delivery_is_an_effect(store: Store) -> None:
    keys = KeyLayer(store)
    assert [keys.run(delivery(key=None), lambda: bump).body for _ in range(2)] == ["1", "2"]


def test_a_deferred_effect_lands_once_when_due(store: Store, clock: Clock) -> None:
    keys, landing = KeyLayer(store), Landing(store, lambda *_: bump)
    keys.defer(delivery(), lambda: bump, params="{}", hide=0, seconds=20)
    with pytest.raises(ApiError) as raised:
        keys.defer(delivery(), lambda: bump, params="{}", hide=0, seconds=1)
    assert raised.value.code == "idempotency_key_in_use"
    clock.now += 19
    assert landing.land_due() == pytest.approx(1)
    assert effects(store) == 0
    clock.now += 1
    assert landing.land_due() is None
    assert landing.land_due() is None
    assert effects(store) == 1
    assert keys.run(delivery(), lambda: bump).body == "1"


def test_a_deferred_refund_that_no_longer_fits_is_refused_when_it_lands(store: Store, clock: Clock) -> None:
    keys, landing = KeyLayer(store), Landing(store, plan)
    with store.transaction() as books:
        payment = insert_payment(
            books, account="a", amount=100, currency="usd", instrument=INSTRUMENTS["visa"]
        )
    params = {"payment_intent": payment.id, "amount": "60"}
    text = f'{{"payment_intent": "{payment.id}", "amount": "60"}}'
    keys.defer(
        delivery(), lambda: plan("POST /v1/refunds", "a", dict(params), 0), params=text, hide=0, seconds=5
    )
    keys.run(delivery("key-2"), lambda: plan("POST /v1/refunds", "a", dict(params), 0))
    clock.now += 5
    landing.land_due()
    assert keys.run(delivery(), lambda: bump).status == 400
    with store.transaction() as books:
        found = books.payment("a", payment.id)
        assert found is not None
        assert (found.refunded, len(books.refunds("payment = ?", [payment.id]))) == (60, 1)


def test_books_never_pay_back_more_than_was_paid_even_against_the_code(store: Store) -> None:
    with store.transaction() as books:
        payment = insert_payment(
            books, account="a", amount=100, currency="usd", instrument=INSTRUMENTS["visa"]
        )
    execute = plan("POST /v1/refunds", "a", {"payment_intent": payment.id}, 0)
    with store.transaction() as books:
        execute(books)
    row = {
        "id": "re_x",
        "account": "a",
        "payment": payment.id,
        "charge": "ch",
        "amount": 1,
        "currency": "usd",
    }

    def overdraw() -> None:
        with store.transaction() as books:
            books.add(
                "refunds", {**row, "status": "succeeded", "metadata": {}, "created": 0.0, "hidden_until": 0.0}
            )
            books.settle(payment.id)

    with pytest.raises(sqlite3.IntegrityError):
        overdraw()


def test_no_secret_key_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "secrets.sqlite3"
    service = Service(Store(path))
    headers = {"authorization": "Bearer sk_test_verysecret"}
    service.handle(Request(method="GET", path="/v1/refunds", query="", headers=headers))
    service.store.close()
    assert b"verysecret" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())
