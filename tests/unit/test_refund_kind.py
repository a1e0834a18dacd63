"""Refunds as a kind: validation with pointers, a normalizer that changes nothing twice, the normalized diff."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals import kinds
from approvals.kinds.base import three_way
from ledger.keys import canonical
from ledger.providers.base import KnownRefund, PaymentRecord

V1 = kinds.version("refund", 1)
GOOD: dict[str, Any] = {"payment": "pi_3Q", "amount": 4900, "currency": "usd"}
RECORD = PaymentRecord(
    id="pi_3Q",
    amount=12_000,
    refunded=0,
    currency="usd",
    status="succeeded",
    recipient="Dana Fox",
    instrument="visa ···· 4242",
    created=1_760_000_000,
)


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"amount": 100.0}, "/amount"),  # K57's kin: JSON Schema counts 100.0 as an integer, we do not
        ({"amount": True}, "/amount"),
        ({"amount": "9899.00"}, "/amount"),  # K58
        ({"amount": 0}, "/amount"),
        ({"amount": -1}, "/amount"),
        ({"amount": 10**12}, "/amount"),
        ({"amount": None}, "/amount"),
        ({"currency": "zzz"}, "/currency"),
        ({"currency": "US"}, "/currency"),
        ({"currency": "kwd", "amount": 105}, "/amount"),
        ({"payment": "../charges"}, "/payment"),
        ({"payment": "pi_a/b"}, "/payment"),
        ({"payment": "pi_a\n"}, "/payment"),
        ({"reason": "because"}, "/reason"),
        ({"note": "x" * 5001}, "/note"),  # K52: never cut, refused
        ({"approved_by": "me"}, "/approved_by"),  # K39
        ({"status": "approved"}, "/status"),
    ],
)
def test_bad_parameters_name_the_member(change: dict[str, Any], pointer: str) -> None:  # R-A9
    errors = V1.validate(GOOD | change)
    assert pointer in [error.pointer for error in errors]
    assert all(error.detail for error in errors)


@pytest.mark.parametrize("parameters", [[], "refund", None, 7])
def test_parameters_are_an_object(parameters: Any) -> None:
    assert V1.validate(parameters)


@given(st.sampled_from(["usd", "USD", "Jpy", "KWD"]), st.integers(1, 10**9), st.text(min_size=1, max_size=40))
def test_normalizing_is_idempotent_and_keeps_text_raw(currency: str, amount: int, note: str) -> None:  # K35
    once = V1.normalize({"payment": "pi_1", "amount": amount * 10, "currency": currency, "note": note})
    assert V1.normalize(once) == once
    assert once["note"] == note
    assert once["currency"] == currency.lower()
    assert once["amount"] == amount * 10


def rows(parameters: dict[str, Any], record: PaymentRecord | None) -> dict[str, Any]:
    return {row.key: row for row in V1.diff(parameters, record)}


def test_the_diff_shows_recipient_amount_and_what_changes() -> None:  # R-B2
    shown = rows(GOOD | {"reason": "duplicate"}, RECORD)
    assert (shown["amount"].after.amount, shown["amount"].after.currency) == (4900, "usd")
    assert shown["recipient"].after.text == "Dana Fox"
    assert (shown["refundable"].before.amount, shown["refundable"].after.amount) == (12_000, 7_100)
    assert shown["reason"].source == "agent"
    assert "cannot be undone" in shown["undo"].after.text


def test_what_was_refunded_before_counts() -> None:
    before = (KnownRefund(id="re_1", amount=2_000, status="succeeded", operation_key=None),)
    record = PaymentRecord(**{**RECORD.__dict__, "refunded": 2_000, "refunds": before})
    assert rows(GOOD, record)["refundable"].before.amount == 10_000


def test_without_a_record_the_diff_says_so() -> None:
    assert "not been read" in rows(GOOD, None)["recipient"].after.text
    assert "refundable" not in rows(GOOD, None)


def test_a_payment_in_another_currency_shows_no_difference() -> None:  # K60: nothing is converted
    assert "refundable" not in rows(GOOD | {"currency": "gbp"}, RECORD)


def test_text_of_agents_and_payers_is_marked_hostile() -> None:
    shown = rows(GOOD | {"note": "hello", "customer": "c"}, RECORD)
    assert all(shown[key].after.hostile for key in ("note", "customer", "recipient", "payment"))


def test_fraudulent_warns_of_its_side_effect() -> None:
    assert V1.cautions(GOOD | {"reason": "fraudulent"})
    assert not V1.cautions(GOOD)


def test_unknown_kinds_and_versions_say_what_is_known() -> None:
    with pytest.raises(kinds.UnknownKindError, match="known are refund"):
        kinds.version("payout", 1)
    with pytest.raises(kinds.UnknownKindError, match="known are 1"):
        kinds.version("refund", 9)


def test_three_columns_mark_what_differs() -> None:
    made = three_way({"amount": 4900}, {"amount": 4900}, {"amount": 4900, "refundable": 10})
    assert [(row.label, row.now, row.differs) for row in made] == [
        ("amount", "4900", False),
        ("refundable", "10", False),
    ]
    assert three_way({"amount": 1}, {}, {"amount": 2})[0].differs


@pytest.mark.parametrize("parameters", [[], "x" * 60_000, None, 7, ["<b>"]])
def test_a_refusal_never_repeats_what_was_sent(parameters: Any) -> None:  # R-A9
    assert [(error.pointer, len(error.detail) < 200) for error in V1.validate(parameters)] == [("", True)]


def test_at_most_twenty_things_are_named() -> None:
    assert len(V1.validate(GOOD | {f"x{n}": 1 for n in range(1_000)})) == 20


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"note": "\ud800"}, "/note"),
        ({"note": "a\x00b"}, "/note"),
        ({"\ud800": 1}, ""),
        ({"a/b": ["\x00"]}, "/a~1b/0"),
    ],
)
def test_text_that_cannot_be_stored_is_refused(change: dict[str, Any], pointer: str) -> None:  # K55
    assert [error.pointer for error in V1.validate(GOOD | change)] == [pointer]


@pytest.mark.parametrize(("currency", "amount"), [("kwd", 105), ("clf", 100), ("mga", 12_345)])
def test_what_the_provider_cannot_express_is_refused_in_words(currency: str, amount: int) -> None:
    (error,) = V1.validate(GOOD | {"currency": currency, "amount": amount})
    assert error.pointer == "/amount"
    assert "cannot be given back exactly" in error.detail


def test_the_digested_form_of_a_row_has_no_language() -> None:  # design: view digest
    translated = [
        replace(
            row, label="…", after=replace(row.after, text="…") if row.after.kind == "words" else row.after
        )
        for row in V1.diff(GOOD | {"reason": "duplicate"}, RECORD)
    ]
    assert [row.identity() for row in translated] == [
        row.identity() for row in V1.diff(GOOD | {"reason": "duplicate"}, RECORD)
    ]
    assert [row.as_json() for row in translated] != [
        row.as_json() for row in V1.diff(GOOD | {"reason": "duplicate"}, RECORD)
    ]


@pytest.mark.parametrize(
    "record", [None, RECORD, replace(RECORD, recipient=""), PaymentRecord(id="pi_3Q", missing=True)]
)
def test_rows_have_a_canonical_form(record: PaymentRecord | None) -> None:
    made = V1.diff(GOOD | {"note": "\u202e", "reason": "fraudulent"}, record)
    assert canonical([row.identity() for row in made], floats=False)
    assert canonical([row.as_json() for row in made], floats=False)
    assert len({row.key for row in made}) == len(made)


def test_three_columns_write_amounts_as_money() -> None:
    asked = {"amount": 9_899, "currency": "jpy"}
    made = {row.label: row for row in three_way(asked, asked, {"refundable": 40, "currency": "jpy"})}
    assert (made["amount"].requested, made["refundable"].now) == ("9,899 JPY", "40 JPY")
    assert not made["currency"].differs
    assert three_way({"amount": 5, "currency": "gbp"}, {}, {"currency": "inr"})[1].differs  # K60
