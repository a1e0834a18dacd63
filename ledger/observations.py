"""What the provider says about a resource, read outside any transaction and kept as evidence."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any
from uuid import UUID

import rfc8785
from django.conf import settings

from ledger import accounts, clock
from ledger.models import Observation, ProviderAccount
from ledger.providers.base import Call, EffectRequest, KnownRefund, PaymentRecord
from ledger.transactions import Tx


def as_json(record: PaymentRecord) -> dict[str, Any]:
    """The record as it is stored."""
    plain = asdict(record)
    plain["refunds"] = [dict(refund) for refund in plain["refunds"]]
    return plain


def from_json(stored: Mapping[str, Any]) -> PaymentRecord:
    """The record as it was read."""
    values = dict(stored)
    values["refunds"] = tuple(KnownRefund(**refund) for refund in values.get("refunds", ()))
    return PaymentRecord(**values)


def read(account: ProviderAccount, request: EffectRequest) -> tuple[datetime, PaymentRecord]:
    """Ask the provider now. Returns when the question began (database clock) and the record.

    Raises ProviderUnavailableError. Never called inside a transaction.
    """
    asked_at = clock.now()
    record = accounts.adapter(account).observe(request, Call(deadline=settings.LEDGER_DEADLINE_SECONDS))
    return asked_at, record


def store(
    tx: Tx,
    *,
    action_id: UUID,
    account: ProviderAccount,
    resource_key: str,
    asked_at: datetime,
    record: PaymentRecord,
) -> Observation:
    """Keep what was read."""
    body = as_json(record)
    return Observation.objects.create(
        tenant_id=tx.tenant_id,
        action_id=action_id,
        account=account,
        resource_key=resource_key,
        asked_at=asked_at,
        answered_at=tx.now(),
        record=body,
        digest="sha256:" + hashlib.sha256(rfc8785.dumps(body)).hexdigest(),
    )
