"""From a submission to what is decided on: kind, normalized parameters, fingerprint, and the policy's word.

Runs inside the submission's transaction and writes nothing. Parameters are validated against the version that
the submission names, else the latest, and never reinterpreted later (R-A9, R-B7).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from approvals import fingerprints, kinds, policies
from approvals.policy import rules
from approvals.submissions import Fault, IntakeError, Submission
from ledger import accounts
from ledger.keys import canonical
from ledger.models import ProviderAccount

WITHOUT_POLICY = 3600
"""Seconds until an action expires that no policy was there to bound; it is refused at once anyway."""


@dataclass(frozen=True, kw_only=True)
class Ready:
    """What will be decided on. `amount` in minor units; `parameters_text` is the RFC 8785 form."""

    schema_version: int
    parameters: Mapping[str, Any]
    parameters_text: str
    fingerprint: str
    account: ProviderAccount
    resource_key: str
    amount: int
    currency: str


@dataclass(frozen=True, kw_only=True)
class Weighed:
    """What the policy in force says of it. `stored` is kept on the action; `expires_in` in seconds."""

    policy_version: int
    outcome: rules.Outcome
    rule: str
    reason: str
    expires_in: int
    stored: dict[str, Any]


def request_fingerprint(submission: Submission) -> str:
    """Whether two requests are the same; a version that is not named is not the same as one that is.

    Raises IntakeError where a number of the parameters fits no fingerprint.
    """
    try:
        return fingerprints.request_fingerprint(
            kind=submission.kind,
            schema_version=submission.schema_version or 0,
            run_id=submission.run_id,
            step_id=submission.step_id,
            parameters=submission.parameters,
            expires_in=submission.expires_in,
            supersedes=str(submission.supersedes) if submission.supersedes else None,
        )
    except ValueError as error:
        raise unfit(error) from error


def unfit(error: ValueError) -> IntakeError:
    """A number that RFC 8785 cannot carry exactly."""
    return IntakeError(
        code="invalid_parameters",
        detail="The parameters hold a number that cannot be carried exactly.",
        faults=(Fault(detail=str(error), pointer="/parameters"),),
    )


def prepare(tenant_id: UUID, submission: Submission) -> Ready:
    """Validate and normalize. Raises IntakeError: `unknown_kind`, `invalid_parameters`, `provider_account_missing`."""
    try:
        kind = kinds.get(submission.kind)
        version = kinds.version(kind.name, submission.schema_version or kind.latest)
    except kinds.UnknownKindError as error:
        raise IntakeError(code="unknown_kind", detail=str(error)) from error
    found = version.validate(submission.parameters)
    if found:
        raise IntakeError(
            code="invalid_parameters",
            detail=f"The parameters do not fit {kind.name}, version {version.version}.",
            faults=tuple(Fault(detail=one.detail, pointer=f"/parameters{one.pointer}") for one in found),
        )
    account = account_of(tenant_id, kind.provider)
    normalized = version.normalize(submission.parameters)
    amount, currency = version.money(normalized)
    return Ready(
        schema_version=version.version,
        parameters=normalized,
        parameters_text=canonical(normalized).decode(),
        fingerprint=fingerprints.action_fingerprint(
            tenant_id=str(tenant_id),
            account_id=str(account.id),
            kind=kind.name,
            schema_version=version.version,
            parameters=normalized,
        ),
        account=account,
        resource_key=accounts.resource_key(account.id, kind.provider, version.resource(normalized)),
        amount=amount,
        currency=currency,
    )


def account_of(tenant_id: UUID, provider: str) -> ProviderAccount:
    """The tenant's account at a provider: its oldest that is in use. Raises IntakeError."""
    rows = ProviderAccount.objects.filter(tenant_id=tenant_id, provider=provider, disabled_at__isnull=True)
    account = rows.order_by("created_at", "id").first()
    if account is None:
        raise IntakeError(
            code="provider_account_missing", detail=f"The tenant has no account at {provider} that is in use."
        )
    return account


def weigh(tenant_id: UUID, submission: Submission, ready: Ready) -> Weighed:
    """The policy in force, without the provider's record, under the shared stop lock. No policy: refused."""
    version = policies.current(tenant_id, submission.kind)
    if version is None:
        return _refused(
            0, f"No policy is published for {submission.kind}, so nothing of it is allowed.", submission
        )
    try:
        ruleset = rules.parse(version.rules)
    except rules.PolicyError:
        return _refused(
            version.version, "The policy in force cannot be read, so nothing is allowed.", submission
        )
    verdict = rules.evaluate(ruleset, rules.Facts(amount=ready.amount, currency=ready.currency))
    return Weighed(
        policy_version=version.version,
        outcome=verdict.outcome,
        rule=verdict.rule,
        reason=verdict.reason,
        expires_in=_bounded(verdict.expires_in, submission),
        stored=verdict.as_json(),
    )


def _bounded(longest: int, submission: Submission) -> int:
    """The shorter of what the policy and the agent say, in seconds."""
    return longest if submission.expires_in is None else min(longest, submission.expires_in)


def _refused(version: int, reason: str, submission: Submission) -> Weighed:
    verdict = rules.Verdict(
        outcome=rules.Outcome.DENY,
        rule="",
        quorum=1,
        roles=(),
        reason=reason,
        needs_observation=False,
        expires_in=WITHOUT_POLICY,
        execute_within=WITHOUT_POLICY,
    )
    return Weighed(
        policy_version=version,
        outcome=verdict.outcome,
        rule="",
        reason=reason,
        expires_in=_bounded(WITHOUT_POLICY, submission),
        stored=verdict.as_json(),
    )
