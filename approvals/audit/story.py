"""The story of an action: the three questions, answered from the journal and the ledger's rows alone (R-F1).

*What exactly was authorized, by whom, under which policy? What evidence is there of its outcome? Why was
another attempt allowed?* Pure: rows in, a frozen story out; the rows are read in `approvals.audit.records`;
nothing here asks a provider, a policy or a clock.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from approvals.audit import words as entry_words
from approvals.review import words
from ledger.models import (
    Attempt,
    Case,
    JournalEntry,
    LookUp,
    Operation,
    Receipt,
    RecoveryPermission,
    Response,
)
from ledger.money import UnknownCurrencyError, format_amount

type Payload = Mapping[str, Any]

SETTLING = ("action.approved", "action.rejected", "action.expired", "action.cancelled", "action.superseded")


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A name and what it says."""

    name: str
    text: str


@dataclass(frozen=True, kw_only=True)
class VoteLine:
    """One reviewer's vote; `page` are the lines of the diff and the warnings that stood before them (R-B4)."""

    reviewer: str
    event: str
    reason: str
    at: datetime
    view_digest: str
    page: tuple[Fact, ...]


@dataclass(frozen=True, kw_only=True)
class Authorized:
    """The first answer: exactly what was decided, by whom, under which rule of which policy version.

    `matches` says whether every effect in the ledger carries the fingerprint that was decided on; None where
    there is no effect.
    """

    verdict: str
    sentence: str
    by_type: str
    names: tuple[str, ...]
    reason: str
    decided_at: datetime
    execute_before: str
    rule: str
    policy_version: int
    kind: str
    schema_version: int
    parameters: tuple[Fact, ...]
    fingerprint: str
    votes: tuple[VoteLine, ...]
    matches: bool | None


@dataclass(frozen=True, kw_only=True)
class AttemptStory:
    """One attempt: why it was allowed, and what came back. `permission` where it needed one of its own."""

    number: int
    started_at: datetime
    allowed_by: str
    why: str
    outcome: str
    reason: str
    permission: RecoveryPermission | None
    permission_facts: tuple[Fact, ...]
    responses: tuple[Response, ...]


@dataclass(frozen=True, kw_only=True)
class EffectStory:
    """The second answer, for one effect: its state, and all the evidence there is of it."""

    name: str
    state: str
    word: words.Word
    sentence: str
    message: str
    amount: str
    operation_key: str
    provider_key: str
    receipts: tuple[Receipt, ...]
    attempts: tuple[AttemptStory, ...]
    look_ups: tuple[LookUp, ...]
    cases: tuple[Case, ...]
    differences: tuple[words.Difference, ...]

    @property
    def again(self) -> tuple[AttemptStory, ...]:
        """The attempts after the first: those that needed a reason of their own (R-D1)."""
        return tuple(attempt for attempt in self.attempts if attempt.number > 1)


@dataclass(frozen=True, kw_only=True)
class EntryLine:
    """One entry of the journal, with its place in the tenant's chain."""

    seq: int
    at: datetime
    event: str
    sentence: str
    actor: str
    detail: str
    hash: str
    prev_hash: str


@dataclass(frozen=True, kw_only=True)
class Story:
    """Everything known about one action. `erased`: it was decided, and the decision's details are gone."""

    action_id: UUID
    title: str
    status: words.Word
    agent: str
    run_id: str
    step_id: str
    asked_at: datetime
    claim: str
    versions: tuple[Fact, ...]
    authorized: Authorized | None
    erased: bool
    effects: tuple[EffectStory, ...]
    timeline: tuple[EntryLine, ...]

    @property
    def again(self) -> tuple[AttemptStory, ...]:
        """All attempts that came after a first one."""
        return tuple(attempt for effect in self.effects for attempt in effect.again)


@dataclass(frozen=True, kw_only=True)
class About:
    """What of an action's own row the story needs: what never changes, and its status."""

    action_id: UUID
    kind: str
    status: str
    amount: int | None
    currency: str
    agent: str
    run_id: str
    step_id: str
    asked_at: datetime
    claim: str
    versions: Payload


def build(
    about: About, entries: Sequence[JournalEntry], operations: Sequence[Operation], actors: Mapping[str, str]
) -> Story:
    """The story from rows already read. `actors` names them: `reviewer:<id>` → a name."""
    effects = tuple(effect_story(one) for one in operations)
    payloads = [(entry, payload_of(entry)) for entry in entries]
    return Story(
        action_id=about.action_id,
        title=" ".join(
            part for part in (words.humanize(about.kind), amount(about.amount, about.currency)) if part
        ),
        status=words.action_word(about.status),
        agent=about.agent,
        run_id=about.run_id,
        step_id=about.step_id,
        asked_at=about.asked_at,
        claim=about.claim,
        versions=facts(about.versions),
        authorized=authorized(payloads, operations),
        erased=any(entry.event in SETTLING and payload is None for entry, payload in payloads),
        effects=effects,
        timeline=tuple(entry_line(entry, payload, actors) for entry, payload in payloads),
    )


def payload_of(entry: JournalEntry) -> Payload | None:
    """An entry's readable part; None where it was erased."""
    stored = getattr(entry, "payload", None)
    return json.loads(stored.text) if stored is not None else None


def amount(value: int | None, currency: str) -> str:
    """`49.00 USD`; empty where an action moves no money."""
    if value is None or not currency:
        return ""
    try:
        return format_amount(value, currency)
    except UnknownCurrencyError:
        return f"{value} minor units of {currency}"


def facts(values: Payload | None) -> tuple[Fact, ...]:
    """A mapping as names and texts, in its own order."""
    return tuple(
        Fact(name=words.humanize(str(name)), text=words.say(value)) for name, value in (values or {}).items()
    )


def parameter_facts(parameters: Payload) -> tuple[Fact, ...]:
    """The parameters under their own names, exactly; an amount also as people write it."""
    currency = str(parameters.get("currency", ""))
    return tuple(
        Fact(name=name, text=f"{text} ({value} in minor units)" if text != words.say(value) else text)
        for name, value in parameters.items()
        for text in [words.fact(name, value, currency)]
    )


def authorized(
    payloads: Sequence[tuple[JournalEntry, Payload | None]], operations: Sequence[Operation]
) -> Authorized | None:
    """The outcome in the journal; None while nothing is decided, or where its details were erased."""
    settled = [
        (entry, payload) for entry, payload in payloads if entry.event in SETTLING and payload is not None
    ]
    if not settled:
        return None
    entry, payload = settled[-1]
    assert payload is not None
    by = payload.get("by") or {}
    names = tuple(str(name) for name in by.get("names", []))
    verdict = str(payload.get("verdict", entry.event.partition(".")[2]))
    fingerprint = str(payload.get("fingerprint", ""))
    return Authorized(
        verdict=verdict,
        sentence=words.verdict_sentence(verdict, str(by.get("type", "")), names),
        by_type=str(by.get("type", "")),
        names=names,
        reason=str(payload.get("reason") or ""),
        decided_at=entry.at,
        execute_before=str(payload.get("execute_before") or ""),
        rule=str(payload.get("rule") or ""),
        policy_version=int(payload.get("policy_version") or 0),
        kind=str(payload.get("kind", "")),
        schema_version=int(payload.get("schema_version") or 0),
        parameters=parameter_facts(payload.get("parameters") or {}),
        fingerprint=fingerprint,
        votes=tuple(
            vote_line(one, cast) for one, cast in payloads if one.event == "vote.cast" and cast is not None
        ),
        matches=all(one.fingerprint == fingerprint for one in operations) if operations else None,
    )


def vote_line(entry: JournalEntry, payload: Payload) -> VoteLine:
    """A vote as the journal holds it."""
    return VoteLine(
        reviewer=str(payload.get("reviewer", "")),
        event=str(payload.get("event", "")),
        reason=str(payload.get("reason") or ""),
        at=entry.at,
        view_digest=str(payload.get("view_digest", "")),
        page=page_facts(payload.get("shown") or {}),
    )


def page_facts(shown: Payload) -> tuple[Fact, ...]:
    """What the reviewer's page said, line by line, from the snapshot kept with the vote."""
    lines = []
    for row in shown.get("rows", []):
        values = [shown_value(one) for one in [row.get("before"), row.get("after")] if one]
        details = [shown_value(one) for one in row.get("detail", [])]
        lines.append(Fact(name=str(row.get("label", "")), text=" · ".join([" → ".join(values), *details])))
    if shown.get("rule_text"):
        lines.append(Fact(name="Rule", text=str(shown["rule_text"])))
    lines += [Fact(name="Warning", text=str(warning)) for warning in shown.get("warnings", [])]
    return tuple(lines)


def shown_value(value: Payload) -> str:
    """One value of the snapshot as text (`approvals.kinds.base.Value.as_json`)."""
    if value.get("amount") is not None:
        return amount(int(value["amount"]), str(value.get("currency", "")))
    return str(value.get("at") or value.get("text") or "")


def effect_story(operation: Operation) -> EffectStory:
    """One operation with its attempts, look-ups, receipts and cases, each in the order of time."""
    detail = operation.detail or {}
    return EffectStory(
        name=words.humanize(operation.effect),
        state=operation.state,
        word=words.effect_word(operation.state),
        sentence=words.EFFECT_SENTENCES.get(operation.state, ""),
        message=str(detail.get("message", "")),
        amount=amount(operation.amount, operation.currency),
        operation_key=operation.operation_key,
        provider_key=operation.provider_key,
        receipts=tuple(sorted(operation.receipts.all(), key=lambda one: one.received_at)),
        attempts=tuple(
            attempt_story(one) for one in sorted(operation.attempts.all(), key=lambda one: one.number)
        ),
        look_ups=tuple(sorted(operation.look_ups.all(), key=lambda one: one.asked_at)),
        cases=tuple(sorted(operation.cases.all(), key=lambda one: one.opened_at)),
        differences=words.differences(detail, currency=operation.currency)
        if operation.state == "blocked"
        else (),
    )


def attempt_story(attempt: Attempt) -> AttemptStory:
    """One attempt with its answers and, where it needed one, its recovery permission (R-D2)."""
    permission = attempt.permission
    return AttemptStory(
        number=attempt.number,
        started_at=attempt.started_at,
        allowed_by=attempt.allowed_by,
        why=words.ALLOWANCE_SENTENCES.get(attempt.allowed_by, attempt.allowed_by),
        outcome=words.ATTEMPT_WORDS.get(attempt.outcome, attempt.outcome),
        reason=attempt.reason,
        permission=permission,
        permission_facts=facts(permission.evidence) if permission else (),
        responses=tuple(sorted(attempt.responses.all(), key=lambda one: one.received_at)),
    )


def entry_line(entry: JournalEntry, payload: Payload | None, actors: Mapping[str, str]) -> EntryLine:
    """One entry in a sentence, with its payload as stored."""
    return EntryLine(
        seq=entry.seq,
        at=entry.at,
        event=entry.event,
        sentence=entry_words.sentence(entry.event, payload),
        actor=actors.get(f"{entry.actor_type}:{entry.actor_id}", entry.actor_type),
        detail="" if payload is None else json.dumps(payload, indent=2, ensure_ascii=False, sort_keys=True),
        hash=entry.hash,
        prev_hash=entry.prev_hash,
    )
