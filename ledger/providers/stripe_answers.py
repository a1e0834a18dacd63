"""What Stripe's answers mean: bytes in, the ledger's frozen values out.

Pure: no network, no SDK, no clock. Every byte is judged as if it came from a stranger, because on the way to
us it may have been cut, replaced or invented by anything in between.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final

from ledger.providers.base import Answer, KnownRefund, Outcome, PaymentRecord, ReceiptData
from ledger.providers.response import Response
from ledger.providers.stripe_amounts import from_provider
from ledger.verdict import NO_EFFECT

_LARGEST_AMOUNT: Final = 10**15
_LAST_MOMENT: Final = 4_102_444_800  # the year 2100: a later one is no time of a payment

type Object = Mapping[str, object]

OPERATION_KEY: Final = "operation_key"
"""The metadata field in which our key travels."""

KEPT_HEADERS: Final = (
    "date",
    "idempotent-replayed",
    "original-request",
    "request-id",
    "retry-after",
    "stripe-should-retry",
    "stripe-version",
)

# Statuses and types of a definite no (https://docs.stripe.com/api/errors). Other 4xx prove nothing.
_REFUSING: Final = frozenset({400, 402, 403, 404})
_REFUSAL_TYPES: Final = frozenset(
    {"invalid_request_error", "card_error", "permission_error", "authentication_error"}
)
# Codes that speak about another request of ours, or about a lock, and so not about this refund.
_IN_THE_WAY: Final = {"idempotency_key_in_use": "key_in_use", "lock_timeout": "lock_timeout"}
_CODE: Final = re.compile(r"[a-z0-9_]{1,80}")
_REFUND_ID: Final = re.compile(r"(re|pyr)_[A-Za-z0-9_]{1,200}")
_LONGEST_WAIT: Final = 24 * 3600.0


class MalformedError(ValueError):
    """A complete answer that is not what Stripe documents."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The refund as it was asked for. `amount` is the provider's integer."""

    payment: str
    amount: int
    currency: str
    operation_key: str


def parse(response: Response) -> Object:
    """The JSON object of a body; MalformedError if it is not exactly one."""
    try:
        value: object = json.loads(response.body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise MalformedError("not JSON") from error
    if not isinstance(value, dict):
        raise MalformedError("not a JSON object")
    return value


def text(raw: bytes) -> str:
    """Bytes as text that PostgreSQL can store: what it cannot hold is written as an escape."""
    return clean(raw.decode("utf-8", "backslashreplace"))


def clean(value: str) -> str:
    """A string without U+0000 and lone surrogates, each written as an escape."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8").replace("\x00", "\\x00")


def kept_headers(response: Response) -> dict[str, str]:
    """The headers that are evidence; nothing else of them is stored."""
    return {name: clean(response.headers[name]) for name in KEPT_HEADERS if name in response.headers}


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, at most a day (RFC 9110 §10.2.3). A date is read against the answer's own `Date`."""
    value = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,9}", value):
        return min(float(value), _LONGEST_WAIT)
    try:
        wait = parsedate_to_datetime(value) - parsedate_to_datetime(headers.get("date", ""))
    except (ValueError, TypeError):  # unreadable, or one with a zone and one without
        return None
    return min(max(wait.total_seconds(), 0.0), _LONGEST_WAIT)


# -- the outcome of a refund ----------------------------------------------------------------------------


def classify(asked: Asked, response: Response) -> Answer:
    """What a complete response to `POST /v1/refunds` says about the outcome."""
    outcome, reason, receipt = _judge(asked, response)
    return Answer(
        outcome=outcome,
        reason=reason,
        status=response.status,
        headers=kept_headers(response),
        body=text(response.body),
        receipt=receipt,
        retry_after=retry_after(response.headers),
    )


def _judge(asked: Asked, response: Response) -> tuple[Outcome, str, ReceiptData | None]:
    status = response.status
    if 200 <= status < 300:
        return _judge_refund(asked, response)
    if not 400 <= status < 500:
        return Outcome.UNKNOWN, f"http_{status}", None
    error = error_of(response)
    if error is None:
        # not Stripe's voice: a proxy or something worse, which cannot know what Stripe did
        return Outcome.UNKNOWN, f"http_{status}", None
    return *_judge_error(status, error, response), None


def _judge_error(status: int, error: Object, response: Response) -> tuple[Outcome, str]:
    code, kind = _code(error.get("code")), error.get("type")
    if status == 409 or code in _IN_THE_WAY:
        return Outcome.UNKNOWN, _IN_THE_WAY.get(code, "key_in_use")
    if kind == "idempotency_error":
        # the key was used with other parameters: something of ours is already there
        return Outcome.UNKNOWN, "idempotency_mismatch"
    if status in {401, 429}:
        # Both come before the key layer (docs.stripe.com/error-low-level), so neither is ever replayed.
        if "idempotent-replayed" in response.headers:
            return Outcome.UNKNOWN, f"http_{status}"
        return Outcome.NOT_ACCEPTED, "unauthorized" if status == 401 else "rate_limited"
    if status in _REFUSING and kind in _REFUSAL_TYPES:
        return Outcome.REFUSED, code or str(kind)
    return Outcome.UNKNOWN, f"http_{status}"


def _judge_refund(asked: Asked, response: Response) -> tuple[Outcome, str, ReceiptData | None]:
    try:
        refund = parse(response)
        receipt = receipt_of(refund)
    except ValueError:
        return Outcome.UNKNOWN, "malformed", None
    key = own_key(refund)
    if (
        not belongs_to(refund, asked.payment)
        or refund["amount"] != asked.amount
        or receipt.currency != asked.currency.lower()
        or key not in {None, asked.operation_key}
    ):
        return Outcome.UNKNOWN, "mismatched_receipt", None
    if receipt.provider_status in NO_EFFECT:
        return Outcome.REFUSED, f"refund_{receipt.provider_status}", None
    return Outcome.ACCEPTED, "ok", receipt


def error_of(response: Response) -> Object | None:
    """The `error` of a Stripe error body, or None if the body is not one."""
    try:
        error = parse(response).get("error")
    except MalformedError:
        return None
    return error if isinstance(error, dict) and isinstance(error.get("type"), str) else None


def is_missing(response: Response) -> bool:
    """Stripe's own word that it has no such object."""
    error = error_of(response)
    return response.status == 404 and error is not None and error.get("code") == "resource_missing"


def failure(response: Response) -> str:
    """A stable code for a read that did not answer the question."""
    return {401: "unauthorized", 429: "rate_limited"}.get(response.status, f"http_{response.status}")


def _code(value: object) -> str:
    return value if isinstance(value, str) and _CODE.fullmatch(value) else ""


# -- objects --------------------------------------------------------------------------------------------


def receipt_of(refund: Object) -> ReceiptData:
    """A refund as a receipt, its amount in ISO minor units; ValueError if it is not well-formed."""
    identifier = _string(refund, "id")
    if refund.get("object") != "refund" or not _REFUND_ID.fullmatch(identifier):
        raise MalformedError("not a refund")
    currency = _string(refund, "currency").lower()
    return ReceiptData(
        reference=identifier,
        amount=from_provider(_count(refund, "amount"), currency),
        currency=currency,
        provider_status=_string(refund, "status"),
        created=_moment(refund),
    )


def known_refund(refund: Object) -> KnownRefund:
    """A refund as it is listed on a payment; ValueError if it is not well-formed."""
    receipt = receipt_of(refund)
    return KnownRefund(
        id=receipt.reference,
        amount=receipt.amount,
        status=receipt.provider_status,
        operation_key=own_key(refund),
        created=receipt.created,
    )


def own_key(refund: Object) -> str | None:
    """The operation key in a refund's metadata; None if there is none."""
    key = _member(refund, "metadata").get(OPERATION_KEY)
    return clean(key) if isinstance(key, str) else None


def belongs_to(refund: Object, payment: str) -> bool:
    """Whether a refund is one of this payment intent (`pi_…`) or charge (`ch_…`, `py_…`)."""
    return refund.get("payment_intent" if payment.startswith("pi_") else "charge") == payment


def payment_record(payment: Object, charge: Object, refunds: tuple[KnownRefund, ...]) -> PaymentRecord:
    """The record of a payment intent with its latest charge, or of a charge given as both.

    ValueError if a part that money depends on is missing or malformed.
    """
    currency = _string(payment, "currency").lower()
    # What arrived is what can go back: less than was asked for after a partial capture.
    arrived = payment.get("amount_received") or payment.get("amount_captured")
    amount = _whole(arrived) if arrived else _count(payment, "amount")
    told = _count(charge, "amount_refunded") if charge else 0
    listed = sum(refund.amount for refund in refunds if refund.status not in {"failed", "canceled"})
    return PaymentRecord(
        id=_string(payment, "id"),
        amount=from_provider(amount, currency),
        # Two reads, and a refund may fall between them or be hidden from the list: the larger one holds.
        refunded=max(from_provider(told, currency), listed),
        currency=currency,
        status=_string(payment, "status"),
        disputed=bool(charge.get("disputed")),
        recipient=_words(_member(charge, "billing_details").get("name")),
        instrument=_instrument(_member(charge, "payment_method_details")),
        created=_moment(payment),
        refunds=refunds,
    )


def _instrument(details: Object) -> str:
    kind = _words(details.get("type"))
    method = _member(details, kind)
    last4 = _words(method.get("last4"))
    name = _words(method.get("brand")) or kind
    return f"{name} ···· {last4}" if last4 else name


def _member(value: Object, name: str) -> Object:
    member = value.get(name)
    return member if isinstance(member, dict) else {}


def _words(value: object) -> str:
    return clean(value) if isinstance(value, str) else ""


def _string(value: Object, name: str) -> str:
    member = value.get(name)
    if not isinstance(member, str) or not member:
        raise MalformedError(f"{name} is not a text")
    return clean(member)


def _count(value: Object, name: str) -> int:
    return _whole(value.get(name))


def _whole(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _LARGEST_AMOUNT:
        raise MalformedError("an amount is not a whole number in any sensible range")
    return value


def _moment(value: Object) -> int | None:
    created = value.get("created")
    return created if type(created) is int and 0 <= created <= _LAST_MOMENT else None
