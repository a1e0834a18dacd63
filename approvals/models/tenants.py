"""Tenants, people, roles and agents. Outside the tenant fence lie ids only; names and roles lie inside."""

from enum import StrEnum
from typing import ClassVar

from django.contrib.auth.models import AbstractUser
from django.db import models
from django.db.models import Q

from ledger.ids import new_id


class Role(StrEnum):
    """What a member may do. One person may hold several."""

    REVIEWER = "reviewer"
    AUDITOR = "auditor"
    OPERATOR = "operator"
    ADMIN = "admin"


class User(AbstractUser):
    """A person who signs in. What they may do is asked per tenant, at every decision, never cached."""


class Tenant(models.Model):
    """A tenant's id, and nothing more: commands and workers walk over it."""

    keep_rows = True

    id = models.UUIDField(primary_key=True, default=new_id)
    created_at = models.DateTimeField()


class TenantProfile(models.Model):
    """A tenant's name and settings, inside the fence."""

    keep_rows = True

    tenant = models.OneToOneField(Tenant, on_delete=models.PROTECT, primary_key=True, related_name="+")
    slug = models.CharField(max_length=60, unique=True)  # across the fence too
    name = models.CharField(max_length=120)
    time_zone = models.CharField(max_length=60, default="UTC")


class Membership(models.Model):
    """That a person belongs to a tenant, without saying as what."""

    outside_fence = "ids only; signing in asks which tenants a person has"

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["user", "tenant"], name="membership_once")]


class MembershipRole(models.Model):
    """A role that a person holds in a tenant; deleting the row takes effect at the next decision."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    role = models.CharField(max_length=20)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant", "user", "role"], name="membership_role_once"),
            models.CheckConstraint(condition=Q(role__in=[str(r) for r in Role]), name="membership_role"),
        ]


class Agent(models.Model):
    """A program that may propose. It never decides, and never holds a provider's credentials."""

    keep_rows = True

    id = models.UUIDField(primary_key=True, default=new_id)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    name = models.CharField(max_length=80)
    owner = models.ForeignKey(User, on_delete=models.PROTECT, null=True, related_name="+")
    scopes = models.JSONField(default=list)  # e.g. ["actions:write", "actions:read"]
    created_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["tenant", "name"], name="agent_name")]


class AgentToken(models.Model):
    """The digest of an agent's token; the token itself is shown once and never stored."""

    outside_fence = "a digest and ids; a request is authenticated before its tenant is known"

    digest = models.CharField(max_length=64, primary_key=True)  # hex SHA-256 of the token
    agent_id = models.UUIDField()
    tenant_id = models.UUIDField()
    created_at = models.DateTimeField()
