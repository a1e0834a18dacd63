"""Why a decision was not taken: one small tree, each with the HTTP status that its views answer with.

Words here are for people and for agents; no rule is decided in this room. A docstring is the default message.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar


class DecisionError(Exception):
    """Nothing was decided by this request."""

    status: ClassVar[int] = 409
    code: str = "not_decided"

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or self.__doc__)
        self.message = str(self)


class ActionNotFoundError(DecisionError):
    """There is no such action."""

    status = 404
    code = "not_found"


class NotEntitledError(DecisionError):
    """This person may not decide on this action.

    `code` is stable: `inactive`, `not_a_member`, `role_missing` or `own_agent`; `message` is for the person.
    """

    status = 403

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class FieldError(DecisionError):
    """A field of the form is wrong; `field` names it."""

    status = 422
    code = "invalid_field"

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class ChangedError(DecisionError):
    """The question changed since the page was opened; read it again.

    `changed` names what differs: `state_version`, `fingerprint`, `policy_version`, `view_digest` or `seq`.
    """

    code = "changed"

    def __init__(self, changed: Sequence[str], message: str | None = None) -> None:
        super().__init__(
            message or "The question changed since this page was opened. Read it again, then decide."
        )
        self.changed = tuple(changed)


class ObservationMissingError(DecisionError):
    """The provider's record has not been read yet, so this cannot be approved. Try again in a moment."""

    code = "observation_missing"


class ChangesRequestedError(DecisionError):
    """A reviewer asked the agent for changes, so this cannot be approved; a new revision can."""

    code = "changes_requested"


class ExpiredError(DecisionError):
    """The time for deciding is over."""

    code = "expired"

    def __init__(self, expires_at: datetime) -> None:
        super().__init__(f"The time for deciding ended at {expires_at:%Y-%m-%d %H:%M:%S} UTC.")
        self.expires_at = expires_at


class SettledError(DecisionError):
    """It was settled before this request came, by somebody or something else."""

    code = "settled"

    def __init__(self, *, verdict: str, by_type: str, by_names: Sequence[str], decided_at: datetime) -> None:
        who = (
            {"policy": "the policy", "system": "the system"}.get(by_type)
            or ", ".join(by_names)
            or f"the {by_type}"
        )
        super().__init__(f"This was {verdict} by {who} at {decided_at:%Y-%m-%d %H:%M:%S} UTC.")
        self.verdict = verdict
        self.by_type = by_type
        self.by_names = tuple(by_names)
        self.decided_at = decided_at


class AlreadyDecidedError(SettledError):
    """It was decided already, so it cannot be cancelled."""

    code = "already_decided"
