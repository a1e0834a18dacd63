"""The sandbox's books in SQLite: rows, one transaction at a time, and the provider's clock.

One connection behind one lock, every transaction BEGIN IMMEDIATE: writers follow each other, so two refunds
can never both see the same remainder. No HTTP, no faults, no rule about what may be refunded.
"""

import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .objects import NOT_REFUNDED, Payment, Refund

KEY_RETENTION = 24 * 3600.0
"""Seconds after which a key is forgotten: https://docs.stripe.com/api/idempotent_requests (at least 24 h)."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value REAL NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS payments (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, account TEXT NOT NULL, charge TEXT UNIQUE,
    amount INTEGER NOT NULL CHECK (amount > 0), currency TEXT NOT NULL, status TEXT NOT NULL,
    refunded INTEGER NOT NULL DEFAULT 0 CHECK (refunded BETWEEN 0 AND amount),
    disputed INTEGER NOT NULL DEFAULT 0, name TEXT NOT NULL, brand TEXT NOT NULL, last4 TEXT NOT NULL,
    description TEXT, failure TEXT, metadata TEXT NOT NULL, created REAL NOT NULL) STRICT;
CREATE INDEX IF NOT EXISTS payments_account ON payments (account, seq);
CREATE TABLE IF NOT EXISTS refunds (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, account TEXT NOT NULL,
    payment TEXT NOT NULL REFERENCES payments (id), charge TEXT NOT NULL,
    amount INTEGER NOT NULL CHECK (amount > 0), currency TEXT NOT NULL, status TEXT NOT NULL,
    reason TEXT, failure_reason TEXT, metadata TEXT NOT NULL, created REAL NOT NULL,
    hidden_until REAL NOT NULL) STRICT;
CREATE INDEX IF NOT EXISTS refunds_payment ON refunds (payment, seq);
CREATE INDEX IF NOT EXISTS refunds_account ON refunds (account, seq);
CREATE TABLE IF NOT EXISTS keys (
    account TEXT NOT NULL, key TEXT NOT NULL, endpoint TEXT NOT NULL, fingerprint TEXT NOT NULL,
    status INTEGER NOT NULL, body TEXT NOT NULL, request_id TEXT NOT NULL, created REAL NOT NULL,
    PRIMARY KEY (account, key)) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS keys_created ON keys (created);
CREATE TABLE IF NOT EXISTS pending (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, account TEXT NOT NULL, key TEXT, endpoint TEXT NOT NULL,
    fingerprint TEXT NOT NULL, params TEXT NOT NULL, hide REAL NOT NULL, request_id TEXT NOT NULL,
    created REAL NOT NULL, due REAL NOT NULL, UNIQUE (account, key)) STRICT;
CREATE TABLE IF NOT EXISTS calls (
    account TEXT NOT NULL, operation TEXT NOT NULL, count INTEGER NOT NULL,
    PRIMARY KEY (account, operation)) STRICT, WITHOUT ROWID;
"""


class StoreError(Exception):
    """The store cannot be opened; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class SavedKey:
    """What was answered to the first request under a key."""

    endpoint: str
    fingerprint: str
    status: int
    body: str
    request_id: str


@dataclass(frozen=True, kw_only=True)
class Pending:
    """An effect that was taken in and lands at `due` (Unix seconds by the sandbox's clock)."""

    seq: int
    account: str
    key: str | None
    endpoint: str
    fingerprint: str
    params: str
    hide: float
    request_id: str
    created: float
    due: float


class Books:
    """The rows, inside one transaction of `Store.transaction`; `now` was read after its lock was taken."""

    def __init__(self, connection: sqlite3.Connection, now: float) -> None:
        self._sql = connection
        self.now = now

    @contextmanager
    def undone_by_a_refusal(self) -> Iterator[None]:
        """A savepoint: an exception inside takes back what was written inside."""
        self._sql.execute("SAVEPOINT effect")
        try:
            yield
        except BaseException:
            self._sql.execute("ROLLBACK TO effect")
            raise
        self._sql.execute("RELEASE effect")

    def add(self, table: str, row: dict[str, object]) -> None:
        """Insert `row`; a dictionary inside it is stored as JSON."""
        values = [json.dumps(value) if isinstance(value, dict) else value for value in row.values()]
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        self._sql.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", values)  # noqa: S608  (own names)

    def payment(self, account: str, id: str) -> Payment | None:  # noqa: A002
        """The payment of this account with that payment intent or charge id."""
        found = self.payments("account = ? AND (id = ? OR charge = ?)", [account, id, id])
        return found[0] if found else None

    def refund(self, account: str, id: str) -> Refund | None:  # noqa: A002
        """The refund of this account with that id, hidden or not."""
        found = self.refunds("account = ? AND id = ?", [account, id])
        return found[0] if found else None

    def payments(self, where: str, values: list[object], tail: str = "ORDER BY seq") -> list[Payment]:
        """Payments for a fixed WHERE clause of ours; only `values` come from outside."""
        rows = self._sql.execute(f"SELECT * FROM payments WHERE {where} {tail}", values)  # noqa: S608
        return [
            Payment(**{**row, "metadata": json.loads(row["metadata"]), "disputed": bool(row["disputed"])})
            for row in map(dict, rows)
        ]

    def refunds(self, where: str, values: list[object], tail: str = "ORDER BY seq") -> list[Refund]:
        """Refunds for a fixed WHERE clause of ours; only `values` come from outside."""
        rows = self._sql.execute(f"SELECT * FROM refunds WHERE {where} {tail}", values)  # noqa: S608
        return [Refund(**{**row, "metadata": json.loads(row["metadata"])}) for row in map(dict, rows)]

    def settle(self, payment: str) -> None:
        """Set a payment's refunded amount to the sum of its refunds that were not given back."""
        marks = ", ".join("?" * len(NOT_REFUNDED))
        self._sql.execute(
            "UPDATE payments SET refunded = (SELECT coalesce(sum(amount), 0) FROM refunds"  # noqa: S608
            f" WHERE payment = payments.id AND status NOT IN ({marks})) WHERE id = ?",
            [*sorted(NOT_REFUNDED), payment],
        )

    def dispute(self, id: str) -> Payment | None:  # noqa: A002
        """Mark a payment, named by intent or charge, as disputed."""
        self._sql.execute(
            "UPDATE payments SET disputed = 1 WHERE (id = ? OR charge = ?) AND status = 'succeeded'", [id, id]
        )
        found = self.payments("(id = ? OR charge = ?) AND disputed", [id, id])
        return found[0] if found else None

    def set_refund_status(self, id: str, status: str, failure_reason: str | None) -> Refund | None:  # noqa: A002
        """Change a refund afterwards, as a bank does, and its payment's refunded amount with it."""
        self._sql.execute(
            "UPDATE refunds SET status = ?, failure_reason = ? WHERE id = ?", [status, failure_reason, id]
        )
        found = self.refunds("id = ?", [id])
        for refund in found:
            self.settle(refund.payment)
        return found[0] if found else None

    def saved_key(self, account: str, key: str) -> SavedKey | None:
        """The first answer under `key`, after forgetting every key past its retention."""
        self._sql.execute("DELETE FROM keys WHERE created <= ?", [self.now - KEY_RETENTION])
        row = self._sql.execute(
            "SELECT endpoint, fingerprint, status, body, request_id FROM keys WHERE account = ? AND key = ?",
            [account, key],
        ).fetchone()
        return None if row is None else SavedKey(**dict(row))

    def pending(self, where: str, values: list[object], tail: str = "ORDER BY due, seq") -> list[Pending]:
        """Effects that have not landed yet, for a fixed WHERE clause of ours."""
        rows = self._sql.execute(f"SELECT * FROM pending WHERE {where} {tail}", values)  # noqa: S608
        return [Pending(**dict(row)) for row in rows]

    def landed(self, pending: Pending) -> None:
        """Forget a pending effect; call it in the transaction that makes the effect."""
        self._sql.execute("DELETE FROM pending WHERE seq = ?", [pending.seq])

    def count(self, account: str, operation: str) -> None:
        """One more call of `operation`."""
        self._sql.execute(
            "INSERT INTO calls VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET count = count + 1",
            [account, operation],
        )

    def calls(self, account: str | None) -> dict[str, int]:
        """Calls per operation, of one account or of all."""
        rows = self._sql.execute(
            "SELECT operation, sum(count) FROM calls WHERE ?1 IS NULL OR account = ?1 GROUP BY operation",
            [account],
        )
        return {str(operation): int(count) for operation, count in rows}

    def set_meta(self, name: str, value: float) -> None:
        """Keep a number across restarts."""
        self._sql.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", [name, value])

    def clear(self) -> None:
        """Empty everything."""
        for table in ("refunds", "payments", "keys", "pending", "calls", "meta"):
            self._sql.execute(f"DELETE FROM {table}")  # noqa: S608  (own names)


class Store:
    """The one connection to the books; threads take turns. Raises StoreError where it cannot be opened."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._sql = sqlite3.connect(path, timeout=1, autocommit=True, check_same_thread=False)
            self._sql.row_factory = sqlite3.Row
            # Exclusive: keys in use are known to one process, so a second one on the same books must fail.
            self._sql.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._sql.execute("PRAGMA journal_mode = WAL")
            # A commit survives the process in any mode of WAL; only a power cut asks for FULL.
            self._sql.execute("PRAGMA synchronous = NORMAL")
            self._sql.execute("PRAGMA foreign_keys = ON")
            self._sql.executescript(SCHEMA)
            row = self._sql.execute("SELECT value FROM meta WHERE name = 'clock_offset'").fetchone()
        except (sqlite3.Error, OSError) as error:
            raise StoreError(
                f"cannot open the store {path} (is another sandbox using it?): {error}"
            ) from error
        self._offset = float(row["value"]) if row is not None else 0.0

    def now(self) -> float:
        """The provider's clock: the machine's, and how far it was advanced. Unix seconds."""
        return time.time() + self._offset

    @contextmanager
    def transaction(self) -> Iterator[Books]:
        """One transaction, alone; commits at the end, rolls back on any exception. Not reentrant."""
        with self._lock:
            self._sql.execute("BEGIN IMMEDIATE")
            try:
                yield Books(self._sql, self.now())
            except BaseException:
                self._sql.execute("ROLLBACK")
                raise
            self._sql.execute("COMMIT")

    def close(self) -> None:
        """Let go of the file; nothing may be asked afterwards."""
        with self._lock:
            self._sql.close()

    def advance(self, seconds: float) -> float:
        """Move the clock forward; returns the new time."""
        with self.transaction() as books:
            books.set_meta("clock_offset", self._offset + seconds)
            self._offset += seconds
        return self.now()

    def reset(self) -> None:
        """Empty the books and set the clock right."""
        with self.transaction() as books:
            books.clear()
            self._offset = 0.0
