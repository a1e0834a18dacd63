"""The sandbox's rows and how they look as Stripe's JSON objects. Frozen values in, JSON out; no store."""

import secrets
import string
from dataclasses import dataclass, field

from .errors import JsonObject

ALPHABET = string.ascii_letters + string.digits
NOT_REFUNDED = frozenset({"failed", "canceled"})
"""Statuses of a refund whose amount went back to the merchant."""


def new_id(prefix: str) -> str:
    """A fresh id in Stripe's shape, e.g. `re_3…`."""
    return f"{prefix}_3" + "".join(secrets.choice(ALPHABET) for _ in range(23))


@dataclass(frozen=True, kw_only=True)
class Payment:
    """A payment intent with its one charge. `charge` is None until an instrument was tried.

    `amount` and `refunded` in the provider's minor units; `created` in Unix seconds by the sandbox's clock.
    """

    seq: int
    id: str
    account: str
    charge: str | None
    amount: int
    currency: str
    status: str
    refunded: int
    disputed: bool
    name: str
    brand: str
    last4: str
    description: str | None
    failure: str | None
    metadata: dict[str, str] = field(default_factory=dict)
    created: float

    @property
    def succeeded(self) -> bool:
        """Whether the money has arrived."""
        return self.status == "succeeded"


@dataclass(frozen=True, kw_only=True)
class Refund:
    """A refund. It is left out of lists until `hidden_until` (Unix seconds by the sandbox's clock)."""

    seq: int
    id: str
    account: str
    payment: str
    charge: str
    amount: int
    currency: str
    status: str
    reason: str | None
    failure_reason: str | None
    metadata: dict[str, str] = field(default_factory=dict)
    created: float
    hidden_until: float


def payment_intent_object(payment: Payment) -> JsonObject:
    """https://docs.stripe.com/api/payment_intents/object"""
    return {
        "id": payment.id,
        "object": "payment_intent",
        "amount": payment.amount,
        "amount_capturable": 0,
        "amount_received": payment.amount if payment.succeeded else 0,
        "canceled_at": None,
        "cancellation_reason": None,
        "capture_method": "automatic_async",
        "client_secret": None,
        "confirmation_method": "automatic",
        "created": int(payment.created),
        "currency": payment.currency,
        "customer": None,
        "description": payment.description,
        "last_payment_error": {"type": "card_error", "code": payment.failure} if payment.failure else None,
        "latest_charge": payment.charge,
        "livemode": False,
        "metadata": dict(payment.metadata),
        "next_action": None,
        "payment_method": None,
        "payment_method_types": ["card"],
        "receipt_email": None,
        "status": payment.status,
    }


def charge_object(payment: Payment) -> JsonObject:
    """https://docs.stripe.com/api/charges/object, for the charge of `payment`."""
    return {
        "id": payment.charge,
        "object": "charge",
        "amount": payment.amount,
        "amount_captured": payment.amount if payment.succeeded else 0,
        "amount_refunded": payment.refunded,
        "balance_transaction": f"txn_{payment.id[3:]}" if payment.succeeded else None,
        "billing_details": {"address": None, "email": None, "name": payment.name or None, "phone": None},
        "captured": payment.succeeded,
        "created": int(payment.created),
        "currency": payment.currency,
        "customer": None,
        "description": payment.description,
        "disputed": payment.disputed,
        "failure_code": payment.failure,
        "failure_message": "Your card was declined." if payment.failure else None,
        "livemode": False,
        "metadata": dict(payment.metadata),
        "paid": payment.succeeded,
        "payment_intent": payment.id,
        "payment_method": None,
        "payment_method_details": {
            "card": {"brand": payment.brand, "last4": payment.last4, "funding": "credit", "country": "US"},
            "type": "card",
        },
        "receipt_email": None,
        "refunded": payment.succeeded and payment.refunded == payment.amount,
        "status": "succeeded" if payment.succeeded else "failed",
    }


def refund_object(refund: Refund) -> JsonObject:
    """https://docs.stripe.com/api/refunds/object"""
    found: JsonObject = {
        "id": refund.id,
        "object": "refund",
        "amount": refund.amount,
        "balance_transaction": f"txn_{refund.id[3:]}",
        "charge": refund.charge,
        "created": int(refund.created),
        "currency": refund.currency,
        "destination_details": {"card": {"reference_status": "pending", "type": "refund"}, "type": "card"},
        "metadata": dict(refund.metadata),
        "payment_intent": refund.payment,
        "reason": refund.reason,
        "receipt_number": None,
        "source_transfer_reversal": None,
        "status": refund.status,
        "transfer_reversal": None,
    }
    if refund.failure_reason is not None:
        found["failure_reason"] = refund.failure_reason
        found["failure_balance_transaction"] = f"txn_f{refund.id[3:]}"
    if refund.status == "pending":
        found["pending_reason"] = "processing"
    return found


def list_object(url: str, data: list[JsonObject], *, has_more: bool) -> JsonObject:
    """https://docs.stripe.com/api/pagination"""
    return {"object": "list", "url": url, "has_more": has_more, "data": [*data]}
