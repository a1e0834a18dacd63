"""Policies as versioned data (R-B8). A version never changes; publishing moves a pointer."""

from typing import ClassVar

from django.db import models

from approvals.models.tenants import Tenant
from ledger.ids import new_id


class PolicyVersion(models.Model):
    """One immutable version of a tenant's rules for one kind of action."""

    append_only = True

    id = models.UUIDField(primary_key=True, default=new_id)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    kind = models.CharField(max_length=60)
    version = models.PositiveIntegerField()
    rules = models.JSONField()  # see approvals.policy.rules
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=120)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant", "kind", "version"], name="policy_version_once"),
        ]


class PolicyPointer(models.Model):
    """Which version is in force; moved under the tenant's exclusive stop lock."""

    keep_rows = True

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    kind = models.CharField(max_length=60)
    current = models.ForeignKey(PolicyVersion, on_delete=models.PROTECT, related_name="+")
    updated_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant", "kind"], name="policy_pointer_once")
        ]
