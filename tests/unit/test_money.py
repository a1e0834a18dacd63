"""Money for people: the currency's real decimals, and never a float (K58)."""

import pytest

from ledger.money import (
    CURRENCIES,
    UnknownCurrencyError,
    exponent,
    format_amount,
    format_number,
    whole_amount,
)


@pytest.mark.parametrize(
    ("amount", "currency", "number"),
    [
        (4900, "usd", "49.00"),
        (4900, "USD", "49.00"),
        (12000, "usd", "120.00"),
        (123456789, "eur", "1,234,567.89"),
        (5, "usd", "0.05"),
        (0, "usd", "0.00"),
        (-4900, "usd", "-49.00"),
        (-5, "usd", "-0.05"),
        (9899, "jpy", "9,899"),  # K58: no decimals, no hundredfold
        (5120, "kwd", "5.120"),
        (1234567, "kwd", "1,234.567"),
        (10000, "clf", "1.0000"),
        (500, "isk", "500"),
        (500, "huf", "5.00"),
        (9007199254740993, "usd", "90,071,992,547,409.93"),  # a float would have lost the last cent
    ],
)
def test_an_amount_is_written_with_the_decimals_of_its_currency(
    amount: int, currency: str, number: str
) -> None:
    assert format_number(amount, currency) == number
    assert format_amount(amount, currency) == f"{number} {currency.upper()}"


@pytest.mark.parametrize(
    ("decimals", "codes"),
    [
        (0, "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF"),
        (3, "BHD IQD JOD KWD LYD OMR TND"),
        (4, "CLF UYW"),
    ],
)
def test_exactly_these_currencies_have_other_than_two_decimals(decimals: int, codes: str) -> None:
    assert {code for code in CURRENCIES if exponent(code) == decimals} == set(codes.split())


def test_the_other_active_currencies_have_two_decimals() -> None:
    assert {exponent(code) for code in ("MGA", "MRU", "HUF", "TWD", "SLE", "ZWG", "XCG", "VES")} == {2}
    assert all(len(code) == 3 and code.isascii() and code.isupper() for code in CURRENCIES)
    assert len(CURRENCIES) == 164


@pytest.mark.parametrize(
    "currency", ["", "us", "usdd", "xyz", "HRK", "XAU", "XXX", "US$", "uſd", "ＵＳＤ", " usd", None, 840]
)
def test_a_code_that_is_not_an_active_currency_is_refused(currency: object) -> None:
    with pytest.raises(UnknownCurrencyError):
        format_amount(1, currency)  # type: ignore[arg-type]


@pytest.mark.parametrize("amount", [True, False, 49.0, "49", None, float("nan")])
def test_only_an_integer_is_an_amount(amount: object) -> None:
    with pytest.raises(TypeError):
        whole_amount(amount)
    with pytest.raises(TypeError):
        format_number(amount, "usd")  # type: ignore[arg-type]
