"""The contract between the ledger and a provider: frozen values in, frozen values out.

An adapter speaks one provider's protocol and nothing else: no database, no settings, no Django, no
rule about when a call may be made. It never raises for what a provider or a network does to a write;
it says what is known about the outcome.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, Literal, Protocol

type Json = dict[str, Any] | list[Any] | str | int | float | bool | None


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What a provider promises, as documented by it. What is not documented is None and proves nothing."""

    key_retention: timedelta | None
    """How long an idempotency key protects after its first use. None: the provider has no keys."""
    key_retention_margin: timedelta = timedelta(hours=1)
    """How long before the end of the retention a key is no longer relied on."""
    max_key_length: int = 255
    detects_mismatch: bool = False
    """The same key with other parameters is refused rather than replayed."""
    look_up: Literal["by_key", "by_reference", "none"] = "none"
    processing_bound: timedelta | None = None
    """Longest time between the end of a request and its effect."""
    visibility_bound: timedelta | None = None
    """Longest time between an effect and its being found by a look-up."""
    reversible: str = "cannot be undone"


@dataclass(frozen=True, kw_only=True)
class Account:
    """A provider account as an adapter needs it: the secret is plain text here and lives nowhere else."""

    id: str
    provider: str
    base_url: str
    secret: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class EffectRequest:
    """One effect, exactly as it was approved. `parameters` are the normalized ones of the action."""

    kind: str
    kind_version: int
    effect: str
    parameters: Mapping[str, Any]
    operation_key: str
    """Readable; travels in the provider's metadata so that a look-up finds our own work."""
    provider_key: str
    """32 hex digits; the idempotency key, the same on every attempt."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """The bounds of one call. `deadline` is the total in seconds, connecting and reading included."""

    deadline: float
    may_write: Callable[[], bool] = lambda: True
    """Asked after connecting and before the first byte: False when the lease has run out."""


class Outcome(StrEnum):
    """What is known about a write after it was tried."""

    ACCEPTED = "accepted"
    NOT_ACCEPTED = "not_accepted"  # provably never taken in: connection refused, lease ran out, 401, 429
    REFUSED = "refused"  # the provider's definite no
    UNKNOWN = "unknown"  # everything else


@dataclass(frozen=True, kw_only=True)
class ReceiptData:
    """A provider's own word for an effect. `amount` in the currency's ISO 4217 minor units."""

    reference: str
    amount: int
    currency: str
    provider_status: str
    created: int | None = None
    """Unix seconds by the provider's clock."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came of one write. `body` is the response text as received (undecodable bytes escaped)."""

    outcome: Outcome
    reason: str
    """A stable code: `ok`, `timeout`, `connection_lost`, `connect_failed`, `lease_expired`, `http_500`,
    `truncated`, `key_in_use`, `rate_limited`, `unauthorized`, or the provider's own error code."""
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""
    receipt: ReceiptData | None = None
    retry_after: float | None = None


@dataclass(frozen=True, kw_only=True)
class KnownRefund:
    """A refund that the provider lists on a payment; `operation_key` is None where it is not ours."""

    id: str
    amount: int
    status: str
    operation_key: str | None
    created: int | None = None


@dataclass(frozen=True, kw_only=True)
class PaymentRecord:
    """The provider's record of one payment at one moment. Amounts in ISO 4217 minor units.

    `status` is the provider's own word (`succeeded` when the money has arrived); `missing` means that
    the provider does not know the payment and then nothing else is meaningful.
    """

    id: str
    missing: bool = False
    amount: int = 0
    refunded: int = 0
    currency: str = ""
    status: str = ""
    disputed: bool = False
    recipient: str = ""
    """Who gets the money back, in the provider's words, e.g. `Dana Fox`."""
    instrument: str = ""
    """e.g. `visa ···· 4242`."""
    created: int | None = None
    refunds: tuple[KnownRefund, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LookUp:
    """What a look-up by our key found. Not `complete` (a page failed) is no evidence of absence."""

    complete: bool
    matches: tuple[ReceiptData, ...] = ()
    reason: str = "ok"
    body: str = ""


class ProviderUnavailableError(Exception):
    """The provider could not be read just now; nothing is known and nothing was changed."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


class Adapter(Protocol):
    """One provider. Reads may raise ProviderUnavailableError; `perform` never raises for the provider."""

    capabilities: Capabilities

    def resource_key(self, request: EffectRequest) -> str:
        """The thing whose balance the effect moves, e.g. `stripe:<account id>:pi_3Q`; opaque to the ledger."""

    def observe(self, request: EffectRequest, call: Call) -> PaymentRecord:
        """Read the live state of the payment, with all pages of its refunds."""

    def perform(self, request: EffectRequest, call: Call) -> Answer:
        """Write, once, with `request.provider_key`; no retry inside."""

    def look_up(self, request: EffectRequest, call: Call) -> LookUp:
        """Look for the effect by our key, through all pages."""
