"""Who is at the page: a signed-in person with the tenant they act in, and the roles they hold there.

Read anew for every request, for showing pages only. Whether somebody may decide is asked of
`approvals.authority` inside the deciding transaction, never of what is found here.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from typing import Any, Concatenate, cast
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.utils import timezone
from django_htmx.http import HttpResponseClientRedirect
from django_htmx.middleware import HtmxDetails

from approvals import tenants
from approvals.models import Action, ActionStatus, Membership, Role, TenantProfile, User
from ledger import clock
from ledger.transactions import tenant_reads

SESSION_TENANT = "tenant_id"
AUDITING = frozenset({Role.ADMIN, Role.AUDITOR})


@dataclass(frozen=True, kw_only=True)
class Person:
    """A person in one tenant. `waiting` counts what may still be decided there; `now` is the database's clock."""

    user: User
    tenant_id: UUID
    tenant_name: str
    time_zone: str
    roles: frozenset[Role]
    waiting: int
    now: datetime

    @property
    def name(self) -> str:
        """What they are called on the page."""
        return self.user.get_short_name() or self.user.get_username()

    @property
    def audits(self) -> bool:
        """Whether the stories of actions are theirs to read."""
        return bool(self.roles & AUDITING)

    @property
    def role_words(self) -> str:
        """Their roles in words, in a fixed order."""
        return ", ".join(str(role) for role in Role if role in self.roles)

    def reads(self) -> AbstractContextManager[None]:
        """A short transaction inside their tenant's fence."""
        return tenant_reads(self.tenant_id)


class PersonRequest(HttpRequest):
    """A request of a signed-in person who belongs to a tenant."""

    person: Person
    htmx: HtmxDetails


type PersonView[**P] = Callable[Concatenate[PersonRequest, P], HttpResponse]
type View[**P] = Callable[Concatenate[HttpRequest, P], HttpResponseBase]


def active_tenant(request: HttpRequest, user: User) -> UUID | None:
    """The tenant that the session names if the person belongs to it, else the first they were added to."""
    ids = list(Membership.objects.filter(user_id=user.pk).order_by("pk").values_list("tenant_id", flat=True))
    chosen = request.session.get(SESSION_TENANT)
    return next((one for one in ids if str(one) == chosen), ids[0] if ids else None)


def person_in(user: User, tenant_id: UUID) -> Person | None:
    """The person as a member of the tenant; None where they hold no role in it (any more)."""
    with tenant_reads(tenant_id):
        roles = tenants.roles_of(user, tenant_id)
        if not roles:
            return None
        profile = TenantProfile.objects.get(tenant_id=tenant_id)
        now = clock.now()
        waiting = Action.objects.filter(
            tenant_id=tenant_id, status=ActionStatus.PENDING, expires_at__gt=now
        ).count()
    return Person(
        user=user,
        tenant_id=tenant_id,
        tenant_name=profile.name,
        time_zone=profile.time_zone,
        roles=roles,
        waiting=waiting,
        now=now,
    )


def zone(name: str) -> ZoneInfo:
    """The tenant's zone; UTC where the name means nothing to this machine."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        return ZoneInfo("UTC")


def to_login(request: HttpRequest, back_to: str) -> HttpResponse:
    """Send a visitor to sign in; a fragment's request moves the whole page, not the fragment."""
    redirect = redirect_to_login(back_to)
    if cast("PersonRequest", request).htmx:
        return HttpResponseClientRedirect(redirect.url)
    return redirect


def person_required[**P](
    *, roles: frozenset[Role] = frozenset(Role), back_to: Callable[..., str] | None = None
) -> Callable[[PersonView[P]], View[P]]:
    """Let a view be reached only by a signed-in member who holds one of `roles`.

    The view gets `request.person` and runs in the tenant's time zone, outside any transaction: it opens
    `request.person.reads()` or calls one use case. `back_to(**kwargs)` names where to go after signing in,
    where the address itself answers only POST.
    """

    def decorate(view: PersonView[P]) -> View[P]:
        @wraps(view)
        def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
            user = request.user
            if not user.is_authenticated:
                return to_login(request, back_to(**kwargs) if back_to else request.get_full_path())
            tenant_id = active_tenant(request, user)
            person = person_in(user, tenant_id) if tenant_id else None
            if person is None:
                return render(request, "review/nowhere.html", status=403)
            asked = cast("PersonRequest", request)
            asked.person = person
            if not person.roles & roles:
                raise PermissionDenied
            with timezone.override(zone(person.time_zone)):
                return view(asked, *args, **kwargs)

        return guarded

    return decorate


def page(
    request: PersonRequest, template: str, context: dict[str, Any], *, part: str = "", status: int = 200
) -> HttpResponse:
    """Render a page; for htmx its main region alone, or one named part of its template."""
    name = f"{template}#{part}" if part and request.htmx else template
    times = {"now": request.person.now, "zone": zone(request.person.time_zone)}
    return render(request, name, times | context, status=status)
