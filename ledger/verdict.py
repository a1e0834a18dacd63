"""From evidence to a verdict about an unknown outcome. Pure: values in, a value out; no clock but the one given.

Strong evidence is our own key, or the provider's reference on one of our attempts. An equal amount is none
(R-D5). "Not found" means nothing until the provider's documented bounds have passed (R-D3), and a key means
nothing after its retention (R-D4). Where no rule speaks, a person does (R-D6).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from ledger.providers.base import Capabilities, ReceiptData
from ledger.states import Allowance, AttemptOutcome

NO_EFFECT = frozenset({"failed", "canceled"})  # a provider's words for an effect that came to nothing
UNRESOLVED = frozenset({AttemptOutcome.PENDING, AttemptOutcome.UNKNOWN})


@dataclass(frozen=True, kw_only=True)
class AttemptFact:
    """One attempt as the ledger knows it."""

    number: int
    outcome: AttemptOutcome
    lease_until: datetime


@dataclass(frozen=True, kw_only=True)
class LookUpFact:
    """One look-up by our key: when the question began, which attempt was the newest then, what it found."""

    attempt_number: int
    asked_at: datetime
    complete: bool
    matches: tuple[ReceiptData, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Facts:
    """All that is known about one operation whose outcome is unknown."""

    amount: int
    currency: str
    attempts: Sequence[AttemptFact]
    look_ups: Sequence[LookUpFact]
    receipts: Sequence[ReceiptData]  # stored on our own attempts
    first_dispatched_at: datetime
    execute_before: datetime | None
    recovery_refused: str  # a guard's or the provider's reason against a later attempt


class Finding(StrEnum):
    """What the evidence says."""

    HAPPENED = "happened"
    NOT_EXECUTED = "not_executed"
    MAY_RESEND = "may_resend"
    WAIT = "wait"
    PERSON = "person"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A finding with its reason; `receipt` where it happened, `ground` and `valid_until` where it may be resent."""

    finding: Finding
    reason: str
    receipt: ReceiptData | None = None
    duplicates: tuple[ReceiptData, ...] = ()
    ground: Allowance | None = None
    valid_until: datetime | None = None


def judge(facts: Facts, capabilities: Capabilities, now: datetime) -> Verdict:
    """The verdict on `facts` at `now`."""
    found = _found(facts)
    if found is not None:
        return found
    if not facts.attempts:  # our own key was seen in the provider's books, and our books know of no attempt
        if any(look.complete for look in facts.look_ups):
            return Verdict(finding=Finding.PERSON, reason="seen_and_not_found")
        return Verdict(finding=Finding.WAIT, reason="no_complete_look_up_yet")
    newest = max((attempt.number for attempt in facts.attempts), default=0)
    current = [look for look in facts.look_ups if look.attempt_number == newest and look.complete]
    in_force = facts.execute_before is None or now < facts.execute_before
    may_act = in_force and not facts.recovery_refused
    outcomes = {attempt.outcome for attempt in facts.attempts}
    if (
        AttemptOutcome.ACCEPTED in outcomes
    ):  # the provider said yes, under a reference that is not ours to keep
        return Verdict(finding=Finding.PERSON, reason="accepted_without_a_receipt")
    if _absent(facts, capabilities, current):
        if may_act and AttemptOutcome.REFUSED not in outcomes:
            return Verdict(
                finding=Finding.MAY_RESEND,
                reason="confirmed_not_executed",
                ground=Allowance.CONFIRMED_NOT_EXECUTED,
                valid_until=facts.execute_before,
            )
        return Verdict(finding=Finding.NOT_EXECUTED, reason="confirmed_not_executed")
    if not current:
        return Verdict(finding=Finding.WAIT, reason="no_complete_look_up_yet")
    until = key_protects_until(facts, capabilities)
    if until is not None and now < until and may_act:
        valid = until if facts.execute_before is None else min(until, facts.execute_before)
        return Verdict(
            finding=Finding.MAY_RESEND,
            reason="provider_guarantee",
            ground=Allowance.PROVIDER_GUARANTEE,
            valid_until=valid,
        )
    return _no_way_on(facts, capabilities, now)


def _no_way_on(facts: Facts, capabilities: Capabilities, now: datetime) -> Verdict:
    """Nothing found, nothing proven, nothing protects: wait where a bound still runs, else ask a person."""
    until = key_protects_until(facts, capabilities)
    if _bounds_pending(facts, capabilities, now):
        return Verdict(finding=Finding.WAIT, reason="inside_the_providers_bounds")
    if until is not None and now >= until:
        return Verdict(finding=Finding.PERSON, reason="key_retention_passed")
    if facts.execute_before is not None and now >= facts.execute_before:
        return Verdict(finding=Finding.PERSON, reason="authorization_expired")
    if facts.recovery_refused:
        return Verdict(finding=Finding.PERSON, reason="recovery_refused")
    return Verdict(finding=Finding.PERSON, reason="not_found_is_inconclusive")


def key_protects_until(facts: Facts, capabilities: Capabilities) -> datetime | None:
    """Until when the same key still prevents a second effect, with the margin taken off; None without keys."""
    if capabilities.key_retention is None or not capabilities.detects_mismatch:
        return None
    return facts.first_dispatched_at + capabilities.key_retention - capabilities.key_retention_margin


def _found(facts: Facts) -> Verdict | None:
    known = {match.reference: match for look in facts.look_ups for match in look.matches}
    known |= {receipt.reference: receipt for receipt in facts.receipts}
    seen = {name: one for name, one in known.items() if one.provider_status not in NO_EFFECT}
    if not seen:
        # taken in under our key, and come to nothing there: neither proof that it happened nor a free way
        return Verdict(finding=Finding.PERSON, reason="failed_at_the_provider") if known else None
    if any((one.amount, one.currency) != (facts.amount, facts.currency) for one in seen.values()):
        return Verdict(finding=Finding.PERSON, reason="found_with_other_amount")
    receipts = sorted(seen.values(), key=lambda one: (one.created or 0, one.reference))
    first = next(
        (one for one in receipts if one.reference in {own.reference for own in facts.receipts}), receipts[0]
    )
    return Verdict(
        finding=Finding.HAPPENED,
        reason="receipt_on_attempt" if first in facts.receipts else "found_by_key",
        receipt=first,
        duplicates=tuple(one for one in receipts if one is not first),
    )


def _absent(facts: Facts, capabilities: Capabilities, current: Sequence[LookUpFact]) -> bool:
    """Proof that nothing happened: no attempt unresolved, or a look-up begun after all bounds had passed."""
    open_ = [attempt for attempt in facts.attempts if attempt.outcome in UNRESOLVED]
    if not open_:
        return True
    bound = _bound(capabilities)
    if bound is None:
        return False
    conclusive_from = max(attempt.lease_until for attempt in open_) + bound
    return any(look.asked_at > conclusive_from for look in current)


def _bound(capabilities: Capabilities) -> timedelta | None:
    if capabilities.look_up == "none":
        return None
    if capabilities.processing_bound is None or capabilities.visibility_bound is None:
        return None
    return capabilities.processing_bound + capabilities.visibility_bound


def _bounds_pending(facts: Facts, capabilities: Capabilities, now: datetime) -> bool:
    """Whether waiting can still turn "not found" into proof: bounds are documented and have not passed."""
    bound = _bound(capabilities)
    open_ = [attempt for attempt in facts.attempts if attempt.outcome in UNRESOLVED]
    return bound is not None and bool(open_) and now <= max(one.lease_until for one in open_) + bound
