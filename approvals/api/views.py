"""The operations of `/v1`: parse, call one function, render. Nothing is decided here.

Bodies are read by the operation and not by django-ninja, so that the order of refusals is the published one:
401, 403, 413, 415, 400 for the key, 400 for the JSON, 422.
"""

from typing import Annotated, Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.utils.http import parse_etags
from ninja import NinjaAPI, Query
from ninja.errors import ValidationError as QueryError
from ninja.openapi.schema import OpenAPISchema

from approvals import decisions, intake, kinds
from approvals.api import errors, reading
from approvals.api.docs import PlainDocs
from approvals.api.entry import answer_to
from approvals.api.errors import PROBLEM_JSON, FieldError, ProblemError
from approvals.api.preferences import preferred_wait
from approvals.api.requests import (
    Bearer,
    Caller,
    check_body,
    idempotency_key,
    parse_id,
    read_body,
    read_submission,
)
from approvals.api.schemas import (
    LONGEST_WAIT,
    ActionOut,
    ErrorsOut,
    KindsOut,
    MeOut,
    PageOut,
    ProblemOut,
    SubmissionIn,
    Visible,
)
from approvals.health import SUBMISSIONS
from approvals.models import ActionStatus
from approvals.polling import poll_of
from approvals.refusals import AlreadyDecidedError
from approvals.representation import Wire, etag, phase, render

READ = Bearer("actions:read")
WRITE = Bearer("actions:write")
KEY_PARAMETER = {
    "in": "header",
    "name": "Idempotency-Key",
    "required": True,
    "description": "8 to 255 visible ASCII characters, bare or as a quoted structured-field string. Derived from "
    "run and step, the same on every retry.",
    "schema": {"type": "string", "minLength": 8},
}
SUBMISSION_BODY = {
    "required": True,
    "content": {
        "application/json": {
            "schema": SubmissionIn.model_json_schema(ref_template="#/components/schemas/{model}")
        }
    },
}


class AgentApi(NinjaAPI):
    """django-ninja with the media type of refusals put right in the published schema."""

    def get_openapi_schema(
        self, *, path_prefix: str | None = None, path_params: dict[str, Any] | None = None
    ) -> OpenAPISchema:
        """OpenAPI 3.1 of this API."""
        schema = super().get_openapi_schema(path_prefix=path_prefix, path_params=path_params)
        for operations in schema["paths"].values():
            for operation in operations.values():
                for status, said in operation["responses"].items():
                    content = said.get("content", {})
                    if int(status) >= 400 and "application/json" in content:
                        content[PROBLEM_JSON] = content.pop("application/json")
        inner = SUBMISSION_BODY["content"]["application/json"]["schema"].get("$defs", {})  # type: ignore[index]
        schema["components"]["schemas"].update(inner)
        return schema


api = AgentApi(
    title="Second Key: agent API",
    version="1",
    description="Propose an action, then ask what became of it. Errors are problem documents (RFC 9457) with a "
    "`code` listed at /v1/errors. Money is a whole number of the currency's minor unit. Idempotency keys are kept "
    "for a published time; an operation (run, step, kind) is known for ever, so that a late retry changes nothing.",
    docs=PlainDocs(),
    urls_namespace="agent-api",
)


def refusals(*statuses: int) -> dict[int, Any]:
    """Statuses that an operation may refuse with, for the schema."""
    return dict.fromkeys((*statuses, 401, 403, 429, 500, 503), ProblemOut)


@api.exception_handler(QueryError)
def wrong_query(request: HttpRequest, error: QueryError) -> HttpResponse:
    """A query parameter that cannot be read; the pointer names it."""
    found = tuple(
        FieldError(detail=f"{one['msg']}.", pointer=errors.pointer(one["loc"][1:])) for one in error.errors
    )
    return errors.response(
        ProblemError(code="invalid_parameters", detail="A query parameter is wrong.", errors=found)
    )


@api.exception_handler(Exception)
def refused(request: HttpRequest, error: Exception) -> HttpResponse:
    """Every other exception, by the one table."""
    return answer_to(request, error)


def caller_of(request: HttpRequest) -> Caller:
    """Who the operation's `auth` found."""
    caller: Caller = request.auth  # type: ignore[attr-defined]
    return caller


def answer(obj: object, status: int = 200, headers: dict[str, str] | None = None) -> HttpResponse:
    """JSON of ours."""
    return HttpResponse(render(obj), status=status, content_type="application/json", headers=headers)


@api.post(
    "/actions",
    auth=WRITE,
    operation_id="submitAction",
    summary="Propose an action",
    response={201: ActionOut, 200: ActionOut, **refusals(400, 409, 413, 415, 422)},
    openapi_extra={"parameters": [KEY_PARAMETER], "requestBody": SUBMISSION_BODY},
)
def submit_action(request: HttpRequest) -> HttpResponse:
    """201 where it is new. The same key and request, or the same run, step, kind and parameters under another
    key, give the action that stands, marked `Idempotent-Replayed: true`.
    """
    caller = caller_of(request)
    check_body(request)
    key = idempotency_key(request)
    submission = read_submission(read_body(request))
    try:
        made = intake.submit(
            tenant_id=caller.tenant_id, agent_id=caller.agent_id, key=key, submission=submission
        )
    except intake.IntakeError as error:
        SUBMISSIONS.labels("refused").inc()
        raise ProblemError(
            code=error.code,
            detail=error.detail,
            errors=tuple(FieldError(detail=one.detail, pointer=one.pointer) for one in error.faults),
            action=error.action,
            retry_after=error.retry_after,
        ) from error
    SUBMISSIONS.labels(made.how).inc()
    response = answer(
        made.action, made.status, {"Location": made.action["links"]["self"], "ETag": etag(made.action)}
    )
    if made.how != "created":
        response["Idempotent-Replayed"] = "true"
    return response


@api.get(
    "/actions",
    auth=READ,
    operation_id="listActions",
    summary="List own actions, the newest first",
    response={200: PageOut, **refusals(422)},
)
def list_actions(
    request: HttpRequest,
    run_id: Visible | None = None,
    step_id: Visible | None = None,
    status: ActionStatus | None = None,
    cursor: UUID | None = None,
    limit: Annotated[int, Query(ge=1, le=reading.MOST_ITEMS)] = 50,
) -> HttpResponse:
    """Pages by keyset: pass `next_cursor` as `cursor` until it is null."""
    page = reading.page(
        caller_of(request), run_id=run_id, step_id=step_id, status=status, cursor=cursor, limit=limit
    )
    return answer({"items": page.items, "next_cursor": page.next_cursor})


@api.get(
    "/actions/{action_id}",
    auth=READ,
    operation_id="getAction",
    summary="Ask what became of an action",
    response={200: ActionOut, 304: None, **refusals(404, 422)},
)
def get_action(
    request: HttpRequest, action_id: str, wait: Annotated[int | None, Query(ge=0)] = None
) -> HttpResponse:
    """`?wait=N` or `Prefer: wait=N` holds the answer for at most 30 seconds: until the action differs from what
    `If-None-Match` names, or without it until it is decided, or, already decided, until it is final.
    """
    found = reading.action(caller_of(request), action_id)
    tag = etag(found)
    headers = {"ETag": tag, "Cache-Control": "no-store"}
    preferred = preferred_wait(request.headers.get("Prefer", ""))
    note = poll_of(request)
    if note is not None:
        note.wait = min(LONGEST_WAIT, wait if wait is not None else preferred or 0)
        note.phase = phase(found)
        if wait is None and preferred is not None:
            headers["Preference-Applied"] = f"wait={note.wait}"
    if unchanged(request.headers.get("If-None-Match", ""), tag):
        return HttpResponse(
            status=304, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )
    return answer(found, headers=headers)


def unchanged(if_none_match: str, tag: str) -> bool:
    """Whether the caller named this very version (RFC 9110, 13.1.2: weak comparison)."""
    named = [one.removeprefix("W/") for one in parse_etags(if_none_match)]
    return "*" in named or tag in named


@api.post(
    "/actions/{action_id}/cancel",
    auth=WRITE,
    operation_id="cancelAction",
    summary="Take a pending action back",
    response={200: ActionOut, **refusals(404, 409)},
)
def cancel_action(request: HttpRequest, action_id: str) -> HttpResponse:
    """Again is the same. What is decided stays decided: 409."""
    caller = caller_of(request)
    wanted = parse_id(action_id)
    if wanted is None:
        raise ProblemError(code="not_found")
    try:
        decisions.cancel(tenant_id=caller.tenant_id, agent_id=caller.agent_id, action_id=wanted)
    except AlreadyDecidedError as error:
        raise ProblemError(code="already_decided", detail=error.message, action=wanted) from error
    found = reading.action(caller, action_id)
    return answer(found, headers={"ETag": etag(found)})


@api.get(
    "/kinds",
    auth=Bearer(),
    operation_id="listKinds",
    summary="List the kinds of action with their schemas",
    response={200: KindsOut, **refusals()},
)
def list_kinds(request: HttpRequest) -> HttpResponse:
    """A submission names a kind and may name a version of its schema; without one the current version holds."""
    return answer({"kinds": kinds.published()})


@api.get(
    "/me",
    auth=Bearer(),
    operation_id="whoAmI",
    summary="Whose token this is",
    response={200: MeOut, **refusals()},
)
def me(request: HttpRequest) -> HttpResponse:
    """The agent, its tenant and its scopes."""
    caller = caller_of(request)
    said: Wire = {
        "agent": str(caller.agent_id),
        "name": caller.name,
        "tenant": str(caller.tenant_id),
        "scopes": sorted(caller.scopes),
    }
    return answer(said)


@api.get("/errors", operation_id="listErrors", summary="The catalogue of errors", response={200: ErrorsOut})
def list_errors(request: HttpRequest) -> HttpResponse:
    """Every `code` with its status, and what to do."""
    return answer({"errors": errors.catalogue()})
