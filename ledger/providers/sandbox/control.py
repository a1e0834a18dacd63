"""`/_sandbox/`: books, faults, clock, disputes and seeding, for tests and the demo. Never in production.

These calls are not the provider's: they take JSON, need no key and are not counted.
"""

import json
from collections.abc import Callable
from typing import cast
from urllib.parse import parse_qsl

from .currencies import MAX_AMOUNT, check_amount, check_currency
from .errors import ApiError, Json, JsonObject, Reply, missing
from .faults import OPERATIONS, parse
from .objects import NOT_REFUNDED
from .payments import Instrument, insert_payment
from .service import Answer, Request, Service, account_of
from .store import Books

PREFIX = "/_sandbox/"
REFUND_STATUSES = frozenset({"pending", "requires_action", "succeeded"}) | NOT_REFUNDED
MAX_ADVANCE = 10 * 366 * 24 * 3600


class Control:
    """The handles beside the provider."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._store = service.store
        self._actions: dict[tuple[str, str], Callable[[Request], Json]] = {
            ("GET", "books"): self._books,
            ("GET", "faults"): self._faults,
            ("POST", "faults"): self._arm,
            ("POST", "clock"): self._clock,
            ("POST", "dispute"): self._dispute,
            ("POST", "refund"): self._refund,
            ("POST", "seed"): self._seed,
            ("POST", "reset"): self._reset,
        }

    def handle(self, request: Request) -> Answer:
        """Answer one `/_sandbox/` request."""
        action = self._actions.get((request.method, request.path.removeprefix(PREFIX)))
        try:
            if action is None:
                raise ApiError(404, f"The sandbox has no {request.method} {request.path}.")
            return Answer(reply=Reply.json(200, action(request)))
        except ApiError as error:
            return Answer(reply=error.reply())

    def _books(self, request: Request) -> Json:
        """All payments with their refunds, hidden ones included; `?account=sk_test_…` for one account."""
        secret = dict(parse_qsl(request.query, keep_blank_values=True)).get("account")
        account = None if secret is None else account_of(secret)
        with self._store.transaction() as books:
            return {
                "now": books.now,
                "payments": _payments(books, account),
                "pending": [
                    {
                        "endpoint": row.endpoint,
                        "params": json.loads(row.params),
                        "key": row.key,
                        "due": row.due,
                    }
                    for row in books.pending("(?1 IS NULL OR account = ?1)", [account])
                ],
                "calls": {**dict.fromkeys(OPERATIONS, 0), **books.calls(account)},
            }

    def _faults(self, _request: Request) -> Json:
        return {"armed": [*self._service.faults.listed()]}

    def _arm(self, request: Request) -> Json:
        self._service.faults.arm(parse(_json(request)))
        return self._faults(request)

    def _clock(self, request: Request) -> Json:
        """Move the provider's clock forward; what is due by then has landed before the answer."""
        seconds = _object(request).get("advance")
        if (
            isinstance(seconds, bool)
            or not isinstance(seconds, int | float)
            or not 0 <= seconds <= MAX_ADVANCE
        ):
            raise ApiError(400, "'advance' must be a number of seconds, from 0.", param="advance")
        self._store.advance(seconds)
        self._service.landing.land_due()
        self._service.landing.wake()
        return {"now": self._store.now()}

    def _dispute(self, request: Request) -> Json:
        payment_id = _text(_object(request), "payment")
        with self._store.transaction() as books:
            payment = books.dispute(payment_id)
        if payment is None:
            raise missing("succeeded payment", payment_id, "payment")
        return {"payment": payment.id, "charge": payment.charge, "disputed": True}

    def _refund(self, request: Request) -> Json:
        """Change a refund afterwards, as a bank that sends the money back days later."""
        body = _object(request)
        refund_id, status = _text(body, "refund"), _text(body, "status")
        if status not in REFUND_STATUSES:
            choices = ", ".join(sorted(REFUND_STATUSES))
            raise ApiError(400, f"'status' must be one of {choices}.", param="status")
        reason = _text(body, "failure_reason", "unknown") if status == "failed" else None
        with self._store.transaction() as books:
            refund = books.set_refund_status(refund_id, status, reason)
        if refund is None:
            raise missing("refund", refund_id, "refund")
        return {"refund": refund.id, "status": refund.status}

    def _seed(self, request: Request) -> Json:
        """Payments that have arrived, all or none; answers their ids in the order given."""
        body = _object(request)
        account, wanted = account_of(_text(body, "account")), body.get("payments")
        if not isinstance(wanted, list):
            raise ApiError(400, "'payments' must be a list.", param="payments")
        with self._store.transaction() as books:
            return {"payments": [_seed_one(books, account, item) for item in wanted]}

    def _reset(self, _request: Request) -> Json:
        self._store.reset()
        self._service.faults.arm([])
        self._service.landing.wake()
        return {"now": self._store.now()}


def _payments(books: Books, account: str | None) -> Json:
    refunds: dict[str, list[Json]] = {}
    scope, values = "(?1 IS NULL OR account = ?1)", cast("list[object]", [account])
    for refund in books.refunds(scope, values):
        refunds.setdefault(refund.payment, []).append(
            {
                "id": refund.id,
                "amount": refund.amount,
                "status": refund.status,
                "metadata": dict(refund.metadata),
                "created": int(refund.created),
                "reason": refund.reason,
                "hidden": refund.hidden_until > books.now,
            }
        )
    return [
        {
            "id": payment.id,
            "charge": payment.charge,
            "account": payment.account,
            "amount": payment.amount,
            "currency": payment.currency,
            "status": payment.status,
            "refunded": payment.refunded,
            "disputed": payment.disputed,
            "name": payment.name,
            "refunds": refunds.get(payment.id, []),
        }
        for payment in books.payments(scope, values)
    ]


def _seed_one(books: Books, account: str, item: Json) -> Json:
    if not isinstance(item, dict):
        raise ApiError(400, "A payment to seed is an object.", param="payments")
    unknown = sorted(
        set(item) - {"amount", "currency", "name", "brand", "last4", "description", "status", "age"}
    )
    if unknown:
        raise ApiError(400, f"A payment to seed has unknown members: {', '.join(unknown)}.", param="payments")
    amount, age = _number(item, "amount", None, 1), _number(item, "age", 0, 0)
    currency = check_currency(_text(item, "currency"))
    check_amount(amount, currency)
    status = _text(item, "status", "succeeded")
    if status not in {"succeeded", "requires_payment_method"}:
        raise ApiError(400, "'status' must be succeeded or requires_payment_method.", param="status")
    payment = insert_payment(
        books,
        account=account,
        amount=amount,
        currency=currency,
        instrument=Instrument(
            brand=_text(item, "brand", "visa"),
            last4=_text(item, "last4", "4242"),
            declined=status != "succeeded",
        ),
        name=_text(item, "name", ""),
        description=_text(item, "description", "") or None,
        age=age,
    )
    return {
        "id": payment.id,
        "charge": payment.charge,
        "amount": payment.amount,
        "currency": payment.currency,
    }


def _json(request: Request) -> Json:
    try:
        return cast("Json", json.loads(request.body))
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"The body is not JSON: {error}") from error


def _object(request: Request) -> JsonObject:
    body = _json(request)
    if not isinstance(body, dict):
        raise ApiError(400, "The body must be a JSON object.")
    return body


def _text(body: JsonObject, name: str, default: str | None = None) -> str:
    value = body.get(name, default)
    if not isinstance(value, str) or len(value) > 500:
        raise ApiError(400, f"'{name}' must be a string.", param=name)
    return value


def _number(body: JsonObject, name: str, default: int | None, least: int) -> int:
    value = body.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_AMOUNT:
        raise ApiError(400, f"'{name}' must be a whole number from {least}.", param=name)
    return value
