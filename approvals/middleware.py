"""What every request and every page needs: an id to quote, and headers that keep pages out of caches."""

import re
from collections.abc import Callable
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.utils.cache import patch_vary_headers

from ledger.ids import new_id

type Handler = Callable[[HttpRequest], HttpResponse]


class RequestIdMiddleware:
    """Gives each answer an `X-Request-ID`; a caller's own is kept where it is a UUID."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        given = request.headers.get("X-Request-ID", "")
        known = re.fullmatch(r"[0-9a-fA-F-]{36}", given)
        try:
            request_id = str(UUID(given)) if known else str(new_id())
        except ValueError:
            request_id = str(new_id())
        request.META["second_key.request_id"] = request_id
        # forms and addresses are UTF-8 here, whatever charset a request names: Python knows some that decode
        # to nothing or to anything, and Django would use them
        request.encoding = "utf-8"
        response = self.get_response(request)
        response["X-Request-ID"] = request_id
        return response


class PageHeadersMiddleware:
    """Full page and fragment share an address, so they vary by `HX-Request`; a person's page is never stored."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if response.get("Content-Type", "").startswith("text/html"):
            patch_vary_headers(response, ["HX-Request"])
            if request.user.is_authenticated:
                response["Cache-Control"] = "no-store"
        return response
