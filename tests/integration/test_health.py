"""Health answers for load balancers: a broker or a late worker degrades, only the database makes unready."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client
from pytest_django.fixtures import Settings

from approvals import health
from ledger.ids import new_id
from ledger.models import Outbox
from ledger.transactions import tenant_transaction
from tests.factories import world

pytestmark = pytest.mark.usefixtures("db")


def get(path: str) -> Any:
    """A request without any session."""
    return Client(raise_request_exception=False).get(path)


def test_healthz_answers_while_the_database_does(db: None) -> None:
    answer = get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    assert "no-store" in answer["Cache-Control"]


def test_without_the_database_both_are_503_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    class Down:
        def cursor(self) -> None:
            raise OperationalError("connection refused on 10.0.0.1")

        def close(self) -> None:
            return

    monkeypatch.setattr(health, "connection", Down())
    for path, status in (("/healthz", "down"), ("/readyz", "unready")):
        answer = get(path)
        assert answer.status_code == 503
        assert answer.json()["status"] == status
        assert answer.json()["reasons"] == ["database"]
        assert b"10.0.0.1" not in answer.content


def test_readyz_names_a_missing_migration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "migrations_on_disk", lambda: frozenset({("approvals", "9999_not_yet")}))
    answer = get("/readyz")
    assert (answer.status_code, answer.json()["reasons"]) == (503, ["migrations_missing"])


def test_a_lost_broker_only_degrades(settings: Settings) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    answer = get("/readyz")
    assert answer.status_code == 200
    assert "broker" in answer.json()["degraded"]


def test_a_step_due_for_more_than_two_minutes_degrades() -> None:
    # K17: the age of the oldest due row is the alarm when a worker is deaf
    Outbox.objects.all().delete()  # what other tests left due is not this one's
    made = world()
    subject = new_id()
    with tenant_transaction(made.tenant_id) as tx:
        tx.schedule("expire", subject, due_at=tx.now() - timedelta(seconds=121), hint=False)
    try:
        answer = get("/readyz")
        assert answer.status_code == 200
        assert "outbox" in answer.json()["degraded"]
        assert "second_key_outbox_oldest_due_seconds" in get("/metrics").content.decode()
    finally:
        with tenant_transaction(made.tenant_id) as tx:
            tx.finish("expire", subject)
    assert "outbox" not in get("/readyz").json()["degraded"]


def test_metrics_are_numbers_without_a_tenant() -> None:
    made = world()
    answer = get("/metrics")
    assert answer.status_code == 200
    assert answer["Content-Type"].startswith("text/plain")
    text = answer.content.decode()
    assert "second_key_database_up 1.0" in text
    assert "second_key_outbox_due " in text
    assert str(made.tenant_id) not in text


def test_only_safe_methods() -> None:
    client = Client()
    for path in ("/healthz", "/readyz", "/metrics"):
        assert client.head(path).status_code == 200
        assert client.post(path).status_code == 405
