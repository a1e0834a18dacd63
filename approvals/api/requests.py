"""What stands in a request before anything is looked up: token, size, media type, key, JSON. In that order.

Parsing with refusals from the catalogue; no database but for whose token it is.
"""

import re
from dataclasses import dataclass
from uuid import UUID

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest
from django.http.request import RawPostDataException
from ninja.security.base import AuthBase
from pydantic import ValidationError

from approvals import strictjson
from approvals.agents import token_digest
from approvals.api.errors import FieldError, ProblemError
from approvals.api.limits import limiter
from approvals.api.schemas import SubmissionIn, faults
from approvals.models import Agent, AgentToken
from approvals.polling import poll_of
from approvals.submissions import Submission
from ledger.transactions import tenant_reads

# A bare key, or a structured-field String (RFC 8941): printable ASCII with \" and \\ escaped.
KEY = re.compile(r"[\x21-\x7e]{8,255}", re.ASCII)
QUOTED = re.compile(r'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"', re.ASCII)
TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]{16,200}=*", re.ASCII)  # RFC 6750, b64token


@dataclass(frozen=True, kw_only=True)
class Caller:
    """The agent that a request speaks for."""

    tenant_id: UUID
    agent_id: UUID
    name: str
    scopes: frozenset[str]

    @property
    def rate_key(self) -> str:
        """Under which its requests are counted."""
        return f"agent:{self.agent_id}"


class Bearer(AuthBase):
    """An agent's token with a scope. A session cookie never stands in for it."""

    openapi_type = "http"
    openapi_scheme = "bearer"

    def __init__(self, scope: str = "") -> None:
        self.scope = scope
        super().__init__()

    def __call__(self, request: HttpRequest) -> Caller:
        """The caller. Raises ProblemError: 401 `unauthenticated`, 403 `scope`, 429 `rate_limited`."""
        caller = authenticate(request)
        rate(request, caller.rate_key)
        if self.scope and self.scope not in caller.scopes:
            raise ProblemError(
                code="scope", detail=f"This needs the scope {self.scope!r}, which the agent does not hold."
            )
        return caller


def authenticate(request: HttpRequest) -> Caller:
    """Whose token it is: its digest is looked up outside the fence, the agent inside. Raises ProblemError 401."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not TOKEN.fullmatch(token.strip()):
        raise ProblemError(code="unauthenticated", detail="Send `Authorization: Bearer <agent token>`.")
    known = AgentToken.objects.filter(digest=token_digest(token.strip())).first()
    agent = None
    if known is not None:
        with tenant_reads(known.tenant_id):
            agent = Agent.objects.filter(id=known.agent_id, revoked_at__isnull=True).first()
    if known is None or agent is None:
        raise ProblemError(code="unauthenticated", detail="The token is unknown or was revoked.")
    return Caller(
        tenant_id=known.tenant_id,
        agent_id=agent.id,
        name=agent.name,
        scopes=frozenset(map(str, agent.scopes)),
    )


def rate(request: HttpRequest, caller: str) -> None:
    """Count the request; a long poll that asks again for the same request is counted once. Raises ProblemError 429."""
    waiting = poll_of(request)
    allowance = limiter.ask(caller, cost=0 if waiting is not None and waiting.asked > 1 else 1)
    request.META["second_key.rate"] = allowance
    if not allowance.allowed:
        raise ProblemError(code="rate_limited", retry_after=allowance.reset)


def idempotency_key(request: HttpRequest) -> str:
    """The inner string of the header. Raises ProblemError 400."""
    raw = request.headers.get("Idempotency-Key")
    if raw is None or not raw.strip():
        raise ProblemError(code="idempotency_key_missing")
    value = raw.strip()
    quoted = QUOTED.fullmatch(value)
    if quoted:
        value = re.sub(r'\\(["\\])', r"\1", quoted.group(1))
    elif value.startswith('"'):
        raise ProblemError(
            code="idempotency_key_malformed", detail="The quoted string does not end, or holds a bare quote."
        )
    if not KEY.fullmatch(value):
        raise ProblemError(code="idempotency_key_malformed")
    return value


def check_body(request: HttpRequest) -> None:
    """Size and media type, before a byte is read. Raises ProblemError 413 or 415."""
    limit = settings.API_MAX_BODY
    try:
        declared = int(request.META.get("CONTENT_LENGTH") or 0)
    except ValueError:
        declared = 0
    too_large = ProblemError(code="body_too_large", detail=f"At most {limit} bytes.")
    if declared > limit:
        raise too_large
    if request.content_type != "application/json":
        raise ProblemError(code="unsupported_media_type")
    charset = (request.content_params or {}).get("charset", "utf-8")
    if charset.strip("\"'").lower() not in {"utf-8", "utf8"} or request.headers.get("Content-Encoding"):
        raise ProblemError(code="unsupported_media_type", detail="Send UTF-8 without a content coding.")


def read_body(request: HttpRequest) -> bytes:
    """The bytes of the body. Raises ProblemError 413, or 400 where the connection broke."""
    try:
        content = request.body
    except RequestDataTooBig as error:
        raise ProblemError(code="body_too_large", detail=f"At most {settings.API_MAX_BODY} bytes.") from error
    except (RawPostDataException, OSError) as error:
        raise ProblemError(code="malformed_json", detail="The body could not be read to its end.") from error
    if len(content) > settings.API_MAX_BODY:
        raise ProblemError(code="body_too_large", detail=f"At most {settings.API_MAX_BODY} bytes.")
    return content


def read_submission(content: bytes) -> Submission:
    """A submission from a request's body. Raises ProblemError: 400 `malformed_json`, 422 `invalid_parameters`."""
    try:
        parsed = strictjson.loads(content, max_bytes=settings.API_MAX_BODY)
    except strictjson.StrictJSONError as error:
        raise ProblemError(
            code="malformed_json",
            detail=str(error),
            errors=(FieldError(detail=str(error), pointer=error.pointer),),
        ) from error
    if not isinstance(parsed, dict):
        raise ProblemError(
            code="invalid_parameters",
            detail="The body must be a JSON object.",
            errors=(FieldError(detail="Must be an object.", pointer=""),),
        )
    try:
        given = SubmissionIn.model_validate(parsed)
    except ValidationError as error:
        raise ProblemError(
            code="invalid_parameters",
            detail="The request does not have the published form.",
            errors=faults(error),
        ) from error
    return Submission(
        kind=given.kind,
        schema_version=given.schema_version,
        run_id=given.run_id,
        step_id=given.step_id,
        parameters=given.parameters,
        submitted=strictjson.raw_member(content, "parameters") or "",
        reasoning=given.reasoning or "",
        expires_in=given.expires_in,
        versions=given.versions.model_dump(exclude_none=True) if given.versions else {},
        model_result=given.model_result or "",
        supersedes=own_id(given.supersedes),
    )


def own_id(text: str | None) -> UUID | None:
    """The id that `supersedes` names. Raises ProblemError 422 where it is none."""
    if text is None:
        return None
    found = parse_id(text)
    if found is None:
        wrong = FieldError(detail="Must be the id of an action, as it was answered.", pointer="/supersedes")
        raise ProblemError(code="invalid_parameters", detail="`supersedes` is no id.", errors=(wrong,))
    return found


def parse_id(text: str) -> UUID | None:
    """An id in its one written form; anything else is the id of nothing."""
    try:
        value = UUID(text)
    except ValueError:
        return None
    return value if str(value) == text.lower() else None
