"""Celery tasks of the approval side: thin. Each is safe to run twice, late or never."""

from celery import shared_task
from django.db import close_old_connections

from approvals import idempotency, tenants


@shared_task(name="approvals.purge_keys")
def purge_keys() -> int:
    """Clear idempotency keys whose time is over, tenant by tenant; returns how many went."""
    close_old_connections()
    return sum(idempotency.purge(tenant_id) for tenant_id in tenants.tenant_ids())
