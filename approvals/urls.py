"""Every address that the web process answers."""

from django.urls import URLPattern, URLResolver, include, path

from approvals import health
from approvals.api.entry import addresses
from approvals.api.views import api

patterns, application, namespace = api.urls

urlpatterns: list[URLPattern | URLResolver] = [
    path("v1/", (addresses(patterns), application, namespace)),
    path("healthz", health.healthz),
    path("readyz", health.readyz),
    path("metrics", health.metrics),
    path("accounts/", include("allauth.account.urls")),
    path("docs/", include("approvals.docs")),
    path("audit/", include("approvals.audit.urls")),
    path("", include("approvals.review.urls")),
]
