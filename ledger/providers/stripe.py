"""Stripe, spoken through its official SDK: refunds of a payment, and the reads that surround them.

The SDK writes the requests (paths, encoding, headers, API version); the deadline transport carries them, and
`stripe_answers` alone judges what comes back. No retry, no database, no rule about when a call may be made.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

import stripe

from ledger.providers.base import (
    Account,
    Answer,
    Call,
    Capabilities,
    EffectRequest,
    LookUp,
    Outcome,
    PaymentRecord,
    ProviderUnavailableError,
    ReceiptData,
)
from ledger.providers.stripe_amounts import NotRepresentableError, from_provider, to_provider
from ledger.providers.stripe_answers import (
    OPERATION_KEY,
    Asked,
    MalformedError,
    Object,
    belongs_to,
    classify,
    clean,
    failure,
    is_missing,
    kept_headers,
    known_refund,
    own_key,
    parse,
    payment_record,
    receipt_of,
    text,
)
from ledger.providers.transport import (
    Deadline,
    NoAnswerError,
    NotSentError,
    Origin,
    Response,
    Transport,
    TransportError,
)

if TYPE_CHECKING:
    from stripe.params import RefundCreateParams, RefundListParams

__all__ = ["API_VERSION", "STRIPE", "StripeAdapter", "from_provider", "to_provider"]

# One switch for the process, the same for every account: with it on, the SDK reports the machine's platform
# and an identifier that it keeps in a file under the user's home.
stripe.enable_telemetry = False

API_VERSION: Final = "2026-10-28.endive"
"""Pinned: an upgrade of the SDK must not change what the answers look like."""

STRIPE: Final = Capabilities(
    # docs.stripe.com/api/idempotent_requests: keys may be removed once they are at least 24 hours old, and a
    # key that is used again after that creates a new operation; at most 255 characters; the parameters of a
    # repetition are compared with the first ones.
    key_retention=timedelta(hours=24),
    key_retention_margin=timedelta(hours=1),
    max_key_length=255,
    detects_mismatch=True,
    # docs.stripe.com/api/refunds/list: by payment, all pages. Search does not cover refunds.
    look_up="by_key",
    # Not documented, so the passing of time proves nothing.
    processing_bound=None,
    visibility_bound=None,
    # docs.stripe.com/refunds: a refund can be canceled only while it requires action, and that is rare.
    reversible="cannot be undone; a new charge needs the customer",
)

_PAYMENT: Final = re.compile(r"(pi|ch|py)_[A-Za-z0-9_]{1,200}")
_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")
_SECRET: Final = re.compile(r"[\x21-\x7e]{8,}")
_PAGE: Final = 100
# They describe the machine and its tools, which is nobody's business; the User-Agent is ours to say.
_DROPPED: Final = frozenset({"x-stripe-client-user-agent", "x-stripe-client-telemetry", "user-agent"})


class _AnsweredError(Exception):
    """Carries a response out of the SDK before the SDK looks at it."""

    def __init__(self, response: Response) -> None:
        super().__init__("answered")
        self.response = response


class _Courier(stripe.HTTPClient):
    """The SDK's HTTP client for one call: sends through the deadline transport and hands the answer to us.

    It leaves by raising, so the SDK neither parses (a strange body makes it raise whatever it likes), nor
    warns (`Stripe-Notice`), nor retries: its loop repeats only after an APIConnectionError or a response that
    it has seen, and with `max_network_retries=0` not even then, whatever `stripe-should-retry` says.
    """

    name = "second-key"

    def __init__(self, transport: Transport, base_url: str, deadline: Deadline, call: Call) -> None:
        super().__init__()
        self._transport = transport
        self._base_url = base_url
        self._deadline = deadline
        self._may_write = call.may_write

    def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None,
        post_data: Any = None,
        *,
        _usage: list[str] | None = None,
    ) -> NoReturn:
        target = url.removeprefix(self._base_url)
        if target == url or not target.startswith("/v1/"):
            raise ValueError("the SDK asked for another host than the account's")
        kept = {name: value for name, value in (headers or {}).items() if name.lower() not in _DROPPED}
        response = self._transport.send(
            method.upper(),
            target,
            headers={**kept, "User-Agent": f"SecondKey (stripe-python {stripe.VERSION})"},
            body=None if post_data is None else str(post_data).encode("utf-8"),
            deadline=self._deadline,
            may_write=self._may_write,
        )
        raise _AnsweredError(response)

    def close(self) -> None:
        """Nothing is kept open."""


class _NotAskedError(ValueError):
    """The request cannot be made at all; the message is the reason code."""


@dataclass(frozen=True)
class _Session:
    """The reads and writes of one call, under one deadline."""

    client: stripe.StripeClient

    def send(self, ask: Callable[[stripe.StripeClient], object]) -> Response:
        """One request; NotSentError or NoAnswerError if it has no complete answer."""
        try:
            ask(self.client)
        except _AnsweredError as answered:
            return answered.response
        raise AssertionError("the SDK returned without sending")

    def read(self, ask: Callable[[stripe.StripeClient], object]) -> Object | None:
        """The object asked for, None if Stripe has none; ProviderUnavailableError otherwise."""
        try:
            response = self.send(ask)
        except TransportError as error:
            raise ProviderUnavailableError(error.reason, error.detail) from error
        if is_missing(response):
            return None
        if response.status != 200:
            raise ProviderUnavailableError(failure(response))
        try:
            return parse(response)
        except MalformedError as error:
            raise ProviderUnavailableError("malformed") from error

    def refunds(self, payment: str) -> list[Object]:
        """Every refund of a payment, through all pages; ProviderUnavailableError if one page fails."""
        found: list[Object] = []
        seen: set[str] = set()
        params: dict[str, object] = {_reference(payment): payment, "limit": _PAGE}
        while True:
            query = cast("RefundListParams", dict(params))
            page = self.read(lambda client, query=query: client.v1.refunds.list(query))  # type: ignore[misc]
            if page is None:
                raise ProviderUnavailableError("resource_missing", payment)
            data, more = page.get("data"), page.get("has_more")
            if page.get("object") != "list" or not isinstance(data, list) or not isinstance(more, bool):
                raise ProviderUnavailableError("malformed", "not a list")
            for refund in data:
                identifier = refund.get("id") if isinstance(refund, dict) else None
                if not isinstance(identifier, str) or identifier in seen or not belongs_to(refund, payment):
                    # a page that repeats itself or wanders off would make the list look complete
                    raise ProviderUnavailableError("malformed", "a page of refunds is not as asked")
                seen.add(identifier)
                found.append(refund)
            if not more:
                return found
            if not data:
                raise ProviderUnavailableError("malformed", "an empty page promises more")
            params["starting_after"] = found[-1]["id"]


class StripeAdapter:
    """One Stripe account. ValueError at construction for a base URL or a secret that cannot be used."""

    def __init__(
        self, account: Account, capabilities: Capabilities = STRIPE, transport: Transport | None = None
    ) -> None:
        if not _SECRET.fullmatch(account.secret):
            raise ValueError("the account's secret is not a Stripe key")
        self.capabilities = capabilities
        self._account = account
        self._base_url = account.base_url.rstrip("/")
        self._transport = transport or Transport(origin=Origin.parse(self._base_url))

    def __repr__(self) -> str:
        return f"StripeAdapter({self._account!r})"

    def resource_key(self, request: EffectRequest) -> str:
        """`stripe:<account id>:<payment id>`."""
        return f"{self._account.provider}:{self._account.id}:{request.parameters['payment']}"

    def observe(self, request: EffectRequest, call: Call) -> PaymentRecord:
        """The payment with all its refunds. ProviderUnavailableError if any part of it could not be read."""
        payment = request.parameters.get("payment")
        if not isinstance(payment, str) or not _PAYMENT.fullmatch(payment):
            # no id of Stripe's looks like this, so there is nothing to ask and nothing to find
            return PaymentRecord(id=clean(str(payment))[:250], missing=True)
        session = self._session(call)
        found = self._payment(session, payment)
        if found is None:
            return PaymentRecord(id=payment, missing=True)
        refunds = session.refunds(payment)
        try:
            record = payment_record(*found, tuple(known_refund(refund) for refund in refunds))
        except ValueError as error:
            raise ProviderUnavailableError("malformed", str(error)) from error
        if record.id != payment:
            raise ProviderUnavailableError("malformed", "another payment than the one asked for")
        return record

    def perform(self, request: EffectRequest, call: Call) -> Answer:
        """Create the refund, once, under `request.provider_key`. Never raises for Stripe or the net."""
        session = self._session(call)
        try:
            asked, params = _refund(request)
        except _NotAskedError as error:
            return Answer(outcome=Outcome.REFUSED, reason=str(error))
        options: stripe.RequestOptions = {"idempotency_key": request.provider_key}
        try:
            response = session.send(lambda client: client.v1.refunds.create(params, options))
        except NotSentError as error:
            return Answer(outcome=Outcome.NOT_ACCEPTED, reason=error.reason)
        except NoAnswerError as error:
            return self._without_secret(_interrupted(error))
        return self._without_secret(classify(asked, response))

    def look_up(self, request: EffectRequest, call: Call) -> LookUp:
        """Refunds of the payment whose metadata holds exactly our operation key. Never raises for Stripe."""
        payment = request.parameters.get("payment")
        if not isinstance(payment, str) or not _PAYMENT.fullmatch(payment):
            return LookUp(complete=False, reason="invalid_payment")
        try:
            refunds = self._session(call).refunds(payment)
        except ProviderUnavailableError as error:
            return LookUp(complete=False, reason=error.reason, body=clean(str(error)))
        ours = [refund for refund in refunds if own_key(refund) == request.operation_key]
        try:
            matches: tuple[ReceiptData, ...] = tuple(receipt_of(refund) for refund in ours)
        except ValueError:
            return LookUp(complete=False, reason="malformed", body=self._evidence(ours))
        others = [refund["id"] for refund in refunds if own_key(refund) != request.operation_key]
        return LookUp(complete=True, matches=matches, body=self._evidence({"ours": ours, "others": others}))

    def _payment(self, session: _Session, payment: str) -> tuple[Object, Object] | None:
        """The payment and its charge (empty if none was made yet); None if Stripe has no such payment."""
        if not payment.startswith("pi_"):
            charge = session.read(lambda client: client.v1.charges.retrieve(payment))
            return None if charge is None else (charge, charge)
        intent = session.read(
            lambda client: client.v1.payment_intents.retrieve(payment, {"expand": ["latest_charge"]})
        )
        if intent is None:
            return None
        latest = intent.get("latest_charge")
        if isinstance(latest, dict):
            return intent, latest
        if latest is None:
            return intent, {}
        raise ProviderUnavailableError("malformed", "the charge was not expanded")

    def _session(self, call: Call) -> _Session:
        """A client for this one call: the deadline starts here, and no state is shared between accounts."""
        courier = _Courier(self._transport, self._base_url, Deadline.after(call.deadline), call)
        client = stripe.StripeClient(
            self._account.secret,
            stripe_version=API_VERSION,
            base_addresses={"api": self._base_url},
            http_client=courier,
            max_network_retries=0,
        )
        return _Session(client)

    def _evidence(self, value: object) -> str:
        return clean(json.dumps(value)).replace(self._account.secret, "[secret]")

    def _without_secret(self, answer: Answer) -> Answer:
        """The answer, with our secret struck out wherever something sent it back to us."""
        secret = self._account.secret
        headers = {name: value.replace(secret, "[secret]") for name, value in answer.headers.items()}
        return Answer(
            outcome=answer.outcome,
            reason=answer.reason.replace(secret, "[secret]"),
            status=answer.status,
            headers=headers,
            body=answer.body.replace(secret, "[secret]"),
            receipt=answer.receipt,
            retry_after=answer.retry_after,
        )


def _reference(payment: str) -> str:
    return "payment_intent" if payment.startswith("pi_") else "charge"


def _refund(request: EffectRequest) -> tuple[Asked, "RefundCreateParams"]:
    """The refund to ask for, and the SDK's parameters; _NotAskedError if it cannot be asked for."""
    payment, currency = request.parameters.get("payment"), request.parameters.get("currency")
    amount, reason = request.parameters.get("amount"), request.parameters.get("reason")
    if request.effect != "refund":
        raise _NotAskedError("unsupported_effect")
    if not _KEY.fullmatch(request.provider_key):
        raise _NotAskedError("invalid_provider_key")  # with an empty one the SDK would make up its own
    if not isinstance(payment, str) or not _PAYMENT.fullmatch(payment):
        raise _NotAskedError("invalid_payment")
    if not request.operation_key or len(request.operation_key) > 500:
        raise _NotAskedError("invalid_operation_key")  # the longest value of a metadata field
    if not isinstance(currency, str) or type(amount) is not int or amount <= 0:
        raise _NotAskedError("invalid_amount")
    try:
        provider_amount = to_provider(amount, currency)
    except NotRepresentableError:
        raise _NotAskedError("amount_not_representable") from None
    except ValueError:
        raise _NotAskedError("invalid_amount") from None
    params: dict[str, object] = {
        _reference(payment): payment,
        "amount": provider_amount,
        "metadata": {OPERATION_KEY: request.operation_key},
    }
    if reason:
        params["reason"] = str(reason)
    asked = Asked(
        payment=payment, amount=provider_amount, currency=currency, operation_key=request.operation_key
    )
    return asked, cast("RefundCreateParams", params)


def _interrupted(error: NoAnswerError) -> Answer:
    """A request that began and has no complete answer; what had arrived of one is kept as evidence."""
    partial = error.partial
    if partial is None:
        return Answer(outcome=Outcome.UNKNOWN, reason=error.reason)
    return Answer(
        outcome=Outcome.UNKNOWN,
        reason=error.reason,
        status=partial.status,
        headers=kept_headers(partial),
        body=text(partial.body),
    )
