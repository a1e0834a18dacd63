"""Amounts of money as integers in a currency's ISO 4217 minor unit, and how they are written for people.

Pure: no database, no locale, never a float. What a provider means by an amount is the provider's business
(each adapter owns its own table); nothing here rounds or converts.
"""

from typing import Final

_DEFAULT_EXPONENT: Final = 2

# ISO 4217 list one ("current currency and funds codes"), minor units other than two.
_NONE: Final = "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF"
_THREE: Final = "BHD IQD JOD KWD LYD OMR TND"
_FOUR: Final = "CLF UYW"
_EXPONENTS: Final = {
    **dict.fromkeys(_NONE.split(), 0),
    **dict.fromkeys(_THREE.split(), 3),
    **dict.fromkeys(_FOUR.split(), 4),
}

# ISO 4217 list one without the codes that have no minor unit (metals, XDR, XSU, XUA, XTS, XXX, …) and as it
# stands in 2026: SLE for SLL, ZWG for ZWL, XCG for ANG; CUC, HRK and BGN are gone.
_LIST_ONE: Final = """
AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BHD BIF BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF
CHE CHF CHW CLF CLP CNY COP COU CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP
GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT
LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR
NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN
SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD USN UYI UYU UYW UZS VED VES VND VUV WST XAF
XCD XCG XOF XPF YER ZAR ZMW ZWG
"""

CURRENCIES: Final = frozenset(_LIST_ONE.split())


class UnknownCurrencyError(ValueError):
    """Not an active ISO 4217 currency code. Use a three-letter code such as `usd`."""


def currency_code(currency: str) -> str:
    """The upper-case code of an active currency given in either case; UnknownCurrencyError otherwise."""
    # ASCII first: "uſd".upper() is "USD"
    if not isinstance(currency, str) or not currency.isascii() or currency.upper() not in CURRENCIES:
        raise UnknownCurrencyError(f"not an active ISO 4217 currency: {currency!r}")
    return currency.upper()


def exponent(currency: str) -> int:
    """How many decimals the currency has: 2 for usd, 0 for jpy, 3 for kwd."""
    return _EXPONENTS.get(currency_code(currency), _DEFAULT_EXPONENT)


def whole_amount(amount: object) -> int:
    """`amount` if it is an int in the strict sense; TypeError for a bool, a float or anything else."""
    if type(amount) is not int:
        raise TypeError(f"an amount is an integer in minor units, not {type(amount).__name__}")
    return amount


def format_number(amount: int, currency: str) -> str:
    """The number alone, with thousands separators and the currency's real decimals: 4900 usd → `49.00`."""
    decimals = exponent(currency)
    units, rest = divmod(abs(whole_amount(amount)), 10**decimals)
    sign = "-" if amount < 0 else ""
    fraction = f".{rest:0{decimals}d}" if decimals else ""
    return f"{sign}{units:,}{fraction}"


def format_amount(amount: int, currency: str) -> str:
    """The number and its code: 4900 usd → `49.00 USD`, 9899 jpy → `9,899 JPY`."""
    return f"{format_number(amount, currency)} {currency_code(currency)}"
