"""What an agent reads of its own actions. Another agent's or tenant's action does not exist here.

One short transaction inside the fence for each look; an action whose time is over is closed first, so that
nobody is told "pending" after the expiry because a worker is late (K28).
"""

from dataclasses import dataclass
from uuid import UUID

from approvals import decisions
from approvals.api.errors import ProblemError
from approvals.api.requests import Caller, parse_id
from approvals.models import Action, ActionStatus
from approvals.representation import Wire, represent, represent_all
from ledger import clock
from ledger.transactions import tenant_reads

MOST_ITEMS = 100


@dataclass(frozen=True, kw_only=True)
class Page:
    """Actions, the newest first, and where to go on."""

    items: list[Wire]
    next_cursor: str | None


def action(caller: Caller, action_id: str) -> Wire:
    """The action. Raises ProblemError 404, the same for what is foreign, unknown or no id at all."""
    wanted = parse_id(action_id)
    if wanted is None:
        raise ProblemError(code="not_found")
    found = _look(caller, wanted)
    if found is None:
        decisions.expire_due(caller.tenant_id, wanted)
        found = _look(caller, wanted)
    if found is None:
        raise ProblemError(code="unavailable", retry_after=1)  # the clock went back; never in production
    return found


def _look(caller: Caller, action_id: UUID) -> Wire | None:
    """The action as it stands; None where it is overdue and still to be closed. Raises ProblemError 404."""
    with tenant_reads(caller.tenant_id):
        row = Action.objects.filter(
            tenant_id=caller.tenant_id, agent_id=caller.agent_id, id=action_id
        ).first()
        if row is None:
            raise ProblemError(code="not_found")
        if overdue(row):
            return None
        return represent(row)


def overdue(row: Action) -> bool:
    """Whether it is pending and its time is over by the database's clock."""
    return row.status == ActionStatus.PENDING and clock.now() >= row.expires_at


def page(
    caller: Caller,
    *,
    run_id: str | None,
    step_id: str | None,
    status: ActionStatus | None,
    cursor: UUID | None,
    limit: int,
) -> Page:
    """One page by keyset, `limit` from 1 to MOST_ITEMS. The number of queries does not depend on the rows."""
    rows = Action.objects.filter(tenant_id=caller.tenant_id, agent_id=caller.agent_id)
    for name, value in (("run_id", run_id), ("step_id", step_id), ("status", status)):
        if value is not None:
            rows = rows.filter(**{name: value})
    if cursor is not None:
        rows = rows.filter(id__lt=cursor)
    rows = rows.order_by("-id")[: limit + 1]
    with tenant_reads(caller.tenant_id):
        found = list(rows)
        now = clock.now()
        late = [row.id for row in found if row.status == ActionStatus.PENDING and now >= row.expires_at]
        items = [] if late else represent_all(found[:limit])
    if late:  # rare: a worker is behind
        for one in late:
            decisions.expire_due(caller.tenant_id, one)
        with tenant_reads(caller.tenant_id):
            found = list(rows.all())
            items = represent_all(found[:limit])
    more = len(found) > limit
    return Page(items=items, next_cursor=items[-1]["id"] if more and items else None)
