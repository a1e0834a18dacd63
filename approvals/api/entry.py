"""The door of `/v1`: what every answer of the API has in common, whichever operation gave it.

Wraps the addresses that django-ninja makes, so that also an unknown address, a wrong method and an unexpected
exception are answered with a problem document and rate headers. No operation lives here.
"""

import logging
from collections.abc import Callable, Sequence

from django.core.exceptions import BadRequest, RequestDataTooBig, SuspiciousOperation
from django.db import InterfaceError, OperationalError, connection
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, URLResolver, re_path

from approvals.api import errors
from approvals.api.errors import ProblemError
from approvals.api.limits import Allowance, limiter
from approvals.refusals import DecisionError
from ledger.errors import JournalError

logger = logging.getLogger(__name__)

type View = Callable[..., HttpResponse]

RETRY_SECONDS = 1


def addresses(patterns: Sequence[URLPattern | URLResolver]) -> list[URLPattern]:
    """The API's addresses behind the door, and behind them one that catches every other one."""
    behind = [
        URLPattern(made.pattern, door(made.callback), made.default_args, made.name)
        for made in patterns
        if isinstance(made, URLPattern) and made.name != "api-root"
    ]
    root = [made for made in patterns if isinstance(made, URLPattern) and made.name == "api-root"]
    behind += [URLPattern(made.pattern, door(nothing_here), made.default_args, made.name) for made in root]
    return [*behind, re_path(r"^.*$", door(nothing_here))]


def nothing_here(request: HttpRequest, **kwargs: object) -> HttpResponse:
    """Any other address."""
    raise ProblemError(code="not_found")


def door(view: View) -> View:
    """What every address of the API goes through."""

    def entered(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        head = request.method == "HEAD"
        if head:
            request.method = "GET"
        try:
            response = view(request, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the door is where exceptions become answers
            response = answer_to(request, error)
        if response.status_code == 405:
            response = other_method(request, response)
        if head:
            length = len(response.content)
            response.content = b""
            response["Content-Length"] = str(length)
        for name, value in rate_of(request).headers().items():
            response[name] = value
        if "Cache-Control" not in response:
            response["Cache-Control"] = "no-store"
        return response

    # An agent's token is in a header that no browser sends by itself; cookies authenticate nothing here.
    entered.csrf_exempt = True  # type: ignore[attr-defined]
    return entered


def answer_to(request: HttpRequest, error: Exception) -> HttpResponse:
    """The one place where an exception becomes an answer of the API."""
    problem = problem_for(error)
    if problem.code == "internal":
        logger.error(
            "unexpected", exc_info=error, extra={"request_id": request.META.get("second_key.request_id")}
        )
    elif problem.code == "unavailable":
        logger.warning("unavailable", extra={"error": str(error)})
        if not isinstance(error, JournalError):
            connection.close()  # it may be broken; the next request opens another
    return errors.response(problem)


def problem_for(error: Exception) -> ProblemError:
    """Which refusal of the catalogue an exception means. What is not foreseen is `internal`, without details."""
    if isinstance(error, ProblemError):
        return error
    if isinstance(error, JournalError | OperationalError | InterfaceError):
        return ProblemError(code="unavailable", retry_after=RETRY_SECONDS)
    if isinstance(error, DecisionError):
        code = {404: "not_found", 409: "already_decided"}.get(error.status, "internal")
        return ProblemError(code=code, detail="" if code in {"not_found", "internal"} else error.message)
    if isinstance(error, Http404):
        return ProblemError(code="not_found")
    if isinstance(error, RequestDataTooBig):
        return ProblemError(code="body_too_large")
    if isinstance(error, SuspiciousOperation | BadRequest):
        return ProblemError(code="malformed_json", detail="The request could not be read.")
    return ProblemError(code="internal")


def other_method(request: HttpRequest, refused: HttpResponse) -> HttpResponse:
    """OPTIONS gets the list of methods; any other method the address does not take, a problem with the list."""
    methods = {name.strip() for name in refused.get("Allow", "").split(",") if name.strip()}
    methods |= {"OPTIONS"} | ({"HEAD"} if "GET" in methods else set())
    allow = ", ".join(sorted(methods))
    if request.method == "OPTIONS":
        return HttpResponse(status=204, headers={"Allow": allow})
    return errors.response(ProblemError(code="method_not_allowed", headers={"Allow": allow}))


def rate_of(request: HttpRequest) -> Allowance:
    """What was counted for the caller; who showed no valid token is counted by address."""
    counted = request.META.get("second_key.rate")
    if isinstance(counted, Allowance):
        return counted
    return limiter.ask(f"address:{request.META.get('REMOTE_ADDR', '')}")
