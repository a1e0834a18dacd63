"""The sandbox's refusals in Stripe's shape. No HTTP, no store."""

import json
from dataclasses import dataclass, field, replace
from typing import Self

type Json = dict[str, Json] | list[Json] | str | int | float | bool | None
type JsonObject = dict[str, Json]


@dataclass(frozen=True, kw_only=True)
class Reply:
    """An HTTP answer before it is sent. `body` is the exact text, so that a replay is byte-identical."""

    status: int
    body: str
    headers: tuple[tuple[str, str], ...] = field(default=())

    @classmethod
    def json(cls, status: int, value: Json) -> Self:
        """An answer with `value` as its body."""
        return cls(status=status, body=json.dumps(value, ensure_ascii=False, indent=1))

    def with_headers(self, *headers: tuple[str, str]) -> Self:
        """The same answer with more headers."""
        return replace(self, headers=(*self.headers, *headers))


class ApiError(Exception):
    """A refusal as Stripe words it: an HTTP status and `{"error": {type, code, message, param}}`."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = "invalid_request_error",  # noqa: A002  (Stripe's own word)
        code: str | None = None,
        param: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.type = type
        self.code = code
        self.param = param

    def reply(self) -> Reply:
        """The answer that carries this refusal."""
        error: JsonObject = {"type": self.type, "message": str(self)}
        if self.code is not None:
            error["code"] = self.code
            error["doc_url"] = f"https://stripe.com/docs/error-codes/{self.code.replace('_', '-')}"
        if self.param is not None:
            error["param"] = self.param
        return Reply.json(self.status, {"error": error})


def missing(what: str, id: str, param: str = "id", status: int = 404) -> ApiError:  # noqa: A002
    """Stripe's answer where this account has no such object, another account's included."""
    return ApiError(status, f"No such {what}: '{id}'", code="resource_missing", param=param)


def server_error() -> ApiError:
    """Stripe's 500."""
    return ApiError(500, "An unknown error occurred", type="api_error")


def unavailable() -> ApiError:
    """A 503 from before anything was done."""
    return ApiError(503, "The service is temporarily unavailable", type="api_error")


BEFORE_KEY_LAYER = {
    "rate_limit": 429,
    "lock_timeout": 429,
    "api_key_expired": 401,
    "idempotency_key_in_use": 409,
}
"""Refusals that Stripe makes before or beside its idempotency layer: never saved under a key."""


def refusal(code: str) -> ApiError:
    """The definite refusal `code`, with the status and type that Stripe gives it."""
    status = BEFORE_KEY_LAYER.get(code)
    if status is None:
        status = 402 if code in {"card_declined", "expired_card", "insufficient_funds"} else 400
    kind = "card_error" if status == 402 else "invalid_request_error"
    return ApiError(status, f"The sandbox was told to refuse this: {code}.", type=kind, code=code)
