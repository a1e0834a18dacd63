"""Driving the ledger in a test's own process: open an operation, run what is due, move time instead of waiting."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from threading import Barrier, Thread
from typing import Any
from uuid import UUID

from django.db import connection

from ledger import accounts, outbox
from ledger.clock import now
from ledger.ids import new_id
from ledger.journal import SYSTEM
from ledger.models import Attempt, Operation, Outbox
from ledger.operations import open_operation
from ledger.transactions import tenant_reads, tenant_transaction
from tests.conftest import Clock
from tests.factories import World


def refund(
    world: World,
    payment: str,
    *,
    amount: int = 4_900,
    currency: str = "usd",
    execute_before: datetime | None = None,
    run_id: str = "run_1",
) -> Operation:
    """An approved refund as the ledger gets it, with nothing of the approval side behind it."""
    with tenant_transaction(world.tenant_id) as tx:
        return open_operation(
            tx,
            action_id=new_id(),
            run_id=run_id,
            kind="refund",
            kind_version=1,
            effect="refund",
            sequence=1,
            parameters={"payment": payment, "amount": amount, "currency": currency},
            fingerprint="sha256:" + "0" * 64,
            account=world.account,
            resource_key=accounts.resource_key(world.account.id, "stripe", payment),
            amount=amount,
            currency=currency,
            execute_before=execute_before or tx.after(3600),
            actor=SYSTEM,
        )


def fresh(operation: Operation) -> Operation:
    """The operation as it stands now."""
    with tenant_reads(operation.tenant_id):
        return Operation.objects.select_related("account").get(id=operation.id)


def attempts(operation: Operation) -> list[Attempt]:
    """Its attempts, by number."""
    with tenant_reads(operation.tenant_id):
        return list(operation.attempts.select_related("permission").order_by("number"))


def steps(tenant_id: UUID) -> set[str]:
    """The names of the steps that the tenant's outbox still holds."""
    return set(Outbox.objects.filter(tenant_id=tenant_id).values_list("step", flat=True))


def run_due(tenant_id: UUID) -> list[str]:
    """Run what is due now, once each, as a worker that got every message; returns the handlers' words."""
    rows = Outbox.objects.filter(tenant_id=tenant_id, due_at__lte=now()).order_by("due_at", "id")
    return [outbox.run(row_id) for row_id in list(rows.values_list("id", flat=True))]


def drive(tenant_id: UUID, clock: Clock, *, rounds: int = 30) -> list[str]:
    """Run everything, moving the clock to what is due next, until nothing is left or the rounds are over."""
    words: list[str] = []
    ahead = 0.0
    for _ in range(rounds):
        words += run_due(tenant_id)
        row = Outbox.objects.filter(tenant_id=tenant_id).order_by("due_at").first()
        if row is None:
            break
        wait = (row.due_at - datetime.now(tz=UTC)) / timedelta(seconds=1) + 0.001
        if wait > ahead:
            ahead = wait
            clock.ahead(ahead)
    return words


def in_parallel(*calls: Callable[[], Any]) -> list[Any]:
    """Run the calls at once, each on a connection of its own; an exception is returned in its place."""
    barrier = Barrier(len(calls))
    results: list[Any] = [None] * len(calls)

    def work(number: int, call: Callable[[], Any]) -> None:
        try:
            barrier.wait(30)
            results[number] = call()
        except Exception as error:  # noqa: BLE001 - the test judges it
            results[number] = error
        finally:
            connection.close()

    threads = [Thread(target=work, args=(number, call)) for number, call in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
        assert not thread.is_alive(), "a rival never came back"
    return results
