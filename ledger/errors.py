"""The ledger's errors: one small tree. A docstring is the default message."""

from typing import Any


class LedgerError(Exception):
    """The ledger refused."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or self.__doc__)


class OverlappingTransactionError(LedgerError):
    """A tenant transaction was opened inside another one; open one per use case."""


class JournalError(LedgerError):
    """The journal could not be written, so nothing was done; try again."""


class GuardRefusedError(LedgerError):
    """Something that must hold at execution no longer holds.

    `reason` is a stable code; `requested`, `approved` and `now` are small dicts of facts for people.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        requested: dict[str, Any] | None = None,
        approved: dict[str, Any] | None = None,
        now: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.detail = {
            "message": message,
            "requested": requested or {},
            "approved": approved or {},
            "now": now or {},
        }
