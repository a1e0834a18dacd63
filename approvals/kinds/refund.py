"""Refunding a payment: the first kind of action. Amounts are integers in the currency's minor unit, nothing else.

Nothing is converted or rounded: another currency than the payment's is refused, an amount that the provider
cannot express likewise (K58, K60).
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from approvals.kinds.base import DiffRow, FieldError, Kind, KindVersion, Title, Value
from ledger import money
from ledger.preconditions import refundable
from ledger.providers.base import PaymentRecord
from ledger.providers.stripe_amounts import to_provider

REASONS = {
    "duplicate": "duplicate",
    "fraudulent": "fraudulent",
    "requested_by_customer": "requested by the customer",
}
MAX_AMOUNT = 999_999_999_999

SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "refund, version 1",
    "type": "object",
    "additionalProperties": False,
    "required": ["payment", "amount", "currency"],
    "properties": {
        "payment": {
            "type": "string",
            "pattern": "^pi_[A-Za-z0-9_]{1,200}$",  # one name a payment: its lock and its history hang on it
            "description": "the provider's id of the payment, such as pi_3Q…",
        },
        "amount": {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_AMOUNT,
            "description": f"a whole number of minor units from 1 to {MAX_AMOUNT}, without quotes, point or exponent",
        },
        "currency": {
            "type": "string",
            "pattern": "^[A-Za-z]{3}$",
            "description": "a three-letter ISO 4217 code, such as usd",
        },
        "reason": {
            "type": "string",
            "enum": list(REASONS),
            "description": "one of " + ", ".join(REASONS),
        },
        "customer": {
            "type": "string",
            "minLength": 1,
            "maxLength": 200,
            "description": "a text of 1 to 200 characters: your own name or number for the customer",
        },
        "note": {
            "type": "string",
            "minLength": 1,
            "maxLength": 5000,
            "description": "a text of 1 to 5,000 characters for the reviewer",
        },
    },
}
UNDO = "cannot be undone; a new charge needs the customer"


def check(parameters: Mapping[str, Any]) -> list[FieldError]:
    """What the schema cannot say: a whole number is an int, the currency exists, the provider can express it."""
    errors = []
    amount = parameters["amount"]
    if isinstance(amount, bool) or not isinstance(amount, int):
        detail = "must be " + SCHEMA["properties"]["amount"]["description"]
        errors.append(FieldError(detail=detail, pointer="/amount"))
    try:
        money.currency_code(parameters["currency"])
    except money.UnknownCurrencyError as error:
        errors.append(FieldError(detail=str(error), pointer="/currency"))
    if not errors:
        try:
            to_provider(amount, parameters["currency"].lower())
        except ValueError as error:
            detail = f"cannot be given back exactly by the payment provider: {error}"
            errors.append(FieldError(detail=detail, pointer="/amount"))
    return errors


def normalize(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The one form that is shown, fingerprinted and sent. Idempotent; text stays as it was written."""
    return {**parameters, "currency": parameters["currency"].lower()}


def _money(normalized: Mapping[str, Any]) -> tuple[int, str]:
    return normalized["amount"], normalized["currency"]


def title(normalized: Mapping[str, Any], record: PaymentRecord | None) -> Title:
    """Refund 49.00 USD to Dana Fox."""
    to = record.recipient if record and not record.missing else ""
    return Title(verb="Refund", amount=normalized["amount"], currency=normalized["currency"], to=to)


def diff(normalized: Mapping[str, Any], record: PaymentRecord | None) -> tuple[DiffRow, ...]:
    """What will change, from the provider's own record where it has been read (R-B2)."""
    amount, currency = _money(normalized)
    rows = [
        DiffRow(key="amount", label="Refund", after=Value(kind="money", amount=amount, currency=currency))
    ]
    rows += _provider_rows(normalized, record)
    if reason := normalized.get("reason"):
        rows.append(
            DiffRow(key="reason", label="Reason", after=_words(reason, REASONS[reason]), source="agent")
        )
    for key, label in (("customer", "Customer, as the agent names them"), ("note", "Note by the agent")):
        if text := normalized.get(key):
            rows.append(DiffRow(key=key, label=label, after=_hostile(text), source="agent"))
    rows.append(DiffRow(key="undo", label="Undo", after=_words("no_undo", UNDO)))
    return tuple(rows)


def _provider_rows(normalized: Mapping[str, Any], record: PaymentRecord | None) -> list[DiffRow]:
    amount, currency = _money(normalized)
    payment = Value(kind="code", text=normalized["payment"], hostile=True)
    if record is None:
        unread = _words("unread", "the provider's record has not been read yet")
        return [
            DiffRow(key="recipient", label="To", after=unread),
            DiffRow(key="payment", label="Payment", after=payment, source="agent"),
        ]
    if record.missing:
        unknown = _words("missing", "the payment provider does not know this payment")
        return [DiffRow(key="payment", label="Payment", after=payment, detail=(unknown,), source="provider")]
    left = refundable(record, amount=amount)
    paid = Value(kind="money", amount=record.amount, currency=record.currency)
    when = Value(kind="time", at=datetime.fromtimestamp(record.created, UTC)) if record.created else None
    rows = [
        DiffRow(
            key="recipient",
            label="To",
            after=_hostile(record.recipient)
            if record.recipient
            else _words("nameless", "no name on the payment"),
            detail=(_hostile(record.instrument),) if record.instrument else (),
            source="provider",
        ),
        DiffRow(
            key="payment",
            label="Payment",
            after=payment,
            detail=(paid, when) if when else (paid,),
            source="provider",
        ),
    ]
    if record.currency == currency:
        rows.append(
            DiffRow(
                key="refundable",
                label="Refundable",
                before=Value(kind="money", amount=left, currency=currency),
                after=Value(kind="money", amount=left - amount, currency=currency),
                source="provider",
            )
        )
    return rows


def _words(code: str, text: str) -> Value:
    return Value(kind="words", text=text, code=code)


def _hostile(text: str) -> Value:
    return Value(kind="text", text=text, hostile=True)


def cautions(normalized: Mapping[str, Any]) -> tuple[str, ...]:
    """Side effects that a reviewer must know of (Stripe: docs.stripe.com/api/refunds/create, `reason`)."""
    if normalized.get("reason") == "fraudulent":
        return ("“Fraudulent” also puts the card and the e-mail address on the provider's block lists.",)
    return ()


KIND = Kind(
    name="refund",
    summary="Give money of a payment back to whoever paid it.",
    provider="stripe",
    versions={
        1: KindVersion(
            version=1,
            schema=SCHEMA,
            effects=("refund",),
            reversibility=UNDO,
            check=check,
            normalize=normalize,
            resource=lambda normalized: str(normalized["payment"]),
            money=_money,
            customer=lambda normalized: str(normalized.get("customer", "")),
            title=title,
            diff=diff,
            cautions=cautions,
        )
    },
)
