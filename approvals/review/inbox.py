"""The inbox: what waits in a tenant, in the order in which it has to be looked at.

Reads only, in a number of queries that does not grow with the list.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import BooleanField, Count, Exists, F, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Coalesce, TruncMinute
from django.utils import timezone

from approvals.models import Action, ActionStatus, Decision
from approvals.review import words
from ledger import clock

PAGE = 100


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """Where a page ends: the sort key of its last row."""

    minute: datetime
    amount: int
    action_id: UUID

    def text(self) -> str:
        """As it stands in an address."""
        return f"{int(self.minute.timestamp())}.{self.amount}.{self.action_id}"

    @classmethod
    def parse(cls, text: str) -> "Cursor | None":
        """The cursor of an address; None where it is none, and then the list begins anew."""
        try:
            minute, amount, action_id = text.split(".")
            moment = datetime.fromtimestamp(int(minute), tz=timezone.get_default_timezone())
            return cls(minute=moment, amount=int(amount), action_id=UUID(action_id))
        except (ValueError, OverflowError, OSError):
            return None


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the list. `chip` is why it is special, one reason at most."""

    id: UUID
    verb: str
    amount: int | None
    currency: str
    recipient: str
    resource: str
    agent: str
    chip: str
    expires_at: datetime


@dataclass(frozen=True, kw_only=True)
class Inbox:
    """A page of the list. `after`: the next page's cursor; `today`: what was settled today, by status."""

    rows: tuple[Row, ...]
    after: str
    today: Mapping[str, int]
    read_at: datetime


def pending(tenant_id: UUID, now: datetime) -> QuerySet[Action]:
    """What may still be decided at `now`; an overdue row is no longer anybody's work."""
    return Action.objects.filter(tenant_id=tenant_id, status=ActionStatus.PENDING, expires_at__gt=now)


def read(tenant_id: UUID, *, after: str = "") -> Inbox:
    """A page of at most 100, by minutes left, then the larger amount; inside the tenant's fence."""
    now = clock.now()
    seen_before = Action.objects.filter(
        tenant_id=tenant_id, resource_key=OuterRef("resource_key"), created_at__lt=OuterRef("created_at")
    ).exclude(resource_key="")
    query = (
        pending(tenant_id, now)
        .annotate(
            minute=TruncMinute("expires_at"),
            size=Coalesce(F("amount"), Value(0)),
            again=Exists(seen_before, output_field=BooleanField()),
        )
        .select_related("agent", "observation")
        .order_by("minute", "-size", "id")
    )
    cursor = Cursor.parse(after)
    if cursor is not None:
        same_minute = Q(minute=cursor.minute)
        query = query.filter(
            Q(minute__gt=cursor.minute)
            | same_minute & Q(size__lt=cursor.amount)
            | same_minute & Q(size=cursor.amount, id__gt=cursor.action_id)
        )
    found = list(query[: PAGE + 1])
    shown = found[:PAGE]
    next_page = ""
    if len(found) > PAGE:
        last = shown[-1]
        next_page = Cursor(minute=last.minute, amount=last.size, action_id=last.id).text()
    return Inbox(
        rows=tuple(row(action) for action in shown),
        after=next_page,
        today={} if shown else settled_today(tenant_id, now),
        read_at=now,
    )


def row(action: Action) -> Row:
    """One action as a line."""
    record = action.observation.record if action.observation else {}
    parameters = json.loads(action.parameters)
    return Row(
        id=action.id,
        verb=words.humanize(action.kind),
        amount=action.amount,
        currency=action.currency,
        recipient=str(record.get("recipient") or ""),
        resource=str(parameters.get("payment") or parameters.get("payment_intent") or ""),
        agent=action.agent.name,
        chip=chip(action),
        expires_at=action.expires_at,
    )


def chip(action: Action) -> str:
    """Why this one is special: the strongest of the reasons that apply."""
    if action.changes_requested is not None:
        return "changes asked for"
    if action.revision > 1:
        return f"revision {action.revision}"
    if getattr(action, "again", False):
        return "same payment before"
    quorum = int(action.policy_outcome.get("quorum") or 1)
    return f"needs {quorum}" if quorum > 1 else ""


def settled_today(tenant_id: UUID, now: datetime) -> dict[str, int]:
    """How many actions were settled since midnight where the reader is, by status."""
    midnight = timezone.localtime(now).replace(hour=0, minute=0, second=0, microsecond=0)
    counts = (
        Decision.objects.filter(tenant_id=tenant_id, decided_at__gte=midnight)
        .values_list("verdict")
        .annotate(count=Count("id"))
        .order_by("verdict")
    )
    return {words.action_word(verdict).word.lower(): count for verdict, count in counts}


def new_since(tenant_id: UUID, since: datetime) -> int:
    """How many came in after `since` and still wait."""
    return pending(tenant_id, clock.now()).filter(created_at__gt=since).count()


def next_after(tenant_id: UUID, action_id: UUID) -> Row | None:
    """The most urgent action other than this one."""
    query = pending(tenant_id, clock.now()).exclude(id=action_id).select_related("agent", "observation")
    following = query.order_by("expires_at", "id").first()
    return row(following) if following else None
