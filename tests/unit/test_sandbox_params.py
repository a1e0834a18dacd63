"""The sandbox's reading of form-encoded parameters, by tables and properties."""

from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.providers.sandbox.currencies import check_amount, check_currency, shown
from ledger.providers.sandbox.errors import ApiError
from ledger.providers.sandbox.params import Params, Reader, fingerprint, parse_form


@pytest.mark.parametrize(
    ("text", "params"),
    [
        ("", {}),
        ("a=1", {"a": "1"}),
        ("a=", {"a": ""}),
        ("metadata[key]=v%20w&metadata[other]=%C3%A9", {"metadata": {"key": "v w", "other": "é"}}),
        ("expand[]=a&expand[]=b", {"expand": {"0": "a", "1": "b"}}),
        ("expand[0]=a&expand[1]=b", {"expand": {"0": "a", "1": "b"}}),
        ("a[b][c]=1&a[b][d]=2", {"a": {"b": {"c": "1", "d": "2"}}}),
    ],
)
def test_bracket_notation(text: str, params: Params) -> None:
    assert parse_form(text) == params


@pytest.mark.parametrize(
    "text",
    [
        "amount=1&amount=2",
        "a=1&a[b]=2",
        "a[b]=2&a=1",
        "a",
        "[b]=1",
        "a[b=1",
        "a]=1",
        "a[b]c=1",
        "a=%ff",
        "=1",
    ],
)
def test_what_could_be_read_two_ways_is_refused(text: str) -> None:
    with pytest.raises(ApiError) as raised:
        parse_form(text)
    assert raised.value.status == 400


@given(st.dictionaries(st.from_regex(r"\A[a-z]{1,8}\Z"), st.text(alphabet=st.characters(codec="utf-8"))))
def test_any_text_comes_through_and_order_does_not_matter(values: dict[str, str]) -> None:
    params = parse_form(urlencode(values))
    assert params == values
    backwards = parse_form(urlencode(dict(reversed(values.items()))))
    assert fingerprint(backwards) == fingerprint(params)


@given(st.text(max_size=60))
def test_no_text_breaks_the_parser(text: str) -> None:
    try:
        parse_form(text)
    except ApiError as error:
        assert error.status == 400  # noqa: PT017  (either outcome is right)


@pytest.mark.parametrize("text", ["", "abc", "1.0", "1e3", "１", "1_0", " 1", "+1", "01", "9" * 16, "-0x1"])
def test_only_plain_digits_are_an_integer(text: str) -> None:
    with pytest.raises(ApiError) as raised:
        Reader({"amount": text}).integer("amount", least=-10, most=10**12)
    assert raised.value.code == "parameter_invalid_integer"


def test_leftovers_are_unknown() -> None:
    reader = Reader({"a": "1", "b": "2"})
    assert reader.text("a") == "1"
    with pytest.raises(ApiError, match="unknown parameter: b"):
        reader.done()


def test_metadata_keeps_stripes_limits() -> None:
    assert Reader({"metadata": {"a": "b", "gone": ""}}).metadata() == {"a": "b"}
    wrongs: list[Params] = [
        {"k" * 41: "v"},
        {"k": "v" * 501},
        {str(number): "v" for number in range(51)},
        {"k": {"deep": "v"}},
    ]
    for wrong in wrongs:
        with pytest.raises(ApiError):
            Reader({"metadata": wrong}).metadata()


@pytest.mark.parametrize(
    ("amount", "currency", "right"),
    [(9899, "jpy", True), (1, "usd", True), (1230, "kwd", True), (1235, "kwd", False), (150, "isk", False)],
)
def test_steps_of_the_providers_minor_unit(amount: int, currency: str, right: bool) -> None:
    if right:
        check_amount(amount, currency)
    else:
        with pytest.raises(ApiError):
            check_amount(amount, currency)


def test_currencies_are_known_ones() -> None:
    assert check_currency("USD") == "usd"
    with pytest.raises(ApiError):
        check_currency("usdd")
    assert [shown(4905, currency) for currency in ("usd", "jpy", "kwd")] == [
        "49.05 USD",
        "4905 JPY",
        "4.905 KWD",
    ]
