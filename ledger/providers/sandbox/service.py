"""One request in, one answer and how to send it out: accounts, routes, key layer and faults put together.

No socket: the server sends what is decided here. Accounts are known by a digest: no secret key is kept.
"""

import base64
import binascii
import hashlib
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from . import payments, refunds
from .errors import BEFORE_KEY_LAYER, ApiError, Reply, refusal, server_error, unavailable
from .faults import Armed, Kind, Taken
from .idempotency import MAX_KEY_LENGTH, Delivery, Execute, KeyLayer
from .landing import Landing
from .objects import new_id
from .params import Params, Reader, fingerprint, parse_form
from .store import Books, Store

SECRET_KEY = re.compile(r"sk_test_[A-Za-z0-9_-]{1,240}", re.ASCII)
FORM = "application/x-www-form-urlencoded"


class Sending(StrEnum):
    """What the server does with an answer on the socket."""

    PLAINLY = "plainly"
    NOT_AT_ALL = "not_at_all"  # close at once
    SILENTLY = "silently"  # hold the connection open, say nothing
    DRIPPING = "dripping"
    TRUNCATED = "truncated"


@dataclass(frozen=True, kw_only=True)
class Request:
    """An HTTP request, read in full. Header names are lower case; `body` is raw."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A reply, and how it goes out over how many `seconds`."""

    reply: Reply
    sending: Sending = Sending.PLAINLY
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Route:
    """One endpoint. `operation` is what `calls` and faults call it; `path` is without the id."""

    operation: str
    path: str
    id: str


ROUTES = [
    (method, re.compile(pattern), operation)
    for method, pattern, operation in [
        ("POST", r"(/v1/refunds)", "refund.create"),
        ("GET", r"(/v1/refunds)", "refund.list"),
        ("GET", r"(/v1/refunds)/(re_\w+|[^/]+)", "refund.retrieve"),
        ("POST", r"(/v1/payment_intents)", "payment.create"),
        ("GET", r"(/v1/payment_intents)", "payment.list"),
        ("GET", r"(/v1/payment_intents)/([^/]+)", "payment.retrieve"),
        ("GET", r"(/v1/charges)", "charge.list"),
        ("GET", r"(/v1/charges)/([^/]+)", "charge.retrieve"),
    ]
]
READS = {
    "payment.list": payments.list_payment_intents,
    "payment.retrieve": payments.retrieve_payment_intent,
    "charge.list": payments.list_charges,
    "charge.retrieve": payments.retrieve_charge,
    "refund.retrieve": refunds.retrieve,
}
SENDINGS: dict[Kind | None, Sending] = {
    Kind.LOSE_ACK: Sending.NOT_AT_ALL,
    Kind.DELAY_COMMIT: Sending.SILENTLY,
    Kind.DRIP: Sending.DRIPPING,
    Kind.TRUNCATE: Sending.TRUNCATED,
}


def account_of(secret_key: str) -> str:
    """The account id that a secret key stands for, or ApiError (401)."""
    if SECRET_KEY.fullmatch(secret_key) is None:
        raise ApiError(401, f"Invalid API Key provided: {secret_key[:8]}***")
    return "acct_" + hashlib.sha256(secret_key.encode()).hexdigest()[:16]


def authenticate(headers: Mapping[str, str]) -> str:
    """The account of a request: Bearer, or Basic with the key as the user name."""
    scheme, _, value = headers.get("authorization", "").strip().partition(" ")
    value = value.strip()
    if scheme.lower() == "basic":
        try:
            value = base64.b64decode(value, validate=True).decode().partition(":")[0]
        except (binascii.Error, UnicodeDecodeError):
            value = ""
    elif scheme.lower() != "bearer":
        value = ""
    if not value:
        raise ApiError(401, "You did not provide an API key.")
    return account_of(value)


class Service:
    """The provider without its socket."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.faults = Armed()
        self.keys = KeyLayer(store)
        self.landing = Landing(store, plan)

    def handle(self, request: Request) -> Answer:
        """Answer one `/v1/` request. Never raises ApiError."""
        request_id = new_id("req")
        try:
            answer = self._answer(request, request_id)
        except ApiError as error:
            answer = Answer(reply=error.reply())
        headers = [("Request-Id", request_id)]
        key = request.headers.get("idempotency-key")
        if key is not None and request.method == "POST":
            headers.append(("Idempotency-Key", key))
        reply = answer.reply.with_headers(*headers)
        return Answer(reply=reply, sending=answer.sending, seconds=answer.seconds)

    def _answer(self, request: Request, request_id: str) -> Answer:
        route = find_route(request)
        account = self._admit(request, route)
        params = read_params(request)
        taken = Taken()
        if self.faults:
            with self.store.transaction() as books:
                payment = payment_meant(books, account, route, params)
            taken = self.faults.take(route.operation, payment)
        if taken.kind is Kind.ERROR_BEFORE:
            raise unavailable()
        if taken.kind is Kind.REFUSE and (taken.code in BEFORE_KEY_LAYER or request.method == "GET"):
            raise refusal(taken.code)
        try:
            if request.method == "GET":
                reply = self._read(account, route, params, taken)
            else:
                reply = self._write(request, request_id, account, route, params, taken)
        except ApiError as error:
            # Even a refusal gets lost, truncated or dripped: the fault is the connection's.
            reply = error.reply()
        return Answer(reply=reply, sending=SENDINGS.get(taken.kind, Sending.PLAINLY), seconds=taken.seconds)

    def _admit(self, request: Request, route: Route) -> str:
        """Count the call as it arrives, whoever makes it, and authenticate it."""
        refused: ApiError | None = None
        account = ""
        try:
            account = authenticate(request.headers)
        except ApiError as error:
            refused = error
        with self.store.transaction() as books:
            books.count(account, route.operation)
        if refused is not None:
            raise refused
        return account

    def _read(self, account: str, route: Route, params: Params, taken: Taken) -> Reply:
        with self.store.transaction() as books:
            if route.operation == "refund.list":
                found = refunds.list_refunds(books, account, Reader(params), hide=taken.hide)
            else:
                found = READS[route.operation](books, account, Reader(params), route.id)
        if taken.kind is Kind.ERROR_AFTER:
            raise server_error()
        if taken.kind is Kind.SLOW:
            time.sleep(taken.seconds)
        return Reply.json(200, found)

    def _write(
        self, request: Request, request_id: str, account: str, route: Route, params: Params, taken: Taken
    ) -> Reply:
        endpoint = f"{request.method} {route.path}"
        delivery = Delivery(
            account=account,
            key=read_key(request.headers),
            endpoint=endpoint,
            fingerprint=fingerprint(params),
            request_id=request_id,
        )
        hide = taken.hide or 0.0

        def planned() -> Execute:
            execute = plan(endpoint, account, params, hide)
            return refusing(taken.code) if taken.kind is Kind.REFUSE else execute

        if taken.kind is Kind.DELAY_COMMIT:
            self.keys.defer(delivery, planned, params=json.dumps(params), hide=hide, seconds=taken.seconds)
            self.landing.wake()
            return Reply(status=200, body="")
        if taken.kind is Kind.DUPLICATE_DELIVERY:
            self.keys.run(delivery, planned)
        return self.keys.run(
            delivery,
            planned,
            finish=lambda reply: server_error().reply() if taken.kind is Kind.ERROR_AFTER else reply,
            linger=lambda: time.sleep(taken.seconds if taken.kind is Kind.SLOW else 0),
        )


def find_route(request: Request) -> Route:
    """The endpoint that is meant, or ApiError (404)."""
    for method, pattern, operation in ROUTES:
        matched = pattern.fullmatch(request.path)
        if matched is not None and method == request.method:
            return Route(operation=operation, path=matched[1], id=matched[2] if matched.re.groups > 1 else "")
    raise ApiError(404, f"Unrecognized request URL ({request.method}: {request.path}).")


def read_params(request: Request) -> Params:
    """The parameters of the query (GET) or of the form-encoded body (POST)."""
    if request.method == "GET":
        return parse_form(request.query)
    if request.body and request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise ApiError(400, f"Invalid request (check that your POST content type is {FORM}).")
    try:
        return parse_form(request.body.decode())
    except UnicodeDecodeError as error:
        raise ApiError(400, "Invalid UTF-8 in the request body.") from error


def read_key(headers: Mapping[str, str]) -> str | None:
    """The idempotency key as sent, or None; ApiError (400) for an empty or overlong one."""
    key = headers.get("idempotency-key")
    if key is not None and not 1 <= len(key.strip()) <= MAX_KEY_LENGTH:
        raise ApiError(400, f"Invalid Idempotency-Key: it has 1 to {MAX_KEY_LENGTH} characters.")
    return None if key is None else key.strip()


def payment_meant(books: Books, account: str, route: Route, params: Params) -> str | None:
    """The payment intent that a request touches, for faults that name one."""
    meant: object = route.id or params.get("payment_intent") or params.get("charge")
    if not isinstance(meant, str):
        return None
    if route.operation == "refund.retrieve":
        refund = books.refund(account, meant)
        return None if refund is None else refund.payment
    payment = books.payment(account, meant)
    return meant if payment is None else payment.id


def plan(endpoint: str, account: str, params: Params, hide: float) -> Execute:
    """Validate a writing request and say what to execute."""
    if endpoint == "POST /v1/refunds":
        return refunds.plan_create(account, Reader(params), hide=hide)
    return payments.plan_create(account, Reader(params))


def refusing(code: str) -> Execute:
    """An execution that refuses and does nothing."""
    return lambda _books: refusal(code).reply()
