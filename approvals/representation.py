"""The action as agents see it: one object, the same everywhere, byte-stable while nothing about it changes.

Reads what is stored and decides nothing. Called inside the tenant's fence; a whole page of actions costs as
many queries as one.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from approvals.models import Action, ActionStatus, Decision
from ledger.journal import stamp
from ledger.models import Operation, Receipt
from ledger.states import FINAL, OperationState

type Wire = dict[str, Any]

_FINAL = frozenset(str(state) for state in FINAL)

# Where nothing happened and nothing will, a new revision may be submitted. A refusal by the provider (`failed`)
# or by a person is an answer and not an invitation, so it carries no hint.
_AGAIN = frozenset({OperationState.BLOCKED, OperationState.CANCELLED, OperationState.RECONCILED_NOT_EXECUTED})


def represent(action: Action) -> Wire:
    """The wire's action object. Three queries, fewer where nothing was approved."""
    return represent_all([action])[0]


def represent_all(actions: Sequence[Action]) -> list[Wire]:
    """The wire's objects of several actions, in their order. Three queries, however many there are."""
    ids = [action.id for action in actions if action.status != ActionStatus.PENDING]
    decisions = {d.action_id: d for d in Decision.objects.filter(action_id__in=ids)} if ids else {}
    approved = [action.id for action in actions if action.status == ActionStatus.APPROVED]
    operations: dict[UUID, list[Operation]] = defaultdict(list)
    receipts: dict[UUID, Receipt] = {}
    if approved:
        for operation in Operation.objects.filter(action_id__in=approved).order_by("action_id", "sequence"):
            operations[operation.action_id].append(operation)
        found = Receipt.objects.filter(operation__action_id__in=approved).order_by("received_at", "id")
        for receipt in found:
            receipts.setdefault(
                receipt.operation_id, receipt
            )  # the first; a second one is a case for a person
    return [_object(action, decisions.get(action.id), operations[action.id], receipts) for action in actions]


def render(obj: object) -> bytes:
    """JSON in UTF-8: compact, members in the order they were made in, so that equal objects are equal bytes."""
    return json.dumps(obj, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def etag(obj: Wire) -> str:
    """A strong validator over the whole object, the operations included (RFC 9110, 8.8.3)."""
    return f'"{hashlib.sha256(render(obj)).hexdigest()[:32]}"'


def phase(obj: Wire) -> str:
    """`pending`, `decided` (an outcome, but effects still open) or `final`."""
    if obj["final"]:
        return "final"
    return "pending" if obj["status"] == ActionStatus.PENDING else "decided"


def is_final(status: str, operation_states: Sequence[str]) -> bool:
    """Whether nothing more will happen: not approved and settled, or approved and every effect settled."""
    if status == ActionStatus.PENDING:
        return False
    if status != ActionStatus.APPROVED:
        return True
    return bool(operation_states) and all(state in _FINAL for state in operation_states)


def _object(
    action: Action,
    decision: Decision | None,
    operations: Sequence[Operation],
    receipts: Mapping[UUID, Receipt],
) -> Wire:
    effects = [_effect(operation, receipts.get(operation.id)) for operation in operations]
    final = is_final(action.status, [operation.state for operation in operations])
    obj: Wire = {
        "id": str(action.id),
        "kind": action.kind,
        "schema_version": action.schema_version,
        "revision": action.revision,
        "status": str(action.status),
        "final": final,
        "state_version": action.state_version,
        "run_id": action.run_id,
        "step_id": action.step_id,
        "parameters": json.loads(action.parameters),
        "fingerprint": action.fingerprint,
        "policy_version": action.policy_version,
        "created_at": stamp(action.created_at),
        "expires_at": stamp(action.expires_at),
        "decision": _decision(decision),
        "execution": effects[0] if effects else None,
        "effects": effects,
        "supersedes": _id(action.supersedes_id),
        "superseded_by": _id(action.superseded_by_id),
        "hint": _hint(action, operations, final),
        "links": {"self": f"/v1/actions/{action.id}"},
    }
    if action.changes_requested and action.status == ActionStatus.PENDING:
        obj["changes_requested"] = {name: action.changes_requested.get(name) for name in ("by", "note")}
    return obj


def _decision(decision: Decision | None) -> Wire | None:
    if decision is None:
        return None
    return {
        "verdict": decision.verdict,
        "by": {"type": decision.by_type, "names": list(decision.by_names)},
        "reason": decision.reason,
        "decided_at": stamp(decision.decided_at),
        "policy_version": decision.policy_version,
        "fingerprint": decision.fingerprint,
        "execute_before": stamp(decision.execute_before) if decision.execute_before else None,
        "receipt": None,  # a signed one, once there are keys to sign with (`/v1/keys`)
    }


def _effect(operation: Operation, receipt: Receipt | None) -> Wire:
    return {
        "effect": operation.effect,
        "status": str(operation.state),
        "operation_key": operation.operation_key,
        "attempts": operation.attempt_count,
        "receipt": _receipt(receipt),
        "reason": operation.reason or None,
        "updated_at": stamp(operation.updated_at),
    }


def _receipt(receipt: Receipt | None) -> Wire | None:
    if receipt is None:
        return None
    return {
        "provider": receipt.provider,
        "reference": receipt.reference,
        "amount": receipt.amount,
        "currency": receipt.currency,
        "provider_status": receipt.provider_status,
        "received_at": stamp(receipt.received_at),
    }


def _hint(action: Action, operations: Sequence[Operation], final: bool) -> Wire | None:
    if action.superseded_by_id is not None:
        return {"follow": str(action.superseded_by_id)}
    again = {"supersedes": str(action.id)}
    if action.status == ActionStatus.PENDING:
        return again if action.changes_requested else {"wait": True}
    if action.status == ActionStatus.EXPIRED:
        return again
    if action.status == ActionStatus.APPROVED:
        if not final:
            return {"wait": True}
        return again if all(operation.state in _AGAIN for operation in operations) else None
    return None


def _id(value: UUID | None) -> str | None:
    return str(value) if value else None
