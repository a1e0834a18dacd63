"""What Stripe means by an amount, which is not always what ISO 4217 means. Pure integers.

Source: https://docs.stripe.com/currencies (zero-decimal list, special cases, three-decimal currencies) and
https://support.stripe.com/questions/deprecation-of-fractional-isk-charges-and-refunds.
HUF and TWD are whole units for payouts only; charges and refunds have two decimals, as in ISO.
"""

from typing import Final

from ledger.money import currency_code, exponent, whole_amount

_ZERO_DECIMAL: Final = "BIF CLP DJF GNF JPY KMF KRW MGA PYG RWF VND VUV XAF XOF XPF".split()  # noqa: SIM905
# Whole units only, yet written with two decimals, which must be 00.
_HUNDREDS: Final = ("ISK", "UGX")
# Written with three decimals, of which the last must be 0.
_THREE_DECIMAL: Final = ("BHD", "JOD", "KWD", "OMR", "TND")


class NotRepresentableError(ValueError):
    """Stripe has no way to say this amount in this currency. Choose an amount that it can move."""


def _decimals(code: str) -> int:
    if code in _ZERO_DECIMAL:
        return 0
    if code in _THREE_DECIMAL:
        return 3
    if code in _HUNDREDS or exponent(code) == 2:
        return 2
    raise NotRepresentableError(f"Stripe does not take {code}")


def _rescale(amount: int, by: int, code: str, side: str) -> int:
    """`amount` × 10^by, exactly."""
    if by >= 0:
        return amount * int(10**by)
    scaled, rest = divmod(amount, int(10**-by))
    if rest:
        raise NotRepresentableError(f"{side} {amount} {code} is not a whole number of the other side's units")
    return scaled


def to_provider(amount: int, currency: str) -> int:
    """ISO 4217 minor units to the integer Stripe wants; NotRepresentableError if there is none.

    9899 jpy → 9899, 500 isk → 50000, 12300 mga → 123, 5120 kwd → 5120, 5124 kwd → error.
    """
    code = currency_code(currency)
    if code in _THREE_DECIMAL and whole_amount(amount) % 10:
        raise NotRepresentableError(f"Stripe takes {code} with a last digit of 0, not {amount}")
    return _rescale(whole_amount(amount), _decimals(code) - exponent(code), code, "ISO amount")


def from_provider(amount: int, currency: str) -> int:
    """Stripe's integer to ISO 4217 minor units; NotRepresentableError for a fraction of one."""
    code = currency_code(currency)
    return _rescale(whole_amount(amount), exponent(code) - _decimals(code), code, "Stripe's amount")
