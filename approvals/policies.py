"""Publishing and reading a tenant's policy. Versions never change; publishing moves the pointer (R-B8)."""

from typing import Any
from uuid import UUID

from approvals.models import Action, ActionStatus, PolicyPointer, PolicyVersion
from approvals.policy import rules as policy_rules
from ledger.journal import SYSTEM
from ledger.locks import stop_lock_exclusive
from ledger.transactions import tenant_transaction


def publish(tenant_id: UUID, *, kind: str, document: dict[str, Any], by: str) -> int:
    """Make the next version and put it in force; returns its number. Raises policy.rules.PolicyError.

    When this has returned, nothing commits under the version before (design: invariant 9).
    """
    policy_rules.parse(document)
    with tenant_transaction(tenant_id) as tx:
        stop_lock_exclusive(tenant_id)
        newest = PolicyVersion.objects.filter(tenant_id=tenant_id, kind=kind).order_by("-version").first()
        version = PolicyVersion.objects.create(
            tenant_id=tenant_id,
            kind=kind,
            version=newest.version + 1 if newest else 1,
            rules=document,
            created_at=tx.now(),
            created_by=by,
        )
        PolicyPointer.objects.update_or_create(
            tenant_id=tenant_id, kind=kind, defaults={"current": version, "updated_at": tx.now()}
        )
        # what waits under the version before is weighed anew, one step each
        waiting = Action.objects.filter(tenant_id=tenant_id, kind=kind, status=ActionStatus.PENDING)
        for action_id in waiting.values_list("id", flat=True):
            tx.schedule("observe", action_id, due_at=tx.now(), hint=False)  # many: the relay tells
        tx.journal(
            "policy.published", actor=SYSTEM, kind=kind, version=version.version, by=by, rules=document
        )
    return version.version


def current(tenant_id: UUID, kind: str) -> PolicyVersion | None:
    """The version in force, read inside the tenant's transaction under its shared stop lock."""
    pointer = PolicyPointer.objects.filter(tenant_id=tenant_id, kind=kind).select_related("current").first()
    return pointer.current if pointer else None
