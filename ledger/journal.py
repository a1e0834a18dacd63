"""The append-only journal: who did what to which action, hash-chained per tenant.

An entry hashes salted digests and references; the readable payload lies in another table, from which personal
data can be erased while the chain stays verifiable. Entries are appended by the last statements of a
transaction under the tenant's chain head, so that the head is held briefly and the chain cannot fork.
"""

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Any
from uuid import UUID

import rfc8785
from django.db import DatabaseError, OperationalError, connection

from ledger.errors import JournalError
from ledger.ids import new_id
from ledger.models import ChainHead, JournalEntry, JournalPayload

GENESIS = "0" * 64


@dataclass(frozen=True, kw_only=True)
class Actor:
    """Who acted: `type` is agent, reviewer, policy, system, worker or operator; `id` is not a name."""

    type: str
    id: str = ""


SYSTEM = Actor(type="system")
WORKER = Actor(type="worker")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One event to append."""

    event: str
    actor: Actor
    action_id: UUID | None = None
    operation_id: UUID | None = None
    payload: dict[str, Any] = field(default_factory=dict)


def plain(value: Any) -> Any:
    """JSON values as they are; UUIDs, times and enums as text."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, datetime):
        return stamp(value)
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, UUID):
        return str(value)
    return value


def stamp(moment: datetime) -> str:
    """RFC 3339 in UTC with microseconds, as it is hashed."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def payload_digest(salt: str, text: str) -> str:
    """SHA-256 over salt and payload; without the salt the payload cannot be guessed from it."""
    return hashlib.sha256(f"{salt}:{text}".encode()).hexdigest()


def entry_hash(entry: JournalEntry) -> str:
    """SHA-256 over the RFC 8785 form of everything in an entry but its own hash and id."""
    body: dict[str, Any] = {
        "tenant": str(entry.tenant_id),
        "seq": entry.seq,
        "at": stamp(entry.at),
        "event": entry.event,
        "action": str(entry.action_id or ""),
        "operation": str(entry.operation_id or ""),
        "actor": [entry.actor_type, entry.actor_id],
        "payload": entry.payload_digest,
        "prev": entry.prev_hash,
    }
    return hashlib.sha256(rfc8785.dumps(body)).hexdigest()


def append(tenant_id: UUID, entries: Sequence[Entry]) -> None:
    """Append under the chain head. Raises JournalError where it cannot, and then the transaction must not commit."""
    if not entries:
        return
    try:
        _append(tenant_id, entries)
    except OperationalError:
        raise  # the connection or a lock, not the journal: the caller's own handling applies
    except DatabaseError as error:
        raise JournalError from error


def _append(tenant_id: UUID, entries: Sequence[Entry]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT seq, hash, ledger_now() FROM ledger_chainhead WHERE tenant_id = %s FOR NO KEY UPDATE",
            [tenant_id],
        )
        row = cursor.fetchone()
        if row is None:
            raise JournalError("This tenant has no journal; make tenants with `manage.py create_tenant`.")
        # a second statement: the clock as it was after the wait for the head, so that times follow the sequence
        cursor.execute("SELECT ledger_now()")
        (at,) = cursor.fetchone() or (row[2],)
    seq, head = row[0], row[1]
    rows, payloads = [], []
    for entry in entries:
        seq += 1
        salt = secrets.token_hex(16)
        text = rfc8785.dumps(plain(entry.payload)).decode()
        made = JournalEntry(
            id=new_id(),
            tenant_id=tenant_id,
            seq=seq,
            at=at,
            event=entry.event,
            action_id=entry.action_id,
            operation_id=entry.operation_id,
            actor_type=entry.actor.type,
            actor_id=entry.actor.id,
            payload_digest=payload_digest(salt, text),
            prev_hash=head,
        )
        made.hash = head = entry_hash(made)
        rows.append(made)
        payloads.append(JournalPayload(entry=made, tenant_id=tenant_id, salt=salt, text=text))
    JournalEntry.objects.bulk_create(rows)
    JournalPayload.objects.bulk_create(payloads)
    ChainHead.objects.filter(tenant_id=tenant_id).update(seq=seq, hash=head)


def open_chain(tenant_id: UUID) -> None:
    """Begin a tenant's journal; inside its fence, once."""
    ChainHead.objects.create(tenant_id=tenant_id, seq=0, hash=GENESIS)


@dataclass(frozen=True, kw_only=True)
class ChainCheck:
    """What a verification found: the number of entries, and the first fault, if any."""

    entries: int
    fault: str = ""


def verify(tenant_id: UUID) -> ChainCheck:
    """Recompute a tenant's chain, inside its fence. Reads everything; tail truncation shows against the head."""
    seq, head = 0, GENESIS
    query = JournalEntry.objects.filter(tenant_id=tenant_id).order_by("seq").select_related("payload")
    for entry in query.iterator(chunk_size=500):
        seq += 1
        if entry.seq != seq or entry.prev_hash != head:
            return ChainCheck(entries=seq, fault=f"entry {entry.seq} does not follow the one before it")
        if entry.hash != entry_hash(entry):
            return ChainCheck(entries=seq, fault=f"entry {entry.seq} was changed")
        payload = getattr(entry, "payload", None)
        if payload is not None and entry.payload_digest != payload_digest(payload.salt, payload.text):
            return ChainCheck(entries=seq, fault=f"the payload of entry {entry.seq} was changed")
        head = entry.hash
    end = ChainHead.objects.filter(tenant_id=tenant_id).first()
    if end is None or (end.seq, end.hash) != (seq, head):
        return ChainCheck(entries=seq, fault="the chain ends elsewhere than its head says")
    return ChainCheck(entries=seq)
