"""The auditors' pages: find an action, read its story. They only read; printing is the browser's."""

from uuid import UUID

from django.http import Http404, HttpResponse
from django.views.decorators.http import require_safe

from approvals.audit import records
from approvals.models import ActionStatus
from approvals.people import AUDITING, PersonRequest, page, person_required
from approvals.review import words


@require_safe
@person_required(roles=AUDITING)
def search(request: PersonRequest) -> HttpResponse:
    """Actions by what is known of them, the newest first."""
    text, status = request.GET.get("q", ""), request.GET.get("status", "")
    with request.person.reads():
        found = records.search(text=text, status=status, before=request.GET.get("before", ""))
    context = {
        "rows": [
            (action, words.action_word(action.status), words.humanize(action.kind))
            for action in found.actions
        ],
        "before": found.before,
        "q": text,
        "status": status,
        "statuses": [(str(one), words.action_word(one).word) for one in ActionStatus],
        "here": "audit",
    }
    return page(request, "audit/search.html", context)


@require_safe
@person_required(roles=AUDITING)
def story(request: PersonRequest, action_id: UUID) -> HttpResponse:
    """Everything about one action, on one page."""
    with request.person.reads():
        told = records.story(action_id)
    if told is None:
        raise Http404
    return page(request, "audit/story.html", {"story": told, "here": "audit"})
