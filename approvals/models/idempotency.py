"""Idempotency keys of agents' requests, claimed by insertion in the transaction that does the work."""

from typing import ClassVar

from django.db import models

from approvals.models.actions import Action
from approvals.models.tenants import Agent, Tenant


class IdempotencyRecord(models.Model):
    """A key, what it was first used for, and what was answered (R-A2, R-A3).

    Nothing is kept of a request that failed validation: its transaction took the row with it.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="+")
    endpoint = models.CharField(max_length=60)  # a logical name: `actions.create`
    key = models.CharField(max_length=255)
    fingerprint = models.CharField(max_length=71)
    action = models.ForeignKey(Action, on_delete=models.PROTECT, related_name="+")
    status = models.PositiveSmallIntegerField()
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant", "agent", "endpoint", "key"], name="idempotency_key_once"
            ),
        ]
        indexes: ClassVar = [models.Index(fields=["tenant", "expires_at"], name="idempotency_expiry")]
