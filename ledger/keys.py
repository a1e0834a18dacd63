"""Keys and digests that never change once they are given out. Pure; the ledger's own, used by approvals too."""

import hashlib
from typing import Any
from urllib.parse import quote

import rfc8785

READABLE = 128


def canonical(value: Any) -> bytes:
    """The RFC 8785 form. Raises ValueError for integers beyond 2^53, lone surrogates and non-JSON values."""
    try:
        return rfc8785.dumps(value)
    except rfc8785.CanonicalizationError as error:
        raise ValueError(str(error)) from error


def sha256(data: bytes) -> str:
    """`sha256:` and 64 hex digits."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _readable(part: str) -> str:
    """A part of a key in [A-Za-z0-9._-] and percent escapes; one that is too long ends in its own digest."""
    plain = quote(part, safe="")
    if len(plain) <= READABLE:
        return plain
    return plain[: READABLE - 33] + "~" + hashlib.sha256(part.encode()).hexdigest()[:32]


def operation_key(run_id: str, action_id: str, kind: str, version: int, effect: str) -> str:
    """Readable and unique: `<run>/<action id>/<kind>@<version>/<effect>` (R-C1)."""
    return f"{_readable(run_id)}/{action_id}/{_readable(kind)}@{version}/{_readable(effect)}"


def provider_key(tenant_id: str, key: str) -> str:
    """32 hex digits of SHA-256 over tenant and operation key: fits every provider's limits, never re-minted."""
    return hashlib.sha256(f"{tenant_id}\n{key}".encode()).hexdigest()[:32]
