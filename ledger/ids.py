"""Identifiers: UUIDv7 (RFC 9562), so that rows written together lie together and sort by time."""

from uuid import UUID

from uuid_utils import compat


def new_id() -> UUID:
    """A fresh UUIDv7. An identifier only: its time decides nothing."""
    value: UUID = compat.uuid7()
    return value
