"""The outbox: rows stand until their step is finished, hints may fail, the relay never publishes twice at once."""

import socket
import time
from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest
from django.db import connection
from pytest_django import Settings

from ledger import outbox
from ledger.clock import now
from ledger.ids import new_id
from ledger.models import Outbox
from ledger.transactions import tenant_transaction
from tests.conftest import Clock
from tests.factories import World, world

pytestmark = pytest.mark.usefixtures("db")


@pytest.fixture
def here() -> World:
    return world(reviewers=0)


@pytest.fixture
def fresh_publisher() -> Iterator[None]:
    outbox._publisher = None
    yield
    outbox._publisher = None


def put(here: World, *, in_seconds: float = 0.0, step: str = "execute") -> Outbox:
    with tenant_transaction(here.tenant_id) as tx:
        subject = new_id()
        tx.schedule(step, subject, due_at=tx.after(in_seconds), hint=False)
    return Outbox.objects.get(subject_id=subject)


def test_a_row_is_published_again_until_its_step_is_done(here: World, clock: Clock) -> None:  # R-C6
    row = put(here)
    assert outbox.relay(publish=False, tenant_id=here.tenant_id) == [row.id]
    assert outbox.relay(publish=False, tenant_id=here.tenant_id) == []
    clock.ahead(3_600)
    assert outbox.relay(publish=False, tenant_id=here.tenant_id) == [row.id]
    row.refresh_from_db()
    assert row.published == 2


def test_the_relay_moves_publish_at_only_and_forward(here: World, clock: Clock) -> None:
    row = put(here)
    outbox.relay(publish=False, tenant_id=here.tenant_id)
    after = Outbox.objects.get(id=row.id)
    assert after.due_at == row.due_at
    assert after.publish_at > row.publish_at


def test_scheduling_twice_is_one_row_with_the_new_time(here: World) -> None:
    with tenant_transaction(here.tenant_id) as tx:
        subject = new_id()
        tx.schedule("execute", subject, due_at=tx.after(50), hint=False)
        tx.schedule("execute", subject, due_at=tx.after(500), hint=False)
    row = Outbox.objects.get(subject_id=subject)
    assert (row.due_at - row.created_at).total_seconds() > 400


def test_early_and_missing_rows_run_nothing(here: World) -> None:
    assert outbox.run(put(here, in_seconds=60).id) == "early"
    assert outbox.run(new_id()) == "gone"


def test_the_age_of_the_oldest_due_row_grows(here: World, clock: Clock) -> None:  # K17
    put(here)
    before = outbox.health()
    clock.ahead(600)
    after = outbox.health()
    assert after.due >= before.due >= 1
    assert after.oldest_seconds >= before.oldest_seconds + 590


@pytest.mark.parametrize("broken", ["refusing", "silent"])
def test_a_hint_to_a_broken_broker_is_quick_and_harmless(
    broken: str, here: World, settings: Settings, fresh_publisher: None, caplog: pytest.LogCaptureFixture
) -> None:  # design: invariant 2
    with socket.create_server(("127.0.0.1", 0)) as listener:  # accepts in its backlog, and never answers
        port = listener.getsockname()[1]
        if broken == "refusing":
            listener.close()
        settings.CELERY_BROKER_URL = f"redis://127.0.0.1:{port}/0"
        began = time.monotonic()
        with tenant_transaction(here.tenant_id) as tx:
            subject = new_id()
            tx.schedule("execute", subject, due_at=tx.now())
        took = time.monotonic() - began
    assert Outbox.objects.filter(subject_id=subject).exists()
    assert "broker not reached" in caplog.text
    assert took < 1.0, f"the hint held the request for {took:.2f} s"


def test_the_relays_query_uses_its_index(here: World, owner: psycopg.Connection) -> None:
    later = now() + timedelta(hours=3)
    Outbox.objects.bulk_create(
        Outbox(
            tenant_id=here.tenant_id,
            step="execute",
            subject_id=new_id(),
            due_at=later,
            publish_at=later,
            created_at=later,
        )
        for _ in range(3_000)
    )
    owner.execute("ANALYZE ledger_outbox")
    owner.commit()
    with connection.cursor() as cursor:
        cursor.execute(
            "EXPLAIN SELECT * FROM ledger_outbox WHERE publish_at <= now() ORDER BY publish_at LIMIT 200"
            " FOR NO KEY UPDATE SKIP LOCKED"
        )
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "outbox_publish_at" in plan, plan
    Outbox.objects.filter(tenant_id=here.tenant_id).delete()
