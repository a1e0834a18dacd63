"""Actions, votes and decisions. An action is one revision of one proposal; it has one terminal outcome, ever."""

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar

from django.db import models
from django.db.models import F, Q

from approvals.models.tenants import Agent, Tenant, User
from ledger.ids import new_id
from ledger.models import Observation, ProviderAccount


class ActionStatus(StrEnum):
    """Where the question stands. How its execution stands is read from the ledger's operations."""

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"


A = ActionStatus

ACTION_TRANSITIONS: Mapping[ActionStatus, frozenset[ActionStatus]] = {
    A.PENDING: frozenset({A.APPROVED, A.REJECTED, A.EXPIRED, A.CANCELLED, A.SUPERSEDED}),
    A.APPROVED: frozenset(),
    A.REJECTED: frozenset(),
    A.EXPIRED: frozenset(),
    A.CANCELLED: frozenset(),
    A.SUPERSEDED: frozenset(),
}


def action_transition_pairs() -> list[tuple[str, str]]:
    """The table as pairs, in a fixed order, for the database's trigger."""
    return sorted((old.value, new.value) for old, to in ACTION_TRANSITIONS.items() for new in to)


class VoteEvent(StrEnum):
    """What one reviewer did."""

    APPROVE = "approve"
    REJECT = "reject"
    WITHDRAW = "withdraw"


class Action(models.Model):
    """One concrete proposal with its exact parameters, the policy version and the time it may be decided in."""

    keep_rows = True

    id = models.UUIDField(primary_key=True, default=new_id)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="+")
    kind = models.CharField(max_length=60)
    schema_version = models.PositiveIntegerField()
    run_id = models.CharField(max_length=128)
    step_id = models.CharField(max_length=128)
    revision = models.PositiveIntegerField(default=1)
    superseded_by = models.ForeignKey("self", on_delete=models.PROTECT, null=True, related_name="+")
    supersedes = models.ForeignKey("self", on_delete=models.PROTECT, null=True, related_name="+")

    submitted = models.TextField()  # the parameters' text, exactly as it came
    parameters = models.TextField()  # RFC 8785 form of the normalized parameters
    request_fingerprint = models.CharField(max_length=71)
    fingerprint = models.CharField(max_length=71)
    reasoning = models.TextField(blank=True)  # the agent's claim, never verified
    versions = models.JSONField(default=dict)  # {workflow, prompt, tool_schema} as the agent named them
    model_result = models.TextField(blank=True)  # a reference to the output that chose the tool
    account = models.ForeignKey(ProviderAccount, on_delete=models.PROTECT, null=True, related_name="+")
    resource_key = models.CharField(max_length=400, blank=True)
    amount = models.BigIntegerField(null=True)  # minor units
    currency = models.CharField(max_length=3, blank=True)

    status = models.CharField(max_length=20, default=ActionStatus.PENDING)
    state_version = models.PositiveIntegerField(default=1)
    policy_version = models.PositiveIntegerField()
    policy_outcome = models.JSONField()  # {outcome, rule, quorum, roles, reason, execute_within}
    observation = models.ForeignKey(Observation, on_delete=models.PROTECT, null=True, related_name="+")
    changes_requested = models.JSONField(null=True)  # {by, note}
    expires_at = models.DateTimeField()
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant", "agent", "run_id", "step_id", "kind", "revision"], name="action_revision"
            ),
            models.UniqueConstraint(
                fields=["tenant", "agent", "run_id", "step_id", "kind"],
                name="action_newest_revision",
                condition=Q(superseded_by__isnull=True),
            ),
            models.CheckConstraint(
                condition=Q(status__in=[str(s) for s in ActionStatus]), name="action_status"
            ),
            models.CheckConstraint(
                condition=~Q(status="superseded") | Q(superseded_by__isnull=False),
                name="action_superseded_names_its_successor",
            ),
            models.CheckConstraint(condition=Q(expires_at__gt=F("created_at")), name="action_expires_later"),
        ]
        indexes: ClassVar = [
            models.Index(fields=["tenant", "status", "expires_at"], name="action_inbox"),
            models.Index(fields=["tenant", "agent", "id"], name="action_by_agent"),
            models.Index(fields=["tenant", "resource_key"], name="action_by_resource"),
            models.Index(
                fields=["tenant", "kind", "currency", "amount", "created_at"], name="action_look_alikes"
            ),
        ]


class Vote(models.Model):
    """One reviewer's event on one revision. The last one at the current state version counts."""

    append_only = True

    id = models.UUIDField(primary_key=True, default=new_id)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    action = models.ForeignKey(Action, on_delete=models.PROTECT, related_name="votes")
    reviewer = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    seq = models.PositiveIntegerField()
    event = models.CharField(max_length=20)
    reason = models.TextField(blank=True)
    state_version = models.PositiveIntegerField()
    fingerprint = models.CharField(max_length=71)
    policy_version = models.PositiveIntegerField()
    view_digest = models.CharField(max_length=71)
    shown = models.JSONField()  # what stood on the page: diff rows, warnings, look-alikes, observation
    at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["action", "reviewer", "seq"], name="vote_seq"),
            models.CheckConstraint(condition=Q(event__in=[str(e) for e in VoteEvent]), name="vote_event"),
        ]


class Decision(models.Model):
    """The one terminal outcome of a revision (R-B3, R-B4)."""

    append_only = True

    id = models.UUIDField(primary_key=True, default=new_id)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    action = models.OneToOneField(Action, on_delete=models.PROTECT, related_name="decision")
    verdict = models.CharField(max_length=20)
    by_type = models.CharField(max_length=20)  # reviewer | policy | system | agent
    by_names = models.JSONField(default=list)
    reason = models.TextField(blank=True)
    policy_version = models.PositiveIntegerField()
    fingerprint = models.CharField(max_length=71)
    state_version = models.PositiveIntegerField()  # of the question that was answered
    decided_at = models.DateTimeField()
    execute_before = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(verdict__in=[str(s) for s in ActionStatus if s != "pending"]),
                name="decision_verdict",
            ),
            models.CheckConstraint(
                condition=Q(by_type__in=["reviewer", "policy", "system", "agent"]), name="decision_by_type"
            ),
            models.CheckConstraint(
                condition=~Q(verdict="approved") | Q(execute_before__isnull=False),
                name="decision_bounds_execution",
            ),
        ]
