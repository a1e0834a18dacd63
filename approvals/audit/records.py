"""Reads the rows of a story, and finds actions for auditors. Inside the tenant's fence; never writes."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Prefetch, Q, QuerySet

from approvals.audit.story import About, Story, build
from approvals.models import Action, ActionStatus, Agent, User
from ledger.models import Attempt, JournalEntry, Operation, Receipt

PAGE = 50
LONGEST_QUERY = 200


@dataclass(frozen=True, kw_only=True)
class Found:
    """A page of actions, the newest first; `before` is the next page's cursor, empty on the last."""

    actions: tuple[Action, ...]
    before: str


def story(action_id: UUID) -> Story | None:
    """The story of one action of this tenant; None where there is none. Eight queries, whatever happened."""
    action = Action.objects.filter(id=action_id).select_related("agent").first()
    if action is None:
        return None
    entries = list(JournalEntry.objects.filter(action_id=action_id).order_by("seq").select_related("payload"))
    attempts = Attempt.objects.select_related("permission").prefetch_related("responses")
    operations = list(
        Operation.objects.filter(action_id=action_id)
        .order_by("sequence")
        .prefetch_related(Prefetch("attempts", queryset=attempts), "look_ups", "receipts", "cases")
    )
    about = About(
        action_id=action.id,
        kind=action.kind,
        status=str(action.status),
        amount=action.amount,
        currency=action.currency,
        agent=action.agent.name,
        run_id=action.run_id,
        step_id=action.step_id,
        asked_at=action.created_at,
        claim=action.reasoning,
        versions=action.versions,
    )
    return build(about, entries, operations, actors(entries))


def actors(entries: Sequence[JournalEntry]) -> dict[str, str]:
    """Names for ids in the journal: `reviewer:<id>` → username, `agent:<id>` → the agent's name."""
    people = {entry.actor_id for entry in entries if entry.actor_type in {"reviewer", "operator"}}
    programs = {entry.actor_id for entry in entries if entry.actor_type == "agent"}
    names = {"system:": "the system", "worker:": "a worker", "policy:": "the policy"}
    for pk, username in User.objects.filter(pk__in=[one for one in people if one.isdigit()]).values_list(
        "pk", "username"
    ):
        names |= {f"reviewer:{pk}": username, f"operator:{pk}": username}
    for agent_id, name in Agent.objects.filter(pk__in=[one for one in programs if one]).values_list(
        "pk", "name"
    ):
        names[f"agent:{agent_id}"] = f"the agent {name}"
    return names


def search(*, text: str = "", status: str = "", before: str = "") -> Found:
    """Actions by id, run, step, payment, provider's reference or our key; all where `text` is empty."""
    query: QuerySet[Action] = Action.objects.select_related("agent").order_by("-id")
    text = text.strip()[:LONGEST_QUERY].replace("\x00", "")
    if text:
        query = query.filter(matching(text))
    if status in set(ActionStatus):
        query = query.filter(status=status)
    cursor = as_uuid(before)
    if cursor is not None:
        query = query.filter(id__lt=cursor)
    found = list(query[: PAGE + 1])
    return Found(actions=tuple(found[:PAGE]), before=str(found[PAGE - 1].id) if len(found) > PAGE else "")


def matching(text: str) -> Q:
    """What a searched text may name."""
    named = as_uuid(text)
    if named is not None:
        return Q(id=named)
    ids = [
        *Receipt.objects.filter(reference=text).values_list("operation__action_id", flat=True),
        *Operation.objects.filter(Q(provider_key=text) | Q(operation_key=text)).values_list(
            "action_id", flat=True
        ),
    ]
    # a resource key ends in the provider's own id of the payment, after a colon
    return Q(run_id=text) | Q(step_id=text) | Q(resource_key__endswith=f":{text}") | Q(id__in=ids)


def as_uuid(text: str) -> UUID | None:
    """The id that a text is, if it is one."""
    try:
        return UUID(text)
    except ValueError:
        return None
