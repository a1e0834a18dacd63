"""Tenants and their people: the use cases behind the commands and the demo. One transaction each."""

from collections.abc import Iterable, Iterator
from uuid import UUID

from django.core.exceptions import ValidationError
from django.core.validators import validate_slug
from django.db import IntegrityError, transaction

from approvals.models import Membership, MembershipRole, Role, Tenant, TenantProfile, User
from ledger import journal
from ledger.ids import new_id
from ledger.journal import SYSTEM
from ledger.locks import stop_lock_exclusive
from ledger.transactions import tenant_reads, tenant_transaction


class TenantError(Exception):
    """The tenant cannot be made or found; the message says what to do."""


def tenant_ids() -> list[UUID]:
    """Every tenant's id, oldest first; what walks over all tenants starts here."""
    return list(Tenant.objects.order_by("created_at", "id").values_list("id", flat=True))


def tenants_with_slug(slug: str) -> Iterator[UUID]:
    """Walk the fence tenant by tenant: names are not readable from outside."""
    for tenant_id in tenant_ids():
        with tenant_reads(tenant_id):
            if TenantProfile.objects.filter(tenant_id=tenant_id, slug=slug).exists():
                yield tenant_id


def find_tenant(slug: str) -> UUID:
    """The tenant of that short name. Raises TenantError."""
    for tenant_id in tenants_with_slug(slug):
        return tenant_id
    raise TenantError(f"There is no tenant {slug!r}; make it with `manage.py create_tenant {slug}`.")


def create_tenant(*, slug: str, name: str, time_zone: str = "UTC") -> UUID:
    """Make a tenant with its journal. Raises TenantError for a bad or taken short name."""
    try:
        validate_slug(slug)
    except ValidationError as error:
        raise TenantError(f"{slug!r} is no short name: use letters, digits, - and _ only.") from error
    tenant_id = new_id()
    try:
        with tenant_transaction(tenant_id) as tx:
            Tenant.objects.create(id=tenant_id, created_at=tx.now())
            TenantProfile.objects.create(tenant_id=tenant_id, slug=slug, name=name, time_zone=time_zone)
            journal.open_chain(tenant_id)
            tx.journal("tenant.created", actor=SYSTEM, slug=slug, name=name)
    except IntegrityError as error:  # unique across the fence: no walk over all tenants is needed
        raise TenantError(f"There is a tenant {slug!r} already.") from error
    return tenant_id


def create_person(*, username: str, password: str, email: str = "", full_name: str = "") -> User:
    """Make an account that can sign in; being somebody in a tenant is another step."""
    user = User(username=username, email=email)
    user.first_name, _, user.last_name = full_name.partition(" ")
    user.set_password(password)
    user.save()
    return user


def grant_roles(tenant_id: UUID, user: User, roles: Iterable[Role]) -> None:
    """Give a person roles in a tenant; takes effect at the next decision."""
    with transaction.atomic():
        Membership.objects.get_or_create(user=user, tenant_id=tenant_id)
    with tenant_transaction(tenant_id) as tx:
        stop_lock_exclusive(tenant_id)
        names = sorted(str(role) for role in roles)
        for role in names:
            MembershipRole.objects.get_or_create(tenant_id=tenant_id, user=user, role=role)
        tx.journal("member.granted", actor=SYSTEM, user=user.username, roles=names)


def revoke_roles(tenant_id: UUID, user: User) -> None:
    """Take all roles away; when this has returned, no decision of theirs commits any more (K41)."""
    with tenant_transaction(tenant_id) as tx:
        stop_lock_exclusive(tenant_id)
        MembershipRole.objects.filter(tenant_id=tenant_id, user=user).delete()
        tx.journal("member.revoked", actor=SYSTEM, user=user.username)
    Membership.objects.filter(user=user, tenant_id=tenant_id).delete()


def roles_of(user: User, tenant_id: UUID) -> frozenset[Role]:
    """The roles a person holds now; inside the tenant's transaction, never cached."""
    held = MembershipRole.objects.filter(tenant_id=tenant_id, user_id=user.pk).values_list("role", flat=True)
    return frozenset(Role(role) for role in held)
