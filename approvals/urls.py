"""Every address that the web process answers."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import URLPattern, URLResolver, include, path
from django.views.decorators.http import require_safe

from approvals import health
from approvals.api.entry import addresses
from approvals.api.views import api

patterns, application, namespace = api.urls


def ask(template: str) -> Callable[..., HttpResponse]:
    """A page that only tells whom to ask."""

    @require_safe
    def page(request: HttpRequest) -> HttpResponse:
        return render(request, template)

    return page


urlpatterns: list[URLPattern | URLResolver] = [
    path("v1/", (addresses(patterns), application, namespace)),
    path("healthz", health.healthz),
    path("readyz", health.readyz),
    path("metrics", health.metrics),
    # nothing is mailed: these two say whom to ask, under the names that allauth's pages link to
    path("accounts/password/reset/", ask("account/password_reset.html"), name="account_reset_password"),
    path("accounts/email/", ask("account/email.html"), name="account_email"),
    path("accounts/", include("allauth.account.urls")),
    path("docs/", include("approvals.docs")),
    path("audit/", include("approvals.audit.urls")),
    path("", include("approvals.review.urls")),
]
