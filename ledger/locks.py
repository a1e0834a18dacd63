"""Named locks and their one order: key, stop, action, operation, resource, journal head.

All are held to the end of the transaction. A stop lock is shared by everyone who acts under a rule and
exclusive for whoever changes it, so that a stop that has answered holds (design: invariant 9).
"""

import hashlib
from uuid import UUID

from django.db import connection

GLOBAL_STOP = "stop:global"


def lock_number(name: str) -> int:
    """A signed 64-bit number from a name; collisions only cost a wait."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)


def _execute(statement: str, *names: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(statement, [lock_number(name) for name in names])
        row = cursor.fetchone()
    return row is not None and row[0] is True


def try_key_lock(*parts: object) -> bool:
    """Take the lock of an idempotency key if nobody holds it; False means: its first request still runs."""
    return _execute("SELECT pg_try_advisory_xact_lock(%s)", "key:" + "|".join(map(str, parts)))


def stop_lock_shared(tenant_id: UUID) -> None:
    """Taken before reading policy or authority: submitting, observing, deciding, claiming."""
    _execute(
        "SELECT pg_advisory_xact_lock_shared(%s), pg_advisory_xact_lock_shared(%s)",
        GLOBAL_STOP,
        f"stop:{tenant_id}",
    )


def stop_lock_exclusive(tenant_id: UUID | None) -> None:
    """Taken to revoke, stop or publish; waits for everyone who is acting under the old rule. None: everywhere."""
    _execute("SELECT pg_advisory_xact_lock(%s)", GLOBAL_STOP if tenant_id is None else f"stop:{tenant_id}")


def resource_lock(tenant_id: UUID, resource_key: str) -> None:
    """One claim at a time on the thing whose balance an effect moves."""
    _execute("SELECT pg_advisory_xact_lock(%s)", f"resource:{tenant_id}:{resource_key}")
