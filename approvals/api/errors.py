"""The catalogue of the agent API's errors, and how one becomes `application/problem+json` (RFC 9457).

One place for codes, statuses and advice; it is published at `/v1/errors`. No use case is decided here, and
nothing of an unexpected exception but its existence ever reaches the caller.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from django.conf import settings
from django.http import HttpResponse

PROBLEM_JSON = "application/problem+json"


@dataclass(frozen=True, kw_only=True)
class Code:
    """One published error. `advice` says what to do next; `retry` whether the same call may help."""

    code: str
    status: int
    title: str
    advice: str
    retry: bool = False


_CODES = (
    Code(
        code="malformed_json",
        status=400,
        title="The body is not JSON that can be read in one way only",
        advice="Send one JSON object in UTF-8: no duplicate names, NaN, lone surrogates or U+0000, at most 64 KiB.",
    ),
    Code(
        code="idempotency_key_missing",
        status=400,
        title="The Idempotency-Key header is missing",
        advice="Derive a key from the run and the step, never from a clock or a random value; a retry sends the same.",
    ),
    Code(
        code="idempotency_key_malformed",
        status=400,
        title="The Idempotency-Key header is malformed",
        advice="Send 8 to 255 visible ASCII characters, bare or as a quoted structured-field string.",
    ),
    Code(
        code="unauthenticated",
        status=401,
        title="The request names no valid agent",
        advice="Send `Authorization: Bearer <agent token>`. A revoked token stays revoked; ask an administrator.",
    ),
    Code(
        code="scope",
        status=403,
        title="The agent may not do this",
        advice="The token lacks the scope named in `detail`; ask the tenant's administrator.",
    ),
    Code(
        code="stopped",
        status=403,
        title="A kill switch is on",
        advice="Somebody stopped this tenant or agent on purpose. Do not retry by yourself; tell a person.",
    ),
    Code(
        code="not_found",
        status=404,
        title="There is nothing here for this agent",
        advice="Check the address and the id. What belongs to another agent looks the same as what does not exist.",
    ),
    Code(
        code="method_not_allowed",
        status=405,
        title="The address does not take this method",
        advice="Use one of the methods in the Allow header.",
    ),
    Code(
        code="in_progress",
        status=409,
        title="The first request with this key is still running",
        advice="Wait as long as Retry-After says, then send the same request with the same key.",
        retry=True,
    ),
    Code(
        code="operation_conflict",
        status=409,
        title="This run and step already proposed something else",
        advice="`action` names what is in the way. A changed proposal is a new revision: submit it with `supersedes`.",
    ),
    Code(
        code="supersede_refused",
        status=409,
        title="The action can no longer be superseded",
        advice="Read the action named in `action`: it was approved, or it already has a successor.",
    ),
    Code(
        code="provider_account_missing",
        status=409,
        title="The tenant has no account at the provider",
        advice="An administrator of the tenant has to set one up; then send the same request again.",
    ),
    Code(
        code="already_decided",
        status=409,
        title="The action is already decided",
        advice="Read the action; its decision stands.",
    ),
    Code(
        code="body_too_large",
        status=413,
        title="The body is larger than 64 KiB",
        advice="Send less; keep large context elsewhere and name it in `model_result`.",
    ),
    Code(
        code="unsupported_media_type",
        status=415,
        title="The body is not declared as JSON",
        advice="Send `Content-Type: application/json`, in UTF-8 and without a content coding.",
    ),
    Code(
        code="idempotency_key_reused",
        status=422,
        title="The key was used for another request",
        advice="Nothing was changed. One key belongs to one operation; derive another key for another one.",
    ),
    Code(
        code="invalid_parameters",
        status=422,
        title="Something in the request is not valid",
        advice="`errors` names each place by a JSON Pointer. The key is still free: correct the request and resend it.",
    ),
    Code(
        code="unknown_kind",
        status=422,
        title="There is no such kind of action or schema version",
        advice="GET /v1/kinds lists kinds and versions. Nothing was recorded under the key.",
    ),
    Code(
        code="rate_limited",
        status=429,
        title="Too many requests",
        advice="Wait as long as Retry-After says. To learn of a decision use `?wait=30` instead of asking often.",
        retry=True,
    ),
    Code(
        code="internal",
        status=500,
        title="Something broke on our side",
        advice="Send the same request with the same key again; quote X-Request-ID where it stays broken.",
        retry=True,
    ),
    Code(
        code="unavailable",
        status=503,
        title="The gateway cannot answer just now",
        advice="Nothing was changed. Wait as long as Retry-After says, then send the same request with the same key.",
        retry=True,
    ),
)

CATALOGUE: Mapping[str, Code] = {code.code: code for code in _CODES}


@dataclass(frozen=True, kw_only=True)
class FieldError:
    """One thing wrong in a request: what, and where as a JSON Pointer (RFC 6901) into the body."""

    detail: str
    pointer: str


def pointer(parts: Iterable[str | int]) -> str:
    """A JSON Pointer from a path."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


@dataclass(kw_only=True)
class ProblemError(Exception):
    """A refusal with a code of the catalogue. `action` is the id of the action that stands in the way."""

    code: str
    detail: str = ""
    errors: tuple[FieldError, ...] = ()
    action: UUID | None = None
    retry_after: int | None = None
    """Seconds."""
    headers: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}"


def body(problem: ProblemError) -> dict[str, object]:
    """The members of the problem document, in a fixed order. Nothing in it depends on the single request."""
    entry = CATALOGUE[problem.code]
    members: dict[str, object] = {
        "type": f"{settings.BASE_URL}/v1/errors#{entry.code}",
        "title": entry.title,
        "status": entry.status,
        "detail": problem.detail or entry.advice,
        "code": entry.code,
    }
    if problem.errors:
        members["errors"] = [{"detail": error.detail, "pointer": error.pointer} for error in problem.errors]
    if problem.action is not None:
        members["action"] = str(problem.action)
    return members


def response(problem: ProblemError) -> HttpResponse:
    """The answer that tells of the problem."""
    entry = CATALOGUE[problem.code]
    answer = HttpResponse(
        json.dumps(body(problem), ensure_ascii=False, separators=(",", ":")).encode(),
        status=entry.status,
        content_type=PROBLEM_JSON,
    )
    for name, value in problem.headers.items():
        answer[name] = value
    if problem.retry_after is not None:
        answer["Retry-After"] = str(problem.retry_after)
    if entry.status == 401:
        answer["WWW-Authenticate"] = 'Bearer realm="second-key"'
    if entry.code.startswith("idempotency_key"):
        answer["Link"] = f'<{settings.BASE_URL}/v1/docs#idempotency-key>; rel="describedby"'
    return answer


def catalogue() -> list[dict[str, object]]:
    """The published list."""
    return [
        {
            "code": entry.code,
            "status": entry.status,
            "title": entry.title,
            "advice": entry.advice,
            "retry": entry.retry,
            "type": f"{settings.BASE_URL}/v1/errors#{entry.code}",
        }
        for entry in _CODES
    ]
