"""What a submission is once it was read, what comes of it, and why it may be refused. Values only, no rule."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID


@dataclass(frozen=True, kw_only=True)
class Submission:
    """One proposal, checked for its shape; whether its parameters fit the kind is still to be asked.

    `parameters` are the parsed ones and `submitted` is their text exactly as it came. `expires_in` in seconds.
    """

    kind: str
    schema_version: int | None
    run_id: str
    step_id: str
    parameters: Mapping[str, Any]
    submitted: str
    reasoning: str = ""
    expires_in: int | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    model_result: str = ""
    supersedes: UUID | None = None


@dataclass(frozen=True, kw_only=True)
class Submitted:
    """What stands after a submission: the wire's action object and the status to answer with.

    `how`: `created` (201), `replayed` (the same key again: the stored status) or `repeated` (the same operation
    under another key: 200).
    """

    action: dict[str, Any]
    status: int
    how: Literal["created", "replayed", "repeated"]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing wrong, and where, as a JSON Pointer into the body."""

    detail: str
    pointer: str


@dataclass(kw_only=True)
class IntakeError(Exception):
    """Nothing was taken in, and nothing is kept under the key. `code` is one of the API's catalogue.

    `action` is the id of the action that stands in the way; `retry_after` in seconds.
    """

    code: str
    detail: str = ""
    faults: tuple[Fault, ...] = ()
    action: UUID | None = None
    retry_after: int | None = None

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}"
