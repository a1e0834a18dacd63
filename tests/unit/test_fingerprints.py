"""Fingerprints, keys and digests: the same for the same, different for the different, stable for ever."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals import fingerprints
from ledger import keys

REQUEST: dict[str, Any] = {
    "kind": "refund",
    "schema_version": 1,
    "run_id": "run_1",
    "step_id": "step",
    "parameters": {"payment": "pi_1", "amount": 4900, "currency": "usd"},
    "expires_in": None,
    "supersedes": None,
}


def test_key_order_and_white_space_do_not_matter() -> None:
    turned = REQUEST | {"parameters": dict(reversed(REQUEST["parameters"].items()))}
    assert fingerprints.request_fingerprint(**REQUEST) == fingerprints.request_fingerprint(**turned)


@pytest.mark.parametrize(
    "change",
    [
        {"parameters": REQUEST["parameters"] | {"amount": 4901}},
        {"parameters": REQUEST["parameters"] | {"currency": "USD"}},
        {"run_id": "run_2"},
        {"step_id": "other"},
        {"expires_in": 60},
        {"supersedes": "x"},
        {"schema_version": 2},
    ],
)
def test_everything_asked_is_in_the_request_fingerprint(change: dict[str, Any]) -> None:  # R-A3, R-A6
    assert fingerprints.request_fingerprint(**REQUEST | change) != fingerprints.request_fingerprint(**REQUEST)


def test_the_action_fingerprint_binds_tenant_and_account() -> None:  # R-B1
    base: dict[str, Any] = {
        "tenant_id": "t",
        "account_id": "a",
        "kind": "refund",
        "schema_version": 1,
        "parameters": {"amount": 1},
    }
    made = fingerprints.action_fingerprint(**base)
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", made)
    for change in (
        {"tenant_id": "u"},
        {"account_id": "b"},
        {"schema_version": 2},
        {"parameters": {"amount": 2}},
    ):
        assert fingerprints.action_fingerprint(**base | change) != made


def test_a_fingerprint_never_changes_between_versions() -> None:
    made = fingerprints.action_fingerprint(
        tenant_id="t", account_id="a", kind="refund", schema_version=1, parameters={"amount": 1}
    )
    assert made == keys.sha256(
        b'{"account":"a","kind":"refund","parameters":{"amount":1},"schema_version":1,"tenant":"t"}'
    )


def test_text_is_hashed_raw() -> None:  # K51: no Unicode normalization
    composed, decomposed = keys.canonical("\u00e9"), keys.canonical("e\u0301")
    assert keys.sha256(composed) != keys.sha256(decomposed)


@pytest.mark.parametrize(
    "bad", [2**53, -(2**53), float("nan"), float("inf"), "\ud800", {1: 2}, {"a": object()}]
)
def test_what_has_no_canonical_form_is_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match=r".*"):
        keys.canonical(bad)


@given(st.text(min_size=1, max_size=300), st.text(min_size=1, max_size=300))
def test_operation_keys_are_readable_unique_and_fit_the_provider(one: str, other: str) -> None:  # R-C1
    try:
        made = [keys.operation_key(run, "0190", "refund", 1, "refund") for run in (one, other)]
    except UnicodeEncodeError:
        return  # a lone surrogate never gets past the parser
    assert (made[0] == made[1]) == (one == other)
    assert all(re.fullmatch(r"[A-Za-z0-9._~%/@-]+", key) and len(key) <= 400 for key in made)


def test_the_provider_key_is_thirty_two_hex_digits_for_ever() -> None:
    made = keys.provider_key("tenant", "run_1/0190/refund@1/refund")
    assert re.fullmatch(r"[0-9a-f]{32}", made)
    assert made == keys.provider_key("tenant", "run_1/0190/refund@1/refund")
    assert made != keys.provider_key("other", "run_1/0190/refund@1/refund")


@pytest.mark.parametrize(
    ("run", "part"),
    [
        ("run_8812", "run_8812"),
        ("a/b@c", "a%2Fb%40c"),
        ("a~b", "a%7Eb"),  # the mark of a cut part never stands in a whole one
        ("100%", "100%25"),
        ("läuft", "l%C3%A4uft"),
        ("x" * 128, "x" * 128),
    ],
)
def test_a_run_is_readable_in_the_key(run: str, part: str) -> None:  # R-C1
    assert keys.operation_key(run, "0190", "refund", 1, "refund") == f"{part}/0190/refund@1/refund"


@pytest.mark.parametrize("run", ["x" * 129, "ä" * 100, "x" * 94 + "ä" * 50, "/" * 128, "x" * 100_000])
def test_a_long_run_is_cut_without_a_broken_escape(run: str) -> None:
    made = keys.operation_key(run, "0190a2b4-0000-7000-8000-000000000000", "refund", 1, "refund")
    assert re.fullmatch(r"([A-Za-z0-9._-]|%[0-9A-F]{2})*~[0-9a-f]{32}", made.split("/")[0])
    assert len(made) <= 200
    assert made != keys.operation_key(
        run + "x", "0190a2b4-0000-7000-8000-000000000000", "refund", 1, "refund"
    )


@pytest.mark.parametrize("value", [1.0, {"a": [1, 2.5]}, [[{"b": (0.0,)}]]])
def test_floats_are_refused_where_money_is_meant(value: Any) -> None:
    keys.canonical(value)
    with pytest.raises(ValueError, match="float"):
        keys.canonical(value, floats=False)


def test_names_are_sorted_by_utf16_code_units() -> None:  # RFC 8785, 3.2.3
    assert keys.canonical({"\ue000": 1, "\U0001f600": 2, "b": 3, "a": 4}) == (
        '{"a":4,"b":3,"\U0001f600":2,"\ue000":1}'.encode()
    )
