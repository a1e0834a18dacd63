"""The whole system as real processes on servers of its own: sandbox, web, worker, beat, PostgreSQL, Valkey.

The test's own process is connected to the same database while it lasts, so that it can seed, move the clock
and judge; whatever decides or pays runs in the processes.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import redis
from django.conf import settings
from django.core.management import call_command
from django.db import connections

from approvals import programs
from approvals.demo.browser import AgentProgram, Person
from approvals.embedded import ports
from approvals.embedded.engines import Engines
from approvals.embedded.processes import Child, Program, Supervisor
from tests.conftest import Clock
from tests.factories import PASSWORD, World, world
from tests.sandbox_process import Sandbox, wait_until

QUICK = {
    "LEDGER_DEADLINE_SECONDS": "2",
    "LEDGER_LEASE_SECONDS": "3",
    "LEDGER_RELAY_SECONDS": "0.3",
    "LEDGER_REPUBLISH_SECONDS": "1",
    "LEDGER_BACKOFF_SECONDS": "0.2",
    "LOG_LEVEL": "INFO",
}


@dataclass
class Live:
    """A running system and the handles to break it."""

    engines: Engines
    supervisor: Supervisor
    sandbox: Sandbox
    env: dict[str, str]
    base_url: str
    clock: Clock
    children: dict[str, Child] = field(default_factory=dict)

    def world(self, **more: Any) -> World:
        """A fresh tenant whose account is at the sandbox."""
        return world(provider_url=self.sandbox.url, **more)

    def payment(self, here: World, **more: Any) -> str:
        """A payment that has arrived, of 100.00 USD where nothing else is said."""
        return self.sandbox.seed({"amount": 10_000, "currency": "usd", **more}, account=here.provider_secret)[
            0
        ]

    def agent(self, here: World) -> AgentProgram:
        return AgentProgram(self.base_url, here.token)

    def reviewer(self, here: World, number: int = 0) -> Person:
        return Person(self.base_url).sign_in(here.reviewers[number].username, PASSWORD)

    def submit(self, here: World, payment: str, *, step: str = "step", amount: int = 4_900) -> str:
        """Submit a refund as the agent, wait until its record is read, and return its id."""
        with self.agent(here) as agent:
            answer = agent.submit(refund_body(payment, step=step, amount=amount), key=f"key-{payment}-{step}")
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def approve(self, here: World, action_id: str, number: int = 0) -> None:
        """Approve as a reviewer, over HTTP, once the provider's record is there."""
        with self.reviewer(here, number) as person:
            answer = wait_until(
                lambda: (r := person.decide(action_id, "approve")).status_code == 303 and r,
                seconds=20,
                what=f"the approval of {action_id}",
            )
        assert answer.status_code == 303

    def final(self, here: World, action_id: str, *, seconds: float = 40) -> dict[str, Any]:
        """Poll until it is final."""
        with self.agent(here) as agent:
            found = wait_until(
                lambda: (body := agent.get(action_id, wait=2))["final"] and body,
                seconds=seconds,
                what=action_id,
            )
        return dict(found)

    def refunds(self, payment: str) -> list[int]:
        """The amounts that the provider's books show as refunded."""
        return [refund["amount"] for refund in self.sandbox.payment(payment)["refunds"]]

    def broker(self) -> redis.Redis:
        return redis.Redis.from_url(self.env["REDIS_URL"])

    def start(self, program: Program) -> Child:
        child = self.supervisor.start(program)
        self.children[program.name] = child
        return child

    def kill(self, name: str) -> None:
        """SIGKILL a process and everything it started."""
        self.supervisor.kill(self.children.pop(name))

    def start_web(self) -> None:
        port = urlsplit(self.base_url).port or 0
        self.start(programs.web(self.env, port=port)).wait_until(
            lambda: ports.http_ok(port, "/healthz"), seconds=30, what="answering"
        )

    def start_worker(self, *, module: str = "celery", extra: Mapping[str, str] | None = None) -> Child:
        return self.start(programs.worker({**self.env, **(extra or {})}, module=module))

    def start_beat(self, name: str = "beat") -> None:
        self.start(programs.beat(self.env, name=name))

    def server(self, name: Literal["postgres", "valkey"]) -> Child:
        """One of the embedded servers' processes: `postgres` or `valkey`."""
        return self.engines.server(name)


def refund_body(payment: str, *, step: str = "step", amount: int = 4_900, **more: Any) -> dict[str, Any]:
    """A submission as `wire` shows it."""
    return {
        "kind": "refund",
        "run_id": "run_8812",
        "step_id": step,
        "parameters": {
            "payment": payment,
            "amount": amount,
            "currency": "usd",
            "reason": "requested_by_customer",
        },
        "reasoning": "charged twice",
        **more,
    }


@contextmanager
def connected_to(url: str, owner_url: str) -> Iterator[None]:
    """Point this process's connections at another database for a while."""
    before = {alias: dict(settings.DATABASES[alias]) for alias in ("default", "owner")}
    connections.close_all()
    for alias, address in (("default", url), ("owner", owner_url)):
        parts = urlsplit(address)
        settings.DATABASES[alias].update(
            NAME=parts.path.lstrip("/"),
            HOST=parts.hostname or "",
            PORT=parts.port or "",
            USER=parts.username or "",
            PASSWORD=parts.password or "",
        )
    try:
        yield
    finally:
        connections.close_all()
        for alias, values in before.items():
            settings.DATABASES[alias].update(values)


@contextmanager
def live(**settings_: str) -> Iterator[Live]:
    """Start everything but beat and worker (a test starts those as it needs them); end it all."""
    with tempfile.TemporaryDirectory(prefix="second-key-live-") as folder, Engines(durable=False) as engines:
        urls = engines.addresses.postgres
        port = ports.free_port()
        env = {**os.environ, **engines.addresses.environment(), **QUICK, **settings_}
        # what this process seals, the processes must be able to open
        env["SECOND_KEY_ENCRYPTION_KEYS"] = ",".join(settings.ENCRYPTION_KEYS)
        env["BASE_URL"] = f"http://localhost:{port}"
        sandbox = Sandbox(Path(folder))
        with connected_to(urls.app_url, urls.owner_url), engines.supervisor() as supervisor:
            call_command("migrate", verbosity=0)
            sandbox.start()
            running = Live(engines, supervisor, sandbox, env, env["BASE_URL"], Clock(urls.owner_url))
            try:
                running.start_web()
                yield running
            finally:
                sandbox.stop()
