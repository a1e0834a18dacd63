"""States of an operation and the moves between them, as data. No database and no rule about who may move.

The same table is written into the database as a trigger (migration 0001), so that neither a shell nor a
forgotten code path can make a move that is not here.
"""

from collections.abc import Mapping
from enum import StrEnum


class OperationState(StrEnum):
    """Where one effect stands."""

    PREPARED = "prepared"  # written down, nothing sent (or provably nothing accepted)
    DISPATCHED = "dispatched"  # one owner is sending; nobody ever sends from here again
    SUCCEEDED = "succeeded"  # the provider accepted it; the receipt is stored
    FAILED = "failed"  # the provider's definite no
    BLOCKED = "blocked"  # something that must hold no longer held; nothing was sent
    CANCELLED = "cancelled"  # withdrawn before anything was sent
    OUTCOME_UNKNOWN = "outcome_unknown"  # an attempt may have landed
    RECONCILED_SUCCEEDED = "reconciled_succeeded"  # evidence: it happened
    RECONCILED_NOT_EXECUTED = "reconciled_not_executed"  # evidence: it did not happen


S = OperationState

TRANSITIONS: Mapping[OperationState, frozenset[OperationState]] = {
    # prepared -> outcome_unknown: a later attempt was refused or backed off while an earlier one is unresolved
    S.PREPARED: frozenset({S.DISPATCHED, S.BLOCKED, S.CANCELLED, S.OUTCOME_UNKNOWN}),
    # dispatched -> prepared: provably not accepted
    S.DISPATCHED: frozenset({S.SUCCEEDED, S.FAILED, S.PREPARED, S.OUTCOME_UNKNOWN}),
    # outcome_unknown -> prepared: only with a recorded recovery permission
    S.OUTCOME_UNKNOWN: frozenset({S.RECONCILED_SUCCEEDED, S.RECONCILED_NOT_EXECUTED, S.PREPARED}),
    S.SUCCEEDED: frozenset(),
    S.FAILED: frozenset(),
    S.BLOCKED: frozenset(),
    S.CANCELLED: frozenset(),
    S.RECONCILED_SUCCEEDED: frozenset(),
    S.RECONCILED_NOT_EXECUTED: frozenset(),
}

FINAL = frozenset(state for state, following in TRANSITIONS.items() if not following)
HAPPENED = frozenset({S.SUCCEEDED, S.RECONCILED_SUCCEEDED})
NEVER_WITH_UNRESOLVED_ATTEMPT = frozenset({S.BLOCKED, S.FAILED, S.CANCELLED, S.RECONCILED_NOT_EXECUTED})


class Allowance(StrEnum):
    """Why an attempt is allowed (R-D1); written on the attempt that uses it."""

    FIRST = "first"  # the decision itself
    NOT_ACCEPTED = "not_accepted"  # every earlier attempt provably never reached the provider's work
    PROVIDER_GUARANTEE = "provider_guarantee"  # same key, same parameters, inside the key's retention
    CONFIRMED_NOT_EXECUTED = "confirmed_not_executed"  # evidence that no earlier attempt took effect


class AttemptOutcome(StrEnum):
    """What is known of one attempt. `pending` and `unknown` are unresolved: it may have landed."""

    PENDING = "pending"
    ACCEPTED = "accepted"
    NOT_ACCEPTED = "not_accepted"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    NOT_EXECUTED = "not_executed"  # settled by reconciliation


def may_move(old: OperationState, new: OperationState) -> bool:
    """Whether the table allows the move."""
    return new in TRANSITIONS[old]


def transition_pairs() -> list[tuple[str, str]]:
    """The table as pairs, in a fixed order, for the database's trigger."""
    return sorted((old.value, new.value) for old, following in TRANSITIONS.items() for new in following)
