"""What identifies a request, an approved action, and what a reviewer saw. Pure; no clock, no language.

The request fingerprint answers "is this the same request?", the action fingerprint "what exactly is approved?",
the view digest "is the page that was answered still the page?".
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ledger.keys import canonical, sha256


def request_fingerprint(
    *,
    kind: str,
    schema_version: int,
    run_id: str,
    step_id: str,
    parameters: Any,
    expires_in: int | None,
    supersedes: str | None,
) -> str:
    """Over what an agent asked; not its reasoning or versions, which a restarted model words anew."""
    return sha256(
        canonical(
            {
                "kind": kind,
                "schema_version": schema_version,
                "run_id": run_id,
                "step_id": step_id,
                "parameters": parameters,
                "expires_in": expires_in,
                "supersedes": supersedes,
            }
        )
    )


def action_fingerprint(
    *, tenant_id: str, account_id: str, kind: str, schema_version: int, parameters: Mapping[str, Any]
) -> str:
    """Over exactly what is approved and sent: the normalized parameters in their place (R-B1)."""
    return sha256(
        canonical(
            {
                "tenant": tenant_id,
                "account": account_id,
                "kind": kind,
                "schema_version": schema_version,
                "parameters": dict(parameters),
            }
        )
    )


def view_digest(
    *,
    action_id: str,
    state_version: int,
    fingerprint: str,
    diff: Sequence[Mapping[str, Any]],
    rule: str,
    policy_version: int,
    observation_id: str | None,
) -> str:
    """Over the question on the page; votes, look-alikes and history change while people look and are not in it.

    `diff` are the rows without language (`DiffRow.identity`): a page in another language asks the same question.
    """
    return sha256(
        canonical(
            {
                "action": action_id,
                "state_version": state_version,
                "fingerprint": fingerprint,
                "diff": [dict(row) for row in diff],
                "rule": rule,
                "policy_version": policy_version,
                "observation": observation_id or "",
            }
        )
    )
