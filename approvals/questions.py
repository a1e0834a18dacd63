"""The question that a reviewer answers: what will happen, under which rule, and what else is known about it.

Built for the page, and built again under the row's lock when a verdict arrives: equal digests mean that the page
was about what still stands. Every text in here is raw; escaping and making the invisible visible is display's.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from approvals import fingerprints, kinds
from approvals.display.hostile import visible
from approvals.kinds.base import DiffRow, KindVersion, Title, Value
from approvals.models import Action
from ledger import money, observations
from ledger.journal import stamp
from ledger.models import Observation, Operation
from ledger.providers.base import PaymentRecord

LOOK_BACK = timedelta(days=30)
LOOK_ALIKES = 5
CANDIDATES = 200
"""How many actions over the same amount are compared; beyond that the resemblance says little anyway."""


@dataclass(frozen=True, kw_only=True)
class LookAlike:
    """Another action over the same amount. `same` says in what else it resembles: payment, recipient, customer."""

    action_id: str
    agent: str
    status: str
    amount: int
    currency: str
    created_at: datetime
    same: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class EarlierRefund:
    """Money of this payment that went back before, or may have. `amount` in minor units.

    `status` is the provider's word where it lists the refund (then `reference` is set), else our operation's
    state. `action_id` is set where it is ours.
    """

    amount: int
    currency: str
    status: str
    reference: str = ""
    action_id: str = ""
    at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Question:
    """What stands on the page. `view_digest` covers the question itself; look-alikes and history are not in it."""

    title: str
    rows: tuple[DiffRow, ...]
    warnings: tuple[str, ...]
    reasoning: str
    rule: str
    rule_text: str
    quorum: int
    roles: tuple[str, ...]
    policy_version: int
    reversibility: str
    look_alikes: tuple[LookAlike, ...]
    earlier: tuple[EarlierRefund, ...]
    observation_id: str
    view_digest: str

    def shown(self) -> dict[str, Any]:
        """The whole page as JSON values, kept with the vote of whoever read it (R-B4)."""
        return {
            "title": self.title,
            "rows": [row.as_json() for row in self.rows],
            "warnings": list(self.warnings),
            "reasoning": self.reasoning,
            "rule": self.rule,
            "rule_text": self.rule_text,
            "quorum": self.quorum,
            "roles": list(self.roles),
            "policy_version": self.policy_version,
            "observation": self.observation_id,
            "look_alikes": [
                {
                    "action": one.action_id,
                    "agent": one.agent,
                    "status": one.status,
                    "amount": one.amount,
                    "currency": one.currency,
                    "created_at": stamp(one.created_at),
                    "same": list(one.same),
                }
                for one in self.look_alikes
            ],
            "earlier": [
                {
                    "amount": one.amount,
                    "currency": one.currency,
                    "status": one.status,
                    "reference": one.reference,
                    "action": one.action_id,
                    "at": stamp(one.at) if one.at else None,
                }
                for one in self.earlier
            ],
        }


def build(action: Action, observation: Observation | None) -> Question:
    """The question as it stands; inside the tenant's transaction, a handful of queries, nothing is locked."""
    version = kinds.version(action.kind, action.schema_version)
    parameters: dict[str, Any] = json.loads(action.parameters)
    record = observations.from_json(observation.record) if observation else None
    rows = version.diff(parameters, record)
    outcome: Mapping[str, Any] = action.policy_outcome
    quorum = max(1, int(outcome.get("quorum") or 1))
    roles = tuple(str(role) for role in outcome.get("roles") or ())
    return Question(
        title=title_text(version.title(parameters, record)),
        rows=rows,
        warnings=warnings(version, parameters, rows, action.reasoning),
        reasoning=action.reasoning,
        rule=str(outcome.get("rule") or ""),
        rule_text=rule_text(outcome, quorum, roles),
        quorum=quorum,
        roles=roles,
        policy_version=action.policy_version,
        reversibility=version.reversibility,
        look_alikes=look_alikes(action, version.customer(parameters), record),
        earlier=earlier_refunds(action, record),
        observation_id=str(observation.id) if observation else "",
        view_digest=digest(action, rows, observation),
    )


def digest(action: Action, rows: tuple[DiffRow, ...], observation: Observation | None) -> str:
    """The digest of the question itself, over stable forms only: no clock, no language, no colleague's vote."""
    outcome: Mapping[str, Any] = action.policy_outcome
    rule = {name: outcome.get(name) for name in ("outcome", "rule", "quorum", "roles", "reason")}
    return fingerprints.view_digest(
        action_id=str(action.id),
        state_version=action.state_version,
        fingerprint=action.fingerprint,
        diff=[row.identity() for row in rows],
        rule=json.dumps(rule, sort_keys=True, separators=(",", ":")),
        policy_version=action.policy_version,
        observation_id=str(observation.id) if observation else None,
    )


def title_text(title: Title) -> str:
    """One line: `Refund 49.00 USD to Dana Fox`."""
    line = f"{title.verb} {money.format_amount(title.amount, title.currency)}"
    return f"{line} to {title.to}" if title.to else line


def rule_text(outcome: Mapping[str, Any], quorum: int, roles: tuple[str, ...]) -> str:
    """Why people are asked, in one sentence."""
    name, reason = str(outcome.get("rule") or ""), str(outcome.get("reason") or "")
    who = " or ".join(roles) or "reviewer"
    asks = f"asks {quorum} {'people' if quorum > 1 else 'person'} with the role {who}"
    sentence = f"The rule “{name}” {asks}." if name else f"The policy {asks}."
    return f"{sentence} {reason}".strip()


def warnings(
    version: KindVersion, parameters: Mapping[str, Any], rows: tuple[DiffRow, ...], reasoning: str
) -> tuple[str, ...]:
    """What to look out for: consequences of this kind, and characters that hide or pretend (K51)."""
    found = [*version.cautions(parameters)]
    for name, text in hostile_texts(rows, reasoning):
        found += visible(text, name=name).warnings
    return tuple(dict.fromkeys(found))


def hostile_texts(rows: tuple[DiffRow, ...], reasoning: str) -> Iterator[tuple[str, str]]:
    """Every text that somebody outside wrote, with what it is the text of."""
    for row in rows:
        values: tuple[Value | None, ...] = (row.before, row.after, *row.detail)
        for value in values:
            if value is not None and value.hostile and value.text:
                yield row.label, value.text
    if reasoning:
        yield "Reasoning", reasoning


def look_alikes(action: Action, customer: str, record: PaymentRecord | None) -> tuple[LookAlike, ...]:
    """Other operations over the same amount for the same payment, recipient or customer, newest first (R-A6)."""
    if action.amount is None:
        return ()
    recipient = record.recipient if record else ""
    rows = (
        Action.objects.filter(
            tenant_id=action.tenant_id,
            kind=action.kind,
            amount=action.amount,
            currency=action.currency,
            created_at__gt=action.created_at - LOOK_BACK,
        )
        # its own revisions are no resemblance but its history
        .exclude(agent_id=action.agent_id, run_id=action.run_id, step_id=action.step_id)
        .select_related("agent", "observation")
        .order_by("-created_at", "-id")[:CANDIDATES]
    )
    found = []
    for other in rows:
        same = resemblance(action, other, customer, recipient)
        if same:
            found.append(
                LookAlike(
                    action_id=str(other.id),
                    agent=other.agent.name,
                    status=str(other.status),
                    amount=action.amount,
                    currency=other.currency,
                    created_at=other.created_at,
                    same=same,
                )
            )
        if len(found) == LOOK_ALIKES:
            break
    return tuple(found)


def resemblance(action: Action, other: Action, customer: str, recipient: str) -> tuple[str, ...]:
    """In what two actions over the same amount are alike; empty where in nothing else."""
    version = kinds.version(other.kind, other.schema_version)
    same = []
    if action.resource_key and other.resource_key == action.resource_key:
        same.append("payment")
    if recipient and other.observation and other.observation.record.get("recipient") == recipient:
        same.append("recipient")
    if customer and version.customer(json.loads(other.parameters)) == customer:
        same.append("customer")
    return tuple(same)


def earlier_refunds(action: Action, record: PaymentRecord | None) -> tuple[EarlierRefund, ...]:
    """What the provider lists on this payment, and what our own ledger knows of that it does not list."""
    if not action.resource_key:
        return ()
    own = {
        operation.operation_key: operation
        for operation in Operation.objects.filter(
            tenant_id=action.tenant_id, resource_key=action.resource_key, effect="refund"
        ).exclude(action_id=action.id)
    }
    found = []
    for refund in record.refunds if record else ():
        ours = own.pop(refund.operation_key, None) if refund.operation_key else None
        found.append(
            EarlierRefund(
                amount=refund.amount,
                currency=record.currency if record else action.currency,
                status=refund.status,
                reference=refund.id,
                action_id=str(ours.action_id) if ours else "",
                at=datetime.fromtimestamp(refund.created, UTC) if refund.created else None,
            )
        )
    for operation in own.values():
        found.append(
            EarlierRefund(
                amount=operation.amount or 0,
                currency=operation.currency,
                status=str(operation.state),
                action_id=str(operation.action_id),
                at=operation.updated_at,
            )
        )
    oldest = datetime.min.replace(tzinfo=UTC)
    return tuple(sorted(found, key=lambda one: one.at or oldest, reverse=True))
