"""Pending actions without HTTP: taken in as agents do, observed against a record that the test gives."""

import json
import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch
from uuid import UUID

from approvals import decisions, intake, observation, questions
from approvals.decisions import Bindings, Outcome
from approvals.models import Action, Decision, User, Vote
from approvals.submissions import Submission
from ledger import clock, observations
from ledger.models import JournalEntry, JournalPayload, Operation, Outbox
from ledger.providers.base import PaymentRecord, ProviderUnavailableError
from ledger.transactions import tenant_reads
from tests.factories import World


def submit(here: World, *, run_id: str = "run_8812", reasoning: str = "", **parameters: Any) -> UUID:
    """A refund that nobody has observed yet; each one is a step of its own. `parameters` replace the usual ones."""
    usual: dict[str, Any] = {"payment": f"pi_{secrets.token_hex(8)}", "amount": 4_900, "currency": "usd"}
    values = {name: value for name, value in (usual | parameters).items() if value is not None}
    submitted = intake.submit(
        tenant_id=here.tenant_id,
        agent_id=here.agent.id,
        key=secrets.token_hex(16),
        submission=Submission(
            kind="refund",
            schema_version=1,
            run_id=run_id,
            step_id=f"refund-{secrets.token_hex(6)}",
            parameters=values,
            submitted=json.dumps(values),
            reasoning=reasoning,
        ),
    )
    return UUID(submitted.action["id"])


def record_of(action: Action, **changes: Any) -> PaymentRecord:
    """A payment of 1,200.00 from Dana Fox, in the action's currency, of which nothing is refunded."""
    values: dict[str, Any] = {
        "id": action.resource_key.rpartition(":")[2],
        "amount": 120_000,
        "currency": action.currency,
        "status": "succeeded",
        "recipient": "Dana Fox",
        "instrument": "visa ···· 4242",
        "created": 1_794_000_000,
    }
    return PaymentRecord(**values | changes)


def observe(here: World, action_id: UUID, **record: Any) -> str:
    """Let the step `observe` read a record; `record` changes what it says."""
    known = record_of(row(here, action_id), **record)
    with patch.object(observations, "read", lambda *_: (clock.now(), known)):
        return observation.observe(here.tenant_id, action_id)


def observe_in_vain(here: World, action_id: UUID) -> str:
    """The step `observe` while the provider cannot be read."""

    def unreadable(*_: Any) -> Any:
        raise ProviderUnavailableError("timeout")

    with patch.object(observations, "read", unreadable):
        return observation.observe(here.tenant_id, action_id)


def question(here: World, *, record: Mapping[str, Any] | None = None, **more: Any) -> UUID:
    """A pending refund whose record has been read."""
    action_id = submit(here, **more)
    observe(here, action_id, **(record or {}))
    return action_id


def row(here: World, action_id: UUID) -> Action:
    """The action as it is stored."""
    with tenant_reads(here.tenant_id):
        return Action.objects.select_related("agent", "observation").get(id=action_id)


def page(here: World, action_id: UUID) -> questions.Question:
    """What stands on the action's page now."""
    with tenant_reads(here.tenant_id):
        action = Action.objects.get(id=action_id)
        return questions.build(action, action.observation)


def bindings(here: World, user: User, action_id: UUID) -> Bindings:
    """The hidden fields of that person's page, as it would be opened now."""
    with tenant_reads(here.tenant_id):
        action = Action.objects.get(id=action_id)
        return Bindings(
            state_version=action.state_version,
            fingerprint=action.fingerprint,
            policy_version=action.policy_version,
            view_digest=questions.build(action, action.observation).view_digest,
            seq=decisions.next_seq(action, user),
        )


def decide(
    here: World,
    user: User,
    action_id: UUID,
    verdict: str = "approve",
    reason: str = "",
    *,
    bound: Bindings | None = None,
) -> Outcome:
    """A verdict, on a page opened just now where no bindings are given."""
    return decisions.decide(
        tenant_id=here.tenant_id,
        user=user,
        action_id=action_id,
        verdict=verdict,
        reason=reason or ("no" if verdict == "reject" else ""),
        bindings=bound or bindings(here, user, action_id),
    )


@dataclass(frozen=True, kw_only=True)
class Stock:
    """Everything that deciding writes, counted, for one action: equal stocks mean that nothing was written."""

    status: str
    state_version: int
    votes: int
    decisions: int
    operations: int
    events: Mapping[str, int]
    steps: tuple[str, ...]


def stock(here: World, action_id: UUID) -> Stock:
    """The count now. `steps`: what the outbox holds for the action and its operations."""
    with tenant_reads(here.tenant_id):
        action = Action.objects.get(id=action_id)
        operations = list(Operation.objects.filter(action_id=action_id).values_list("id", flat=True))
        events = JournalEntry.objects.filter(action_id=action_id).values_list("event", flat=True)
        steps = Outbox.objects.filter(subject_id__in=[action_id, *operations]).values_list("step", flat=True)
        return Stock(
            status=action.status,
            state_version=action.state_version,
            votes=Vote.objects.filter(action_id=action_id).count(),
            decisions=Decision.objects.filter(action_id=action_id).count(),
            operations=len(operations),
            events=dict(Counter(events)),
            steps=tuple(sorted(steps)),
        )


def told(here: World, action_id: UUID, event: str) -> dict[str, Any]:
    """The payload of the newest entry of that event."""
    with tenant_reads(here.tenant_id):
        entry = JournalPayload.objects.filter(entry__action_id=action_id, entry__event=event)
        payload: dict[str, Any] = json.loads(entry.order_by("-entry__seq")[0].text)
        return payload


def decision_of(here: World, action_id: UUID) -> Decision:
    """The decision; DoesNotExist where there is none."""
    with tenant_reads(here.tenant_id):
        return Decision.objects.get(action_id=action_id)


def operation_of(here: World, action_id: UUID) -> Operation:
    """The action's one operation."""
    with tenant_reads(here.tenant_id):
        return Operation.objects.select_related("account").get(action_id=action_id)
