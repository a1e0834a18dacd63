"""Stripe's minor units against ISO 4217's (K58): the adapter's own table, exact in both directions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.money import CURRENCIES, exponent
from ledger.providers.stripe import from_provider, to_provider
from ledger.providers.stripe_amounts import NotRepresentableError


@pytest.mark.parametrize(
    ("amount", "currency", "provider_amount"),
    [
        (4900, "usd", 4900),
        (4900, "USD", 4900),
        (9899, "jpy", 9899),  # K58: not 989900
        (500, "isk", 50000),  # no decimals in ISO, two at Stripe
        (500, "ugx", 50000),
        (12300, "mga", 123),  # two decimals in ISO, none at Stripe
        (5120, "kwd", 5120),
        (1045, "huf", 1045),  # whole units are asked for in payouts only
        (1045, "twd", 1045),
        (0, "usd", 0),
    ],
)
def test_an_amount_is_translated_both_ways(amount: int, currency: str, provider_amount: int) -> None:
    assert to_provider(amount, currency) == provider_amount
    assert from_provider(provider_amount, currency) == amount


def test_zero_decimal_currencies_pass_unchanged() -> None:
    codes = "BIF CLP DJF GNF JPY KMF KRW PYG RWF VND VUV XAF XOF XPF"
    for currency in codes.split():
        assert exponent(currency) == 0
        assert to_provider(1234, currency) == 1234


@pytest.mark.parametrize("currency", ["BHD", "JOD", "KWD", "OMR", "TND"])
def test_three_decimal_currencies_end_in_zero(currency: str) -> None:
    assert to_provider(5120, currency) == 5120
    with pytest.raises(NotRepresentableError, match="last digit of 0"):
        to_provider(5124, currency)


@pytest.mark.parametrize(
    ("amount", "currency"), [(12345, "mga"), (100, "iqd"), (100, "lyd"), (1, "clf"), (1, "uyi")]
)
def test_what_stripe_cannot_say_is_refused(amount: int, currency: str) -> None:
    with pytest.raises(NotRepresentableError):
        to_provider(amount, currency)


@pytest.mark.parametrize("currency", ["isk", "ugx"])
def test_a_fraction_that_iso_cannot_say_is_refused(currency: str) -> None:
    with pytest.raises(NotRepresentableError):
        from_provider(4010, currency)


@pytest.mark.parametrize("amount", [True, 49.0, "49", None])
def test_only_an_integer_is_translated(amount: object) -> None:
    for translate in (to_provider, from_provider):
        with pytest.raises(TypeError):
            translate(amount, "usd")  # type: ignore[arg-type]


@given(st.integers(min_value=0, max_value=10**15), st.sampled_from(sorted(CURRENCIES)))
def test_no_amount_changes_on_the_way_there_and_back(amount: int, currency: str) -> None:
    try:
        provider_amount = to_provider(amount, currency)
    except NotRepresentableError:
        return
    assert type(provider_amount) is int
    assert from_provider(provider_amount, currency) == amount
