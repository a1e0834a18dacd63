"""Placeholder until the real room lands."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ledger.providers.base import PaymentRecord


@dataclass(frozen=True, kw_only=True)
class Shortfall:
    reason: str
    message: str
    requested: Mapping[str, Any] = field(default_factory=dict)
    approved: Mapping[str, Any] = field(default_factory=dict)
    now: Mapping[str, Any] = field(default_factory=dict)


def check_refund(
    record: PaymentRecord,
    *,
    amount: int,
    currency: str,
    own_key: str | None,
    own_unresolved: bool,
    reserved: Mapping[str, int],
) -> Shortfall | None:
    listed = {r.operation_key for r in record.refunds if r.operation_key}
    if record.missing or record.disputed:
        return Shortfall(reason="payment_disputed", message="x", now={"disputed": True})
    available = record.amount - record.refunded - sum(v for k, v in reserved.items() if k not in listed)
    if own_unresolved:
        available += amount
    if available < amount:
        return Shortfall(reason="amount_exceeds_refundable", message="x", now={"refundable": available})
    return None
