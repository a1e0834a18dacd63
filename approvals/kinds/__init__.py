"""The kinds of action that agents may propose. A new kind is a module here and a line below."""

from typing import Any

from approvals.kinds import refund
from approvals.kinds.base import Kind, KindVersion

KINDS: dict[str, Kind] = {kind.name: kind for kind in (refund.KIND,)}


class UnknownKindError(LookupError):
    """There is no such kind or version; `GET /v1/kinds` lists them."""


def get(name: str) -> Kind:
    """The kind of that name. Raises UnknownKindError."""
    try:
        return KINDS[name]
    except KeyError:
        raise UnknownKindError(f"There is no kind {name!r}; known are {', '.join(KINDS)}.") from None


def version(name: str, number: int) -> KindVersion:
    """One version of a kind. Raises UnknownKindError."""
    kind = get(name)
    try:
        return kind.versions[number]
    except KeyError:
        known = ", ".join(map(str, sorted(kind.versions)))
        raise UnknownKindError(f"The kind {name!r} has no version {number}; known are {known}.") from None


def published() -> list[dict[str, Any]]:
    """All kinds with their schemas, as `GET /v1/kinds` gives them."""
    return [
        {
            "kind": kind.name,
            "summary": kind.summary,
            "latest": kind.latest,
            "versions": [
                {
                    "schema_version": one.version,
                    "schema": dict(one.schema),
                    "effects": list(one.effects),
                    "reversibility": one.reversibility,
                }
                for _, one in sorted(kind.versions.items())
            ],
        }
        for kind in KINDS.values()
    ]
