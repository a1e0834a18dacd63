"""The API's documentation as a plain page of our own, made from the schema: it needs no script and no CDN.

Only display; what it tells stands in the schema, in the catalogue of errors and in the kinds.
"""

from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from ninja import NinjaAPI
from ninja.openapi.docs import DocsBase

from approvals.api.errors import catalogue

METHODS = ("get", "post", "put", "patch", "delete")


@dataclass(frozen=True, kw_only=True)
class OperationEntry:
    """One operation, as the page shows it."""

    anchor: str
    method: str
    path: str
    summary: str
    description: str
    parameters: list[dict[str, Any]]
    responses: list[tuple[str, str]]
    secured: bool


class PlainDocs(DocsBase):
    """Stands where django-ninja would put Swagger."""

    def render_page(self, request: HttpRequest, api: NinjaAPI, **kwargs: Any) -> HttpResponse:
        """The page."""
        schema = api.get_openapi_schema(path_params=kwargs)
        return render(
            request,
            "api/docs.html",
            {
                "title": schema["info"]["title"],
                "description": schema["info"]["description"],
                "base_url": settings.BASE_URL,
                "operations": entries(schema),
                "errors": catalogue(),
                "retention_hours": settings.IDEMPOTENCY_RETENTION.total_seconds() / 3600,
            },
        )


def entries(schema: dict[str, Any]) -> list[OperationEntry]:
    """The operations in the order of the schema."""
    return [
        OperationEntry(
            anchor=operation["operationId"],
            method=method.upper(),
            path=path,
            summary=operation.get("summary", ""),
            description=operation.get("description", ""),
            parameters=operation.get("parameters", []),
            responses=[(str(status), said["description"]) for status, said in operation["responses"].items()],
            secured=bool(operation.get("security")),
        )
        for path, operations in schema["paths"].items()
        for method, operation in operations.items()
        if method in METHODS
    ]
