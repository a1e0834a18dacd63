"""The documentation that the program serves about itself, at /docs/, for everybody who can reach it.

What can be read from the code (variables, bounds, codes, promises of a provider) is read from it and not
retold. No tenant's data, and nothing that only a signed-in person may know.
"""

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.views.decorators.http import require_safe

from approvals import kinds, variables
from approvals.api import errors, schemas
from ledger.operations import CASE_DEADLINE
from ledger.providers.registry import PROVIDERS, capabilities_of

POLICY = """\
{
  "rules": [
    {"name": "refunds up to 500", "when": {"currency": "usd", "max_amount": 50000},
     "outcome": "review", "quorum": 1, "roles": ["reviewer"]},
    {"name": "larger refunds need two", "when": {"currency": "usd"},
     "outcome": "review", "quorum": 2, "roles": ["reviewer"]}
  ],
  "expires_in": 3600,
  "execute_within": 3600
}
"""


@dataclass(frozen=True, kw_only=True)
class Page:
    """One page: its address, what it is called, and one line on what stands there."""

    slug: str
    title: str
    says: str

    @property
    def template(self) -> str:
        """Where its words are."""
        return f"docs/{self.slug}.html"


PAGES = (
    Page(
        slug="install",
        title="Install on your own servers",
        says="Roles, variables, processes, what to watch.",
    ),
    Page(
        slug="agents",
        title="For people who write agents",
        says="Submit, wait, retry: one key an operation, and what each answer asks you to do.",
    ),
    Page(
        slug="reviewers", title="For reviewers", says="What stands on the page, and what your verdict binds."
    ),
    Page(
        slug="once",
        title="How it stays once",
        says="States, evidence, and what is promised within which bounds.",
    ),
    Page(
        slug="auditor",
        title="Answering the auditor",
        says="Three questions, and where their answers are kept.",
    ),
)


def with_code(text: str) -> SafeString:
    """Text with its `backticked` parts set as code, everything escaped."""
    parts = re.split(r"`([^`]*)`", text)
    return format_html_join(
        "", "{}", ((format_html("<code>{}</code>", part) if n % 2 else part,) for n, part in enumerate(parts))
    )


def in_hours(time: timedelta | None) -> str:
    """A time in words; `none` where nothing is promised."""
    if time is None:
        return "none"
    hours = time.total_seconds() / 3600
    return f"{hours:g} {'hour' if hours == 1 else 'hours'}"


def promises(name: str) -> dict[str, Any]:
    """A provider's capabilities, as the ledger relies on them."""
    known = capabilities_of(name)
    return {
        "name": name.capitalize(),
        "keys": known.key_retention is not None,
        "retention": in_hours(known.key_retention),
        "margin": in_hours(known.key_retention_margin),
        "detects_mismatch": known.detects_mismatch,
        "look_up": known.look_up,
        "documented": known.processing_bound is not None and known.visibility_bound is not None,
        "processing": in_hours(known.processing_bound),
        "visibility": in_hours(known.visibility_bound),
        "reversible": known.reversible,
    }


def shared() -> dict[str, Any]:
    """What the pages say of the code and of this installation's settings."""
    return {
        "pages": PAGES,
        "base_url": settings.BASE_URL,
        "groups": [
            {
                "title": group.title,
                "variables": [{"is": one, "what": with_code(one.what)} for one in group.variables],
            }
            for group in variables.GROUPS
        ],
        "roles_sql": variables.ROLES_SQL,
        "policy": POLICY,
        "retention_hours": settings.IDEMPOTENCY_RETENTION.total_seconds() / 3600,
        "longest_wait": schemas.LONGEST_WAIT,
        "rate": f"{settings.API_RATE_PER_MINUTE:,}",
        "body_kib": settings.API_MAX_BODY // 1024,
        "codes": [{"entry": code, "advice": with_code(code.advice)} for code in errors.CATALOGUE.values()],
        "kinds": kinds.published(),
        "deadline": settings.LEDGER_DEADLINE_SECONDS,
        "case_hours": CASE_DEADLINE.total_seconds() / 3600,
        "providers": [promises(name) for name in sorted(PROVIDERS)],
    }


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """What there is to read."""
    return render(request, "docs/index.html", shared())


@require_safe
def page(request: HttpRequest, slug: str) -> HttpResponse:
    """One page. Raises Http404."""
    for one in PAGES:
        if one.slug == slug:
            return render(request, one.template, {**shared(), "page": one})
    raise Http404


app_name = "docs"
urlpatterns = [
    path("", index, name="index"),
    path("<slug:slug>/", page, name="page"),
]
