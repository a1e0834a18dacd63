"""The ledger's tables: effects, what was tried, what came back, what is still to do, and the journal.

A tenant is an opaque id here, an action likewise: nothing in this room points upward. Invariants stand as
constraints, so that no code path can write what must not be.
"""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from ledger.ids import new_id
from ledger.states import (
    NEVER_WITH_UNRESOLVED_ATTEMPT,
    Allowance,
    AttemptOutcome,
    OperationState,
)


def one_of(field: str, values: object) -> Q:
    """A CHECK that `field` is one of an enum's values."""
    return Q(**{f"{field}__in": [str(value) for value in values]})  # type: ignore[attr-defined]


class ProviderAccount(models.Model):
    """Credentials at a provider; they belong to the tenant and never to an agent."""

    keep_rows = True

    id = models.UUIDField(primary_key=True, default=new_id)
    tenant_id = models.UUIDField()
    provider = models.CharField(max_length=40)
    name = models.CharField(max_length=80)
    base_url = models.CharField(max_length=300)
    encrypted_secret = models.BinaryField()
    created_at = models.DateTimeField()
    disabled_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant_id", "provider", "name"], name="provider_account_name"),
        ]


class Operation(models.Model):
    """One effect of one approved action, under a key that never changes (R-C1)."""

    keep_rows = True

    id = models.UUIDField(primary_key=True, default=new_id)
    tenant_id = models.UUIDField()
    action_id = models.UUIDField()
    kind = models.CharField(max_length=60)
    kind_version = models.PositiveIntegerField()
    effect = models.CharField(max_length=60)
    sequence = models.PositiveSmallIntegerField()
    operation_key = models.CharField(max_length=400)
    provider_key = models.CharField(max_length=64)
    account = models.ForeignKey(ProviderAccount, on_delete=models.PROTECT, related_name="+")
    request = models.TextField()  # RFC 8785 form of the normalized parameters: exactly what is sent
    fingerprint = models.CharField(max_length=71)  # of the action, as decided
    resource_key = models.CharField(max_length=400)
    amount = models.BigIntegerField(null=True)  # minor units
    currency = models.CharField(max_length=3, blank=True)
    state = models.CharField(max_length=30, default=OperationState.PREPARED)
    state_version = models.PositiveIntegerField(default=1)
    unresolved = models.BooleanField(default=False)  # an attempt may have landed and nothing has settled it
    reason = models.CharField(max_length=80, blank=True)
    detail = models.JSONField(default=dict)  # {message, requested, approved, now} of a block or a refusal
    lease_owner = models.UUIDField(null=True)
    lease_until = models.DateTimeField(null=True)
    attempt_count = models.PositiveIntegerField(default=0)
    reconcile_count = models.PositiveIntegerField(default=0)
    backoff_count = models.PositiveIntegerField(default=0)
    recovery_refused = models.CharField(max_length=80, blank=True)  # a guard's reason against a later attempt
    first_dispatched_at = models.DateTimeField(null=True)
    execute_before = models.DateTimeField(null=True)  # bounds the first effect only
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant_id", "operation_key"], name="operation_key"),
            models.UniqueConstraint(fields=["provider_key"], name="operation_provider_key"),
            models.UniqueConstraint(fields=["action_id", "effect"], name="operation_effect"),
            models.CheckConstraint(condition=one_of("state", OperationState), name="operation_state"),
            models.CheckConstraint(
                condition=~Q(unresolved=True, state__in=sorted(map(str, NEVER_WITH_UNRESOLVED_ATTEMPT))),
                name="operation_unresolved_is_not_forgotten",
            ),
            models.CheckConstraint(
                condition=~Q(state="dispatched") | Q(lease_until__isnull=False, lease_owner__isnull=False),
                name="operation_dispatched_has_a_lease",
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["tenant_id", "action_id", "sequence"], name="operation_by_action"),
            models.Index(fields=["tenant_id", "resource_key"], name="operation_by_resource"),
            models.Index(
                fields=["tenant_id", "updated_at"],
                name="operation_open",
                condition=Q(state__in=["prepared", "dispatched", "outcome_unknown"]),
            ),
        ]


class Observation(models.Model):
    """What a provider said about a resource at one moment. Evidence; never changed."""

    append_only = True

    id = models.UUIDField(primary_key=True, default=new_id)
    tenant_id = models.UUIDField()
    action_id = models.UUIDField()
    account = models.ForeignKey(ProviderAccount, on_delete=models.PROTECT, related_name="+")
    resource_key = models.CharField(max_length=400)
    asked_at = models.DateTimeField()
    answered_at = models.DateTimeField()
    record = models.JSONField()
    digest = models.CharField(max_length=71)

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["tenant_id", "action_id", "answered_at"], name="observation_by_action")
        ]


class RecoveryPermission(models.Model):
    """Permission to try again, recorded apart from permission to act (R-D2). Used by one attempt."""

    append_only = True

    id = models.UUIDField(primary_key=True, default=new_id)
    tenant_id = models.UUIDField()
    operation = models.ForeignKey(Operation, on_delete=models.PROTECT, related_name="permissions")
    attempt_number = models.PositiveIntegerField()  # the attempt it allows
    ground = models.CharField(max_length=40)
    evidence = models.JSONField()
    granted_by = models.CharField(max_length=120)  # "rule" or a person
    granted_at = models.DateTimeField()
    valid_until = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["operation", "attempt_number"], name="recovery_permission_once"),
            models.CheckConstraint(
                condition=Q(ground__in=[Allowance.PROVIDER_GUARANTEE, Allowance.CONFIRMED_NOT_EXECUTED]),
                name="recovery_permission_ground",
            ),
        ]


class Attempt(models.Model):
    """One try at an operation, with why it was allowed."""

    keep_rows = True

    id = models.UUIDField(primary_key=True, default=new_id)
    tenant_id = models.UUIDField()
    operation = models.ForeignKey(Operation, on_delete=models.PROTECT, related_name="attempts")
    number = models.PositiveIntegerField()
    allowed_by = models.CharField(max_length=40)
    permission = models.OneToOneField(
        RecoveryPermission, on_delete=models.PROTECT, null=True, related_name="attempt"
    )
    observation = models.ForeignKey(Observation, on_delete=models.PROTECT, null=True, related_name="+")
    lease_owner = models.UUIDField()
    started_at = models.DateTimeField()
    lease_until = models.DateTimeField()
    outcome = models.CharField(max_length=20, default=AttemptOutcome.PENDING)
    reason = models.CharField(max_length=80, blank=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["operation", "number"], name="attempt_number"),
            models.CheckConstraint(condition=one_of("outcome", AttemptOutcome), name="attempt_outcome"),
            models.CheckConstraint(condition=one_of("allowed_by", Allowance), name="attempt_allowed_by"),
            models.CheckConstraint(
                condition=Q(allowed_by__in=[Allowance.FIRST, Allowance.NOT_ACCEPTED])
                | Q(permission__isnull=False),
                name="attempt_recovery_needs_permission",
            ),
        ]


class Response(models.Model):
    """Every answer to an attempt, kept as received, late ones included."""

    append_only = True

    id = models.UUIDField(primary_key=True, default=new_id)
    tenant_id = models.UUIDField()
    attempt = models.ForeignKey(Attempt, on_delete=models.PROTECT, related_name="responses")
    received_at = models.DateTimeField()
    outcome = models.CharField(max_length=20)
    reason = models.CharField(max_length=80)
    status = models.PositiveSmallIntegerField(null=True)
    headers = models.JSONField(default=dict)
    body = models.TextField(blank=True)
    late = models.BooleanField(default=False)  # the lease had gone to nobody or to another


class LookUp(models.Model):
    """One question to the provider whether an effect happened, and its answer."""

    append_only = True

    id = models.UUIDField(primary_key=True, default=new_id)
    tenant_id = models.UUIDField()
    operation = models.ForeignKey(Operation, on_delete=models.PROTECT, related_name="look_ups")
    attempt_number = models.PositiveIntegerField()  # the newest attempt when it was asked
    asked_at = models.DateTimeField()
    answered_at = models.DateTimeField()
    complete = models.BooleanField()
    matches = models.JSONField()
    reason = models.CharField(max_length=80)
    body = models.TextField(blank=True)


class Receipt(models.Model):
    """The provider's own reference for an effect; it belongs to one operation only."""

    keep_rows = True

    id = models.UUIDField(primary_key=True, default=new_id)
    tenant_id = models.UUIDField()
    operation = models.ForeignKey(Operation, on_delete=models.PROTECT, related_name="receipts")
    attempt = models.ForeignKey(Attempt, on_delete=models.PROTECT, null=True, related_name="+")
    account = models.ForeignKey(ProviderAccount, on_delete=models.PROTECT, related_name="+")
    provider = models.CharField(max_length=40)
    reference = models.CharField(max_length=255)
    amount = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    provider_status = models.CharField(max_length=40)
    resource_key = models.CharField(max_length=400)
    source = models.CharField(max_length=20)  # "response" or "look_up"
    received_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant_id", "account", "reference"], name="receipt_reference"),
            models.CheckConstraint(condition=Q(source__in=["response", "look_up"]), name="receipt_source"),
        ]


class Case(models.Model):
    """What the rules cannot settle: a question for a person, with an owner and a deadline (R-D6)."""

    keep_rows = True

    id = models.UUIDField(primary_key=True, default=new_id)
    tenant_id = models.UUIDField()
    operation = models.ForeignKey(Operation, on_delete=models.PROTECT, related_name="cases")
    reason = models.CharField(max_length=80)
    detail = models.JSONField(default=dict)
    owner = models.CharField(max_length=120)
    review_by = models.DateTimeField()
    opened_at = models.DateTimeField()
    settled_at = models.DateTimeField(null=True)
    settlement = models.CharField(max_length=80, blank=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["operation", "reason"], name="case_open_once", condition=Q(settled_at__isnull=True)
            ),
        ]


class Outbox(models.Model):
    """What happens next, and when. Deleted only by the transaction that finishes the step it names."""

    outside_fence = "ids only; the relay reads it for all tenants"

    id = models.UUIDField(primary_key=True, default=new_id)
    tenant_id = models.UUIDField()
    step = models.CharField(max_length=40)
    subject_id = models.UUIDField()
    due_at = models.DateTimeField()  # belongs to the step
    publish_at = models.DateTimeField()  # moved forward by the relay, and by nobody else
    published = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["step", "subject_id"], name="outbox_step_once")
        ]
        indexes: ClassVar = [
            models.Index(fields=["publish_at"], name="outbox_publish_at"),
            models.Index(fields=["due_at"], name="outbox_due_at"),
        ]


class ChainHead(models.Model):
    """The end of a tenant's journal; locked last in every transaction, and briefly."""

    keep_rows = True

    tenant_id = models.UUIDField(primary_key=True)
    seq = models.BigIntegerField(default=0)
    hash = models.CharField(max_length=64)

    class Meta:
        constraints: ClassVar = [models.CheckConstraint(condition=Q(seq__gte=0), name="chain_head_seq")]


class JournalEntry(models.Model):
    """One thing that happened, chained by hash to the one before. Never changed, by anybody."""

    append_only = True

    id = models.UUIDField(primary_key=True, default=new_id)
    tenant_id = models.UUIDField()
    seq = models.BigIntegerField()
    at = models.DateTimeField()
    event = models.CharField(max_length=60)
    action_id = models.UUIDField(null=True)
    operation_id = models.UUIDField(null=True)
    actor_type = models.CharField(max_length=20)
    actor_id = models.CharField(max_length=80)
    payload_digest = models.CharField(max_length=64)  # salted; the salt goes with the payload
    prev_hash = models.CharField(max_length=64)
    hash = models.CharField(max_length=64)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["tenant_id", "seq"], name="journal_seq")]
        indexes: ClassVar = [models.Index(fields=["tenant_id", "action_id", "seq"], name="journal_by_action")]


class JournalPayload(models.Model):
    """The readable part of an entry; it can be erased while the chain stays verifiable."""

    keep_rows = True

    entry = models.OneToOneField(
        JournalEntry, on_delete=models.PROTECT, primary_key=True, related_name="payload"
    )
    tenant_id = models.UUIDField()
    salt = models.CharField(max_length=64)
    text = models.TextField()  # RFC 8785 form of the payload

    class Meta:
        constraints: ClassVar = [models.CheckConstraint(condition=~Q(salt=""), name="journal_payload_salt")]
