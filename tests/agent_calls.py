"""Speaking to the agent API in tests as an agent does: over Django's test client, or over HTTP to a real server."""

import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from django.db import connection
from django.http import HttpResponse
from django.test import Client

from approvals.models import Action, IdempotencyRecord
from ledger.models import JournalEntry, Operation, Outbox
from ledger.transactions import tenant_reads
from tests import conftest, engines
from tests.factories import World
from tests.sandbox_process import free_port, wait_until

ROOT = Path(__file__).resolve().parent.parent


def submission(**changes: Any) -> dict[str, Any]:
    """A refund that the factories' policy sends to one reviewer; each one is a step of its own."""
    step = f"refund-{secrets.token_hex(6)}"
    body: dict[str, Any] = {
        "kind": "refund",
        "schema_version": 1,
        "run_id": "run_8812",
        "step_id": step,
        "parameters": {
            "payment": f"pi_{secrets.token_hex(8)}",
            "amount": 4_900,
            "currency": "usd",
            "reason": "requested_by_customer",
        },
    }
    return body | changes


def new_key() -> str:
    """A key that nobody used."""
    return f"key-{secrets.token_hex(12)}"


class AgentClient:
    """One agent over Django's test client. Answers carry `.json()`."""

    def __init__(self, world: World | None = None, *, token: str = "") -> None:
        self.token = token or (world.token if world else "")
        self.client = Client(raise_request_exception=False)

    def headers(self, **more: str) -> dict[str, str]:
        """The token and more."""
        return ({"Authorization": f"Bearer {self.token}"} if self.token else {}) | more

    def submit(self, body: Any, key: str | None = None, **headers: str) -> Any:
        """POST /v1/actions; a text is sent as it is."""
        named = {"Idempotency-Key": key or new_key()} | headers
        return self.client.post(
            "/v1/actions", data=body, content_type="application/json", headers=self.headers(**named)
        )

    def get(self, path: str, **headers: str) -> Any:
        """GET below /v1."""
        return self.client.get(f"/v1{path}", headers=self.headers(**headers))

    def cancel(self, action_id: str) -> Any:
        """POST …/cancel."""
        return self.client.post(f"/v1/actions/{action_id}/cancel", headers=self.headers())


def code(answer: HttpResponse) -> str:
    """The `code` of a problem document, whose form is checked on the way."""
    assert answer["Content-Type"] == "application/problem+json", answer.content
    body: dict[str, Any] = answer.json()  # type: ignore[attr-defined]
    assert body["status"] == answer.status_code
    assert body["type"].endswith(f"/v1/errors#{body['code']}")
    assert {"title", "detail"} <= body.keys()
    assert answer["X-Request-ID"]
    return str(body["code"])


def counts(made: World) -> tuple[int, ...]:
    """Actions, keys, operations, journal entries and outbox rows."""
    with tenant_reads(made.tenant_id):
        tables = (Action, IdempotencyRecord, Operation, JournalEntry)
        inside = tuple(table.objects.count() for table in tables)
    return (*inside, Outbox.objects.filter(tenant_id=made.tenant_id).count())


def changed(body: dict[str, Any], **parameters: Any) -> dict[str, Any]:
    """The same step with other parameters."""
    return body | {"parameters": body["parameters"] | parameters}


def at_once(number: int, call: Callable[[], Any]) -> list[Any]:
    """Run a call in threads that start together, each with a connection of its own."""
    gate = threading.Barrier(number)

    def run(_: int) -> Any:
        gate.wait(10)
        try:
            return call()
        finally:
            connection.close()

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(run, range(number)))


class WebServer:
    """A real web process (`uvicorn approvals.asgi:application`) on the tests' database."""

    def __init__(self, **environment: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.environment = environment
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        address = engines.current().app_url.rsplit("/", 1)[0] + "/" + conftest.MAIN
        environment = os.environ | {
            "DATABASE_URL": address,
            "ALLOWED_HOSTS": "127.0.0.1,localhost",
            "LOG_LEVEL": "WARNING",
        }
        environment.pop("DATABASE_OWNER_URL", None)
        arguments = ["approvals.asgi:application", "--host", "127.0.0.1", "--port", str(self.port)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", *arguments, "--log-level", "warning"],
            cwd=ROOT,
            env=environment | self.environment,
        )
        wait_until(self._answers, 20, "the web process")

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"the web process ended: {self.process.returncode}"
        try:
            return httpx.get(f"{self.url}/healthz", timeout=2).status_code == 200
        except httpx.TransportError:
            return False

    def stop(self, seconds: float = 10) -> int:
        """SIGTERM; returns the exit status. TimeoutExpired where it does not end in time."""
        process, self.process = self.process, None
        if process is None:
            return 0
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise


@contextmanager
def web_server(**environment: str) -> Iterator[WebServer]:
    """A web process for the length of a `with`."""
    running = WebServer(**environment)
    try:
        running.start()
        yield running
    finally:
        running.stop()
