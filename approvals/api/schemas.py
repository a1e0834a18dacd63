"""Shapes of the wire, for the published schema, and of a submission, for checking it. No rule of the business.

What an agent sends is checked strictly: no member that is not named here, no value of another type.
"""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from approvals.api.errors import FieldError, pointer

LONGEST_WAIT = 30
LONGEST_LIFE = 30 * 24 * 3600

Visible = Annotated[
    str,
    Field(
        min_length=1,
        max_length=128,
        pattern=r"^[\x21-\x7e]+$",
        description="1 to 128 visible ASCII characters.",
    ),
]
Label = Annotated[str, Field(max_length=200)]


class VersionsIn(BaseModel):
    """The versions that the proposal was made under, as the agent names them."""

    model_config = ConfigDict(extra="forbid", strict=True)

    workflow: Label | None = None
    prompt: Label | None = None
    tool_schema: Label | None = None


class SubmissionIn(BaseModel):
    """A proposal: what should happen (`parameters`, by the kind's schema), and which step of which run asks."""

    model_config = ConfigDict(extra="forbid", strict=True)

    kind: Annotated[str, Field(min_length=1, max_length=60)]
    schema_version: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    run_id: Visible
    step_id: Visible
    parameters: dict[str, Any]
    reasoning: (
        Annotated[str, Field(max_length=20_000, description="The agent's own words; shown as a claim.")]
        | None
    ) = None
    expires_in: (
        Annotated[
            int, Field(ge=1, le=LONGEST_LIFE, description="Seconds; the policy's own bound also holds.")
        ]
        | None
    ) = None
    versions: VersionsIn | None = None
    model_result: (
        Annotated[str, Field(max_length=2_000, description="Where the model's output is kept.")] | None
    ) = None
    supersedes: (
        Annotated[str, Field(max_length=36, description="An own action that this is a new revision of.")]
        | None
    ) = None


def faults(error: ValidationError) -> tuple[FieldError, ...]:
    """What is wrong, with JSON Pointers into the body. The refused value itself is not repeated."""
    found = []
    for one in error.errors(include_url=False, include_input=False, include_context=False):
        said = "There is no such member." if one["type"] == "extra_forbidden" else one["msg"] + "."
        found.append(FieldError(detail=said, pointer=pointer(one["loc"])))
    return tuple(found)


class ByOut(BaseModel):
    """Who decided."""

    type: Literal["reviewer", "policy", "system", "agent"]
    names: list[str]


class DecisionOut(BaseModel):
    """The one terminal outcome of a revision."""

    verdict: str
    by: ByOut
    reason: str
    decided_at: datetime
    policy_version: int
    fingerprint: str
    execute_before: datetime | None
    receipt: dict[str, Any] | None


class ReceiptOut(BaseModel):
    """The provider's own reference for what it did. `amount` in minor units."""

    provider: str
    reference: str
    amount: int
    currency: str
    provider_status: str
    received_at: datetime


class EffectOut(BaseModel):
    """Where one effect stands."""

    effect: str
    status: Literal[
        "prepared",
        "dispatched",
        "succeeded",
        "failed",
        "blocked",
        "cancelled",
        "outcome_unknown",
        "reconciled_succeeded",
        "reconciled_not_executed",
    ]
    operation_key: str
    attempts: int
    receipt: ReceiptOut | None
    reason: str | None
    updated_at: datetime


class LinksOut(BaseModel):
    """Where to read on."""

    model_config = ConfigDict(populate_by_name=True)

    self_: str = Field(alias="self")


class ActionOut(BaseModel):
    """An action: one revision of one proposal."""

    id: UUID
    kind: str
    schema_version: int
    revision: int
    status: Literal["pending", "approved", "rejected", "expired", "cancelled", "superseded"]
    final: bool = Field(description="Nothing more will happen; stop polling.")
    state_version: int
    run_id: str
    step_id: str
    parameters: dict[str, Any] = Field(
        description="The normalized ones: exactly what is decided on and carried out."
    )
    fingerprint: str
    policy_version: int
    created_at: datetime
    expires_at: datetime
    decision: DecisionOut | None
    execution: EffectOut | None = Field(description="The primary effect.")
    effects: list[EffectOut]
    supersedes: UUID | None
    superseded_by: UUID | None
    hint: dict[str, Any] | None = Field(
        description='What to do next: {"wait": true}, {"supersedes": id} (submit again, naming it) or {"follow": id}.'
    )
    links: LinksOut


class PageOut(BaseModel):
    """Some of the agent's actions, the newest first. `next_cursor` leads to the page after, where there is one."""

    items: list[ActionOut]
    next_cursor: str | None


class KindVersionOut(BaseModel):
    """One version of a kind with the JSON Schema of its parameters."""

    model_config = ConfigDict(populate_by_name=True)

    schema_version: int
    schema_: dict[str, Any] = Field(alias="schema")
    effects: list[str]
    reversibility: str


class KindOut(BaseModel):
    """A kind of action that may be proposed. `latest` is the version that a submission without one means."""

    kind: str
    summary: str
    latest: int
    versions: list[KindVersionOut]


class KindsOut(BaseModel):
    """All kinds."""

    kinds: list[KindOut]


class MeOut(BaseModel):
    """Whose token this is."""

    agent: UUID
    name: str
    tenant: UUID
    scopes: list[str]


class ErrorOut(BaseModel):
    """One entry of the catalogue."""

    code: str
    status: int
    title: str
    advice: str
    retry: bool
    type: str


class ErrorsOut(BaseModel):
    """The catalogue."""

    errors: list[ErrorOut]


class FaultOut(BaseModel):
    """One thing wrong, and where (JSON Pointer)."""

    detail: str
    pointer: str


class ProblemOut(BaseModel):
    """A refusal (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    code: str = Field(description="One of the codes listed at /v1/errors.")
    errors: list[FaultOut] | None = None
    action: UUID | None = Field(default=None, description="The action that stands in the way.")
