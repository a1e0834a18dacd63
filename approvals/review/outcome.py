"""What became of an action, as the page shows it: the decision, each effect, and what is still to come.

Reads rows and turns them into frozen values; nothing here decides, sends or writes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from approvals.models import Action, ActionStatus, Decision
from approvals.review import words
from ledger.models import Case, Operation, Receipt
from ledger.states import FINAL


@dataclass(frozen=True, kw_only=True)
class EffectView:
    """One effect: its mark, what it means, what came of it and, where it was stopped, what differs."""

    name: str
    state: str
    word: words.Word
    sentence: str
    message: str
    attempts: int
    updated_at: datetime
    receipts: tuple[Receipt, ...]
    cases: tuple[Case, ...]
    differences: tuple[words.Difference, ...]

    @property
    def final(self) -> bool:
        """Whether nothing more will happen to it by itself."""
        return self.state in FINAL


@dataclass(frozen=True, kw_only=True)
class OutcomeView:
    """The verdict with its effects. `token` changes whenever anything on it does."""

    word: words.Word
    sentence: str
    decision: Decision | None
    effects: tuple[EffectView, ...]
    final: bool
    token: str


def read(action: Action) -> OutcomeView:
    """The outcome of a settled action; inside the tenant's transaction."""
    decision = Decision.objects.filter(action=action).first()
    operations = list(
        Operation.objects.filter(action_id=action.id)
        .order_by("sequence")
        .prefetch_related("receipts", "cases")
    )
    record = action.observation.record if action.observation else None
    return view(action.status, decision, operations, record)


def view(
    status: str,
    decision: Decision | None,
    operations: Sequence[Operation],
    record: Mapping[str, Any] | None = None,
) -> OutcomeView:
    """The same from rows already read; `record` is the provider's, as it stood when it was decided."""
    effects = tuple(effect_view(one, record) for one in operations)
    final = status != ActionStatus.PENDING and all(effect.final for effect in effects)
    cases = sum(len(effect.cases) for effect in effects)
    token = "-".join(
        [status, *(f"{one.state_version}.{one.reconcile_count}" for one in operations), str(cases)]
    )
    return OutcomeView(
        word=words.action_word(status),
        sentence=words.verdict_sentence(status, *by(decision)),
        decision=decision,
        effects=effects,
        final=final,
        token=token,
    )


def by(decision: Decision | None) -> tuple[str, list[str]]:
    """Who decided, as type and names."""
    return (decision.by_type, decision.by_names) if decision else ("system", [])


def effect_view(operation: Operation, record: Mapping[str, Any] | None = None) -> EffectView:
    """One operation for the page."""
    detail = operation.detail or {}
    waiting = operation.state == "prepared" and operation.backoff_count > 0
    return EffectView(
        name=words.humanize(operation.effect),
        state=operation.state,
        word=words.effect_word(operation.state),
        sentence=(
            "The provider could not take it in just now, and did nothing. We try again by ourselves."
            if waiting
            else words.EFFECT_SENTENCES.get(operation.state, "")
        ),
        message=str(detail.get("message", "")),
        attempts=operation.attempt_count,
        updated_at=operation.updated_at,
        receipts=tuple(sorted(operation.receipts.all(), key=lambda one: one.received_at)),
        cases=tuple(one for one in operation.cases.all() if one.settled_at is None),
        differences=(
            words.differences(detail, currency=operation.currency, record=record)
            if operation.state == "blocked"
            else ()
        ),
    )
