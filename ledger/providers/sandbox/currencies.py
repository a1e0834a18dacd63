"""Which currencies the sandbox takes and in which steps of the provider's minor unit. Pure.

Stripe's exponents are not always those of ISO 4217 (https://docs.stripe.com/currencies): three-decimal
currencies take minor units whose last digit is 0, and ISK and UGX keep two decimals that are always 00.
"""

from .errors import ApiError


def _codes(text: str) -> frozenset[str]:
    return frozenset(text.split())


ZERO_DECIMALS = _codes("bif clp djf gnf jpy kmf krw mga pyg rwf vnd vuv xaf xof xpf")
THREE_DECIMALS = _codes("bhd jod kwd omr tnd")
WHOLE_UNITS = frozenset({"isk", "ugx"})
TWO_DECIMALS = _codes(
    "aed aud bgn brl cad chf cny cop czk dkk egp eur gbp hkd huf idr ils inr mad mxn myr ngn nok nzd pen php "
    "pln qar ron sar sek sgd thb try twd uah usd zar"
)
KNOWN = ZERO_DECIMALS | TWO_DECIMALS | THREE_DECIMALS | WHOLE_UNITS
MAX_AMOUNT = 999_999_999_999
"""Twelve digits: more than Stripe's usual eight, so that large currencies can be seeded."""


def exponent(currency: str) -> int:
    """How many decimals the provider's minor unit has."""
    if currency in ZERO_DECIMALS:
        return 0
    return 3 if currency in THREE_DECIMALS else 2


def check_currency(currency: str) -> str:
    """The currency in lower case, or ApiError (400)."""
    lowered = currency.lower()
    if lowered not in KNOWN:
        raise ApiError(400, f"Invalid currency: {currency}", param="currency")
    return lowered


def check_amount(amount: int, currency: str) -> None:
    """Raises ApiError (400) where `amount` minor units cannot be paid in `currency`."""
    step = 10 if currency in THREE_DECIMALS else 100 if currency in WHOLE_UNITS else 1
    if amount % step:
        raise ApiError(
            400, f"Invalid amount: {currency.upper()} amounts must be divisible by {step}", param="amount"
        )


def shown(amount: int, currency: str) -> str:
    """`4900` usd as `49.00 USD`, for messages only."""
    decimals = exponent(currency)
    if decimals == 0:
        return f"{amount} {currency.upper()}"
    whole, part = divmod(amount, 10**decimals)
    return f"{whole}.{part:0{decimals}d} {currency.upper()}"
