"""The key layer, as Stripe v1 documents it (https://docs.stripe.com/api/idempotent_requests).

The first request's status and body are saved once its execution begins, errors included, in the very
transaction that makes the effect. Failed validation and concurrent conflicts are not saved. No HTTP here,
and no knowledge of what is executed.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from .errors import ApiError, Reply
from .store import Books, Pending, Store

type Execute = Callable[[Books], Reply]
type Plan = Callable[[], Execute]
"""Validates without looking at the books (raises ApiError) and returns what to execute."""

MAX_KEY_LENGTH = 255


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """One delivery of a writing request. `endpoint` is `POST /v1/refunds`; `key` None means no protection."""

    account: str
    key: str | None
    endpoint: str
    fingerprint: str
    request_id: str


def attempt(execute: Execute, books: Books) -> Reply:
    """Execute, and turn a refusal into its answer; a refusal undoes what was written before it."""
    try:
        with books.undone_by_a_refusal():
            return execute(books)
    except ApiError as error:
        return error.reply()


class KeyLayer:
    """Knows which keys are in use in this process; everything else it knows lies in the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._mutex = threading.Lock()
        self._in_use: set[tuple[str, str]] = set()

    def run(
        self,
        delivery: Delivery,
        plan: Plan,
        *,
        finish: Callable[[Reply], Reply] = lambda reply: reply,
        linger: Callable[[], None] = lambda: None,
    ) -> Reply:
        """Execute once per key, or replay.

        `finish` may change the answer before it is saved; `linger` runs after the commit while the key is
        still in use. Raises ApiError for a mismatch, a key in use and failed validation: none is saved.
        """
        if delivery.key is None:
            execute = plan()
            with self._store.transaction() as books:
                reply = finish(attempt(execute, books))
            linger()
            return reply
        saved = self._claim(delivery, delivery.key)
        if saved is not None:
            linger()
            return saved
        try:
            execute = plan()
            with self._store.transaction() as books:
                reply = finish(attempt(execute, books))
                _save(books, delivery, delivery.key, reply, created=books.now)
            linger()
            return reply
        finally:
            self._in_use.discard((delivery.account, delivery.key))

    def defer(self, delivery: Delivery, plan: Plan, *, params: str, hide: float, seconds: float) -> None:
        """Take a request in now and let its effect land later; until then its key is in use.

        Nothing is deferred where the key layer or validation answers without executing (ApiError or return).
        """
        if delivery.key is not None and self._claim(delivery, delivery.key) is not None:
            return
        try:
            plan()
            with self._store.transaction() as books:
                books.add(
                    "pending",
                    {
                        "account": delivery.account,
                        "key": delivery.key,
                        "endpoint": delivery.endpoint,
                        "fingerprint": delivery.fingerprint,
                        "params": params,
                        "hide": hide,
                        "request_id": delivery.request_id,
                        "created": books.now,
                        "due": books.now + seconds,
                    },
                )
        finally:
            if delivery.key is not None:
                self._in_use.discard((delivery.account, delivery.key))

    def _claim(self, delivery: Delivery, key: str) -> Reply | None:
        """The saved answer under the key, or None after marking the key as in use."""
        with self._mutex:
            with self._store.transaction() as books:
                saved = books.saved_key(delivery.account, key)
                pending = books.pending("account = ? AND key = ?", [delivery.account, key])
            if (delivery.account, key) in self._in_use or pending:
                raise ApiError(
                    409,
                    "There is currently another in-progress request using this Idempotent Key. "
                    "Please try again later.",
                    code="idempotency_key_in_use",
                )
            if saved is None:
                self._in_use.add((delivery.account, key))
                return None
        if (saved.endpoint, saved.fingerprint) != (delivery.endpoint, delivery.fingerprint):
            word = "the same parameters" if saved.endpoint == delivery.endpoint else "the same endpoint"
            raise ApiError(
                400,
                f"Keys for idempotent requests can only be used with {word} they were first used with. "
                f"Try using a key other than '{key}' if you meant to execute a different request.",
                type="idempotency_error",
            )
        return Reply(status=saved.status, body=saved.body).with_headers(
            ("Idempotent-Replayed", "true"), ("Original-Request", saved.request_id)
        )


def land(books: Books, pending: Pending, execute: Execute) -> None:
    """Make a deferred effect, save its answer under its key and forget it: one transaction, the caller's."""
    reply = attempt(execute, books)
    if pending.key is not None:
        delivery = Delivery(
            account=pending.account,
            key=pending.key,
            endpoint=pending.endpoint,
            fingerprint=pending.fingerprint,
            request_id=pending.request_id,
        )
        _save(books, delivery, pending.key, reply, created=pending.created)
    books.landed(pending)


def _save(books: Books, delivery: Delivery, key: str, reply: Reply, *, created: float) -> None:
    books.add(
        "keys",
        {
            "account": delivery.account,
            "key": key,
            "endpoint": delivery.endpoint,
            "fingerprint": delivery.fingerprint,
            "status": reply.status,
            "body": reply.body,
            "request_id": delivery.request_id,
            "created": created,
        },
    )
