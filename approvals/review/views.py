"""The reviewers' pages: parse, call one function, render. No rule lives here, and only a POST decides.

A full page and its fragment come from one view and one template; a request of htmx gets the fragment.
"""

from datetime import UTC
from http import HTTPStatus
from typing import Any
from uuid import UUID

from django.db import DatabaseError
from django.http import Http404, HttpResponse
from django.urls import reverse
from django.utils.dateparse import parse_datetime
from django.views.decorators.http import require_POST, require_safe

from approvals import decisions
from approvals.people import PersonRequest, page, person_required
from approvals.refusals import ActionNotFoundError, ChangedError, DecisionError, FieldError
from approvals.review import desk, words
from approvals.review import inbox as inbox_
from approvals.review.forms import DecideForm
from ledger.errors import JournalError

NOTHING_NEW = HTTPStatus.NO_CONTENT


def address(action_id: UUID) -> str:
    """Where an action's page is."""
    return reverse("review:action", args=[action_id])


@require_safe
@person_required()
def inbox(request: PersonRequest) -> HttpResponse:
    """What waits. With `since`, for htmx: a line that says how many came after it, or 204."""
    if request.htmx.target == "fresh":
        return fresh(request)
    with request.person.reads():
        listed = inbox_.read(request.person.tenant_id, after=request.GET.get("after", ""))
    return page(request, "review/inbox.html", {"inbox": listed, "here": "inbox"})


def fresh(request: PersonRequest) -> HttpResponse:
    """Say what is new without moving a row under anybody's pointer."""
    try:
        since = parse_datetime(request.GET.get("since", ""))
        since = since.astimezone(UTC) if since is not None and since.tzinfo is not None else None
    except (ValueError, OverflowError):  # no such day, or one that no clock in UTC has
        since = None
    if since is None:
        return HttpResponse(status=NOTHING_NEW)
    with request.person.reads():
        count = inbox_.new_since(request.person.tenant_id, since)
    if not count:
        return HttpResponse(status=NOTHING_NEW)
    return page(request, "review/inbox.html", {"count": count}, part="news")


@require_safe
@person_required()
def help_page(request: PersonRequest) -> HttpResponse:
    """How deciding works."""
    return page(request, "review/help.html", {"here": "help"})


@require_safe
@person_required()
def action(request: PersonRequest, action_id: UUID) -> HttpResponse:
    """One question, or what became of it. With `seen`, for htmx: 204 while nothing differs from it."""
    part = request.htmx.target if request.htmx.target in {"outcome", "news"} else ""
    return show(request, action_id, part=part or "")


def show(
    request: PersonRequest, action_id: UUID, *, part: str = "", status: int = 200, **more: Any
) -> HttpResponse:
    """The page as everything stands now. Raises Http404, the same for a foreign action and for none."""
    with request.person.reads():
        found = desk.find(action_id)
        if found is None:
            raise Http404
        shown = desk.read(request.person, found)
    if part and request.GET.get("seen") == shown.token:
        return HttpResponse(status=NOTHING_NEW)
    return page(request, "review/action.html", {"desk": shown, **more}, part=part, status=status)


@require_POST
@person_required(back_to=address)
def decide(request: PersonRequest, action_id: UUID) -> HttpResponse:
    """A verdict: 303 to the action; else the fresh page with why nothing was recorded (R-B3, K29, K46)."""
    form = DecideForm(request.POST)
    try:
        if not form.is_valid():
            raise FieldError("form", "The form did not arrive whole. Read the page again, then decide.")
        decisions.decide(
            tenant_id=request.person.tenant_id,
            user=request.person.user,
            action_id=action_id,
            verdict=form.cleaned_data["verdict"],
            reason=form.cleaned_data["reason"],
            bindings=form.bindings(),
        )
    except ActionNotFoundError:
        raise Http404 from None
    except DecisionError as refusal:
        return show(
            request, action_id, status=refusal.status, **refused(refusal, request.POST.get("reason", ""))
        )
    except (JournalError, DatabaseError):
        context = {"action_address": address(action_id)}
        return page(request, "review/not_recorded.html", context, status=HTTPStatus.SERVICE_UNAVAILABLE)
    return HttpResponse(status=HTTPStatus.SEE_OTHER, headers={"Location": address(action_id)})


def refused(refusal: DecisionError, reason: str) -> dict[str, Any]:
    """What the page says about a request that decided nothing; what was typed is kept."""
    changed = refusal.changed if isinstance(refusal, ChangedError) else ()
    return {
        "refusal": refusal,
        "field": refusal.field if isinstance(refusal, FieldError) else "",
        "changed": [words.CHANGED_WORDS.get(name, name) for name in changed],
        "typed": reason,
    }
