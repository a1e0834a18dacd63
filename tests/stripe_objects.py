"""Stripe's objects as plain dictionaries, and the request that the tests of the adapter share."""

from typing import Any

from ledger.providers.base import Account, EffectRequest
from ledger.providers.stripe import StripeAdapter

SECRET = "sk_test_adapter_secret"
OPERATION_KEY = "run_8812:0190:refund@1:refund"
PROVIDER_KEY = "0123456789abcdef0123456789abcdef"


def request(**parameters: Any) -> EffectRequest:
    """A refund of 49.00 USD on pi_1, as it would be approved."""
    return EffectRequest(
        kind="refund",
        kind_version=1,
        effect="refund",
        parameters={"payment": "pi_1", "amount": 4900, "currency": "usd", **parameters},
        operation_key=OPERATION_KEY,
        provider_key=PROVIDER_KEY,
    )


def adapter(base_url: str, secret: str = SECRET) -> StripeAdapter:
    """An adapter for an account of the tests."""
    return StripeAdapter(Account(id="acc_1", provider="stripe", base_url=base_url, secret=secret))


def refund(**changes: Any) -> dict[str, Any]:
    """https://docs.stripe.com/api/refunds/object, as far as it matters."""
    return {
        "id": "re_1",
        "object": "refund",
        "amount": 4900,
        "charge": "ch_1",
        "created": 1_790_000_000,
        "currency": "usd",
        "metadata": {"operation_key": OPERATION_KEY},
        "payment_intent": "pi_1",
        "reason": None,
        "status": "succeeded",
        **changes,
    }


def charge(**changes: Any) -> dict[str, Any]:
    """https://docs.stripe.com/api/charges/object, as far as it matters."""
    return {
        "id": "ch_1",
        "object": "charge",
        "amount": 12000,
        "amount_captured": 12000,
        "amount_refunded": 0,
        "billing_details": {"name": "Dana Fox"},
        "created": 1_789_000_000,
        "currency": "usd",
        "disputed": False,
        "payment_method_details": {"type": "card", "card": {"brand": "visa", "last4": "4242"}},
        "status": "succeeded",
        **changes,
    }


def intent(**changes: Any) -> dict[str, Any]:
    """https://docs.stripe.com/api/payment_intents/object with its charge expanded."""
    return {
        "id": "pi_1",
        "object": "payment_intent",
        "amount": 12000,
        "amount_received": 12000,
        "created": 1_789_000_000,
        "currency": "usd",
        "latest_charge": charge(),
        "status": "succeeded",
        **changes,
    }


def listing(*data: object, has_more: bool = False) -> dict[str, Any]:
    """One page of a list."""
    return {"object": "list", "url": "/v1/refunds", "data": list(data), "has_more": has_more}


def error(kind: str = "invalid_request_error", code: str | None = None) -> dict[str, Any]:
    """https://docs.stripe.com/api/errors"""
    return {"error": {"type": kind, "message": "no", **({"code": code} if code else {})}}
