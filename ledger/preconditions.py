"""What the provider's record must still allow before money moves. Pure: a record in, a shortfall or nothing out.

Checked when a proposal is observed, and again in the claim. Amounts are in the currency's minor units.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ledger.providers.base import PaymentRecord
from ledger.verdict import NO_EFFECT

NOT_REFUNDED = NO_EFFECT


@dataclass(frozen=True, kw_only=True)
class Shortfall:
    """Why a refund cannot go: a stable code, a sentence, and the facts as asked, approved and now."""

    reason: str
    message: str
    requested: Mapping[str, Any] = field(default_factory=dict)
    approved: Mapping[str, Any] = field(default_factory=dict)
    now: Mapping[str, Any] = field(default_factory=dict)


def refundable(
    record: PaymentRecord,
    *,
    amount: int,
    own_key: str | None = None,
    own_unresolved: bool = False,
    reserved: Mapping[str, int] | None = None,
) -> int:
    """How much of the payment may still be refunded by us, in minor units; never counts an amount twice.

    `reserved` maps the keys of our other operations on this payment that may not show in the record yet to
    their amounts. One that the record lists is in `refunded` already. What the record counts as refunded but
    does not list (a listing can lag) may be theirs too, and is taken off their sum. An unresolved operation
    does not hold its own amount against itself: where the record counts it, it is added back, and what is
    hidden can then explain the others' amounts no more.
    """
    standing = [refund for refund in record.refunds if refund.status not in NOT_REFUNDED]
    listed = {refund.operation_key for refund in standing if refund.operation_key}
    hidden = max(0, record.refunded - sum(refund.amount for refund in standing))
    unlisted = sum(value for key, value in (reserved or {}).items() if key not in listed and key != own_key)
    own = 0
    if own_unresolved and own_key is not None:
        if own_key in listed:
            own = min(amount, sum(refund.amount for refund in standing if refund.operation_key == own_key))
        elif hidden >= amount:  # a refund is hidden whole or not at all
            own = amount
            hidden -= amount
    return record.amount - record.refunded + own - max(0, unlisted - hidden)


def check_refund(
    record: PaymentRecord,
    *,
    amount: int,
    currency: str,
    own_key: str | None = None,
    own_unresolved: bool = False,
    reserved: Mapping[str, int] | None = None,
) -> Shortfall | None:
    """The first thing that stands in the way, or None (R-C5, K60, K61).

    `approved` repeats what was asked: parameters are never reinterpreted between asking and paying.
    """
    asked = {"amount": amount, "currency": currency}
    if type(amount) is not int or amount < 1:  # a bool is an int to Python
        return Shortfall(
            reason="amount_invalid",
            message="The amount is no positive whole number of minor units.",
            requested=asked,
            approved=asked,
        )
    if record.missing:
        return Shortfall(
            reason="payment_missing",
            message="The payment provider does not know this payment.",
            requested=asked,
            approved=asked,
            now={"payment": record.id, "known": False},
        )
    if own_key is not None and not own_unresolved and _is_listed(record, own_key):
        # a late original (R-D8) or a restored backup: our books know of no attempt, the provider's show its effect
        return Shortfall(
            reason="already_refunded",
            message="The provider already lists a refund under this operation's key. Do not send it again.",
            requested=asked,
            approved=asked,
            now={"refunded": record.refunded, "currency": record.currency},
        )
    if record.currency != currency:
        return Shortfall(
            reason="currency_mismatch",
            message="The payment was made in another currency; nothing is converted here.",
            requested=asked,
            approved=asked,
            now={"currency": record.currency},
        )
    if record.status != "succeeded":
        return Shortfall(
            reason="payment_not_succeeded",
            message="The money of this payment has not arrived, so there is nothing to give back.",
            requested=asked,
            approved=asked,
            now={"status": record.status},
        )
    if record.disputed:
        return Shortfall(
            reason="payment_disputed",
            message="The payer disputes this payment at their bank; a refund could pay them twice.",
            requested=asked,
            approved=asked,
            now={"disputed": True},
        )
    left = refundable(
        record, amount=amount, own_key=own_key, own_unresolved=own_unresolved, reserved=reserved
    )
    if left < amount:
        return Shortfall(
            reason="amount_exceeds_refundable",
            message="Less than this amount is left to refund on the payment.",
            requested=asked,
            approved=asked,
            now={"refundable": max(0, left), "refunded": record.refunded, "currency": record.currency},
        )
    return None


def _is_listed(record: PaymentRecord, key: str) -> bool:
    return any(refund.operation_key == key and refund.status not in NOT_REFUNDED for refund in record.refunds)
