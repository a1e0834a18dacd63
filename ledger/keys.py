"""Keys and digests that never change once they are given out. Pure; the ledger's own, used by approvals too."""

import hashlib
import re
from typing import Any
from urllib.parse import quote

import rfc8785

READABLE = 128


def canonical(value: Any, *, floats: bool = True) -> bytes:
    """The RFC 8785 form. Raises ValueError for integers beyond ±(2^53 - 1), lone surrogates and non-JSON values.

    Without `floats` a float is refused too, even a whole one: what means money is never one.
    """
    if not floats and (where := _float_in(value)) is not None:
        raise ValueError(f"a float where none may stand: {where!r}")
    try:
        return rfc8785.dumps(value)
    except rfc8785.CanonicalizationError as error:
        raise ValueError(str(error)) from error


def _float_in(value: Any) -> float | None:
    match value:
        case float():
            return value
        case dict():
            inner = list(value.values())
        case list() | tuple():
            inner = list(value)
        case _:
            return None
    return next((found for one in inner if (found := _float_in(one)) is not None), None)


def sha256(data: bytes) -> str:
    """`sha256:` and 64 hex digits."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _readable(part: str) -> str:
    """A part of a key in [A-Za-z0-9._-] and percent escapes; one that is too long ends in its own digest.

    Four parts stay far below the 500 characters of a Stripe metadata value (docs.stripe.com/api/metadata).
    """
    plain = quote(part, safe="").replace("~", "%7E")  # the mark of a cut part is never part of a whole one
    if len(plain) <= READABLE:
        return plain
    head = re.sub(r"%[0-9A-F]?\Z", "", plain[: READABLE - 33])
    return f"{head}~{hashlib.sha256(part.encode()).hexdigest()[:32]}"


def operation_key(run_id: str, action_id: str, kind: str, version: int, effect: str) -> str:
    """Readable and unique: `<run>/<action id>/<kind>@<version>/<effect>` (R-C1)."""
    return f"{_readable(run_id)}/{action_id}/{_readable(kind)}@{version}/{_readable(effect)}"


def provider_key(tenant_id: str, key: str) -> str:
    """32 hex digits of SHA-256 over tenant and operation key: fits every provider's limits, never re-minted."""
    return hashlib.sha256(f"{tenant_id}\n{key}".encode()).hexdigest()[:32]
