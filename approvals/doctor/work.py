"""The tenants' work: nothing unfinished without a next step, every journal whole, every secret readable.

Reads tenant by tenant inside the fence and changes nothing. Names and amounts do not leave it: findings hold
short names of tenants, and ids.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Exists, OuterRef, QuerySet

from approvals import tenants
from approvals.doctor.findings import Finding, fail, ok, some, warn
from approvals.health import OLDEST_DUE_SECONDS
from approvals.models import Action, ActionStatus, MembershipRole, PolicyPointer, Role, TenantProfile
from ledger import accounts, journal, outbox
from ledger.accounts import SecretUnreadableError
from ledger.models import Operation, Outbox, ProviderAccount
from ledger.states import HAPPENED, OperationState
from ledger.transactions import enter_fence

PUT_BACK = """\
A row is removed only by the transaction that finishes its step, so somebody removed it by hand or there is a fault:
please report it with the ids. To set the work going again, for each step, id and tenant:
INSERT INTO ledger_outbox (id, tenant_id, step, subject_id, due_at, publish_at, published, created_at)
VALUES (gen_random_uuid(), '<tenant>', '<step>', '<id>', ledger_now(), ledger_now(), 0, ledger_now());"""


@dataclass(frozen=True, kw_only=True)
class Missing:
    """An unfinished thing of which nobody knows what happens next."""

    tenant_id: UUID
    step: str
    subject_id: UUID

    def __str__(self) -> str:
        return f"{self.step} {self.subject_id} (tenant {self.tenant_id})"


@contextmanager
def one_moment(tenant_id: UUID) -> Iterator[None]:
    """A read-only transaction inside the fence in which every statement sees the same moment.

    Otherwise what commits between two statements of a running system would look like a fault.
    """
    with transaction.atomic(durable=True):
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        enter_fence(tenant_id)
        yield


def age_of_the_outbox() -> Finding:
    """How long the oldest due step has been waiting for a worker."""
    health = outbox.health()
    due = "1 step is due" if health.due == 1 else f"{health.due} steps are due"
    said = f"{due}, the oldest for {health.oldest_seconds:.0f} s"
    if health.oldest_seconds > OLDEST_DUE_SECONDS:
        return warn("outbox", said, "Start the worker and beat, and look at the worker's log.")
    return ok("outbox", said if health.due else "no step is due")


def without_next_step(tenant_id: UUID) -> list[Missing]:
    """Everything unfinished without an outbox row (design: invariant 6); inside `one_moment`."""
    open_ = Operation.objects.filter(tenant_id=tenant_id)
    waits_for_another = Exists(
        Operation.objects.filter(action_id=OuterRef("action_id"), sequence__lt=OuterRef("sequence")).exclude(
            state__in=list(HAPPENED)
        )
    )
    prepared = open_.filter(state=OperationState.PREPARED).exclude(waits_for_another)
    pending = Action.objects.filter(tenant_id=tenant_id, status=ActionStatus.PENDING)
    questions: Sequence[tuple[str, QuerySet[Operation] | QuerySet[Action]]] = (
        ("execute", prepared),
        ("watchdog", open_.filter(state=OperationState.DISPATCHED)),
        ("reconcile", open_.filter(state=OperationState.OUTCOME_UNKNOWN)),
        ("expire", pending),
        ("observe", pending.filter(observation__isnull=True)),
    )
    return [
        Missing(tenant_id=tenant_id, step=step, subject_id=subject_id)
        for step, rows in questions
        for subject_id in rows.exclude(Exists(Outbox.objects.filter(step=step, subject_id=OuterRef("id"))))
        .order_by("id")
        .values_list("id", flat=True)
    ]


def unreadable_accounts(tenant_id: UUID) -> list[str]:
    """Provider accounts in use whose secret no key opens."""
    found = []
    for account in ProviderAccount.objects.filter(tenant_id=tenant_id, disabled_at__isnull=True).order_by(
        "name"
    ):
        try:
            accounts.decrypt(account.encrypted_secret)
        except SecretUnreadableError:
            found.append(f"{account.provider} {account.name}")
    return found


def lacks(tenant_id: UUID) -> list[str]:
    """What a tenant needs before anything can be decided in it."""
    found = []
    if not PolicyPointer.objects.filter(tenant_id=tenant_id).exists():
        found.append("no policy, so every proposal is denied (`manage.py publish_policy`)")
    reviewers = MembershipRole.objects.filter(tenant_id=tenant_id, role=Role.REVIEWER, user__is_active=True)
    if not reviewers.exists():
        found.append("no active reviewer (`manage.py create_admin … --roles reviewer`)")
    if not ProviderAccount.objects.filter(tenant_id=tenant_id, disabled_at__isnull=True).exists():
        found.append("no provider account (`manage.py create_provider_account`)")
    return found


def findings(*, quick: bool) -> Iterator[Finding]:
    """All tenants, one after the other; `quick` leaves out the journals, which are read whole."""
    missing: list[Missing] = []
    unreadable: list[str] = []
    broken: list[str] = []
    lacking: list[str] = []
    entries = 0
    ids = tenants.tenant_ids()
    for tenant_id in ids:
        with one_moment(tenant_id):
            profile = TenantProfile.objects.filter(tenant_id=tenant_id).first()
            name = profile.slug if profile else str(tenant_id)
            missing += without_next_step(tenant_id)
            unreadable += [f"{name}: {account}" for account in unreadable_accounts(tenant_id)]
            lacking += [f"{name} has {what}" for what in lacks(tenant_id)]
            if not quick:
                check = journal.verify(tenant_id)
                entries += check.entries
                broken += [f"{name}: {check.fault}"] if check.fault else []
    yield age_of_the_outbox()
    if missing:
        said = f"{len(missing)} unfinished things have no next step: {some([str(one) for one in missing])}"
        yield fail("next steps", said, PUT_BACK)
    else:
        yield ok("next steps", "every unfinished thing has an outbox row")
    if unreadable:
        mend = "Put the key it was encrypted with back into SECOND_KEY_ENCRYPTION_KEYS, after the newest."
        yield fail("provider secrets", f"No key opens {some(unreadable)}", mend)
    else:
        yield ok("provider secrets", "every provider account can be used")
    if broken:
        mend = "Keep the database as it is, and compare with a backup: somebody changed what must not change."
        yield fail("journal", some(broken), mend)
    elif not quick:
        yield ok("journal", f"{entries} entries of {len(ids)} tenants verify")
    if lacking:
        yield warn(
            "tenants", f"Nothing can be decided: {some(lacking)}", "Run the commands named, each with --help."
        )
    elif not ids:
        yield warn(
            "tenants",
            "There is no tenant yet.",
            "`manage.py create_tenant`, then create_admin and create_agent.",
        )
    else:
        yield ok("tenants", f"{len(ids)} with policy, reviewers and provider account")
