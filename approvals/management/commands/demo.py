"""`manage.py demo`: everything embedded, one refund walked through, then a desk to try. Ctrl-C ends all of it."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from approvals import programs
from approvals.demo.seed import Cast, load
from approvals.embedded import ports, records
from approvals.embedded.engines import Engines
from approvals.embedded.errors import EmbeddedError
from approvals.embedded.keys import write_private
from approvals.embedded.lock import Lock
from approvals.embedded.processes import Supervisor
from approvals.embedded.signals import StopRequested, stop_on_signals


class Command(BaseCommand):
    """Start, walk, serve, stop."""

    help = "Start everything on this machine, walk one refund through, and keep serving until Ctrl-C."
    requires_system_checks: list[str] = []  # noqa: RUF012 - Django's own name and type

    def add_arguments(self, parser: CommandParser) -> None:
        """Ports, and whether to stay."""
        parser.add_argument("--port", type=int, default=8000, help="port of the pages and the API (8000)")
        parser.add_argument(
            "--sandbox-port", type=int, default=8010, help="port of the sandbox provider (8010)"
        )
        parser.add_argument(
            "--exit", action="store_true", help="end after the walk; status 0 if each refund happened once"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until the walk is over (`--exit`) or somebody stops it."""
        try:
            with stop_on_signals():
                self.run(options["port"], options["sandbox_port"], stay=not options["exit"])
        except StopRequested:
            self.stdout.write("Stopped; the data stay in .local and are found at the next start.")
        except EmbeddedError as error:
            raise CommandError(error.message) from error

    def run(self, port: int, sandbox_port: int, *, stay: bool) -> None:
        """The servers first, then everything on them."""
        base = {**os.environ, "BASE_URL": f"http://localhost:{port}"}
        if not settings.EMBEDDED:
            self.run_on_given_servers(base, port, sandbox_port, stay=stay)
            return
        self.stdout.write("Starting PostgreSQL and Valkey …")
        with Engines(settings.BASE_DIR) as engines:
            for name in engines.recovered:
                self.stdout.write(f"An earlier run had left {name} running; it was stopped.")
            env = {**base, **engines.addresses.environment()}
            with engines.supervisor() as supervisor:
                self.serve(supervisor, engines.place.folder, env, port, sandbox_port, stay=stay)

    def run_on_given_servers(self, env: dict[str, str], port: int, sandbox_port: int, *, stay: bool) -> None:
        """The same on PostgreSQL and Redis of the user's own."""
        folder = settings.BASE_DIR / ".local"
        run = folder / "run"
        run.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = Lock(run)
        lock.acquire()
        try:
            records.end_leftovers(run)
            with Supervisor(run=run, logs=folder / "log") as supervisor:
                self.serve(supervisor, folder, env, port, sandbox_port, stay=stay)
        finally:
            lock.release()

    def serve(
        self,
        supervisor: Supervisor,
        folder: Path,
        env: dict[str, str],
        port: int,
        sandbox_port: int,
        *,
        stay: bool,
    ) -> None:
        """Migrate, seed, start the processes, walk, write down how to get in, and watch."""
        # only now: what an earlier run had left on the ports has been ended by its own notes
        ports.require_free(port, purpose="the pages and the API")
        ports.require_free(sandbox_port, purpose="the sandbox provider", option="--sandbox-port")
        base_url, sandbox_url = f"http://localhost:{port}", f"http://localhost:{sandbox_port}"
        cast, ready = folder / "demo-cast.json", folder / "demo.json"
        ready.unlink(missing_ok=True)
        self.call(env, "migrate", "--verbosity", "0")
        env = {name: value for name, value in env.items() if name != "DATABASE_OWNER_URL"}
        sandbox = supervisor.start(programs.sandbox(env, port=sandbox_port, store=folder / "sandbox.sqlite3"))
        web = supervisor.start(programs.web(env, port=port))
        supervisor.start(programs.worker(env))
        supervisor.start(programs.beat(env))
        # they come up while the cast is made
        sandbox.wait_until(lambda: ports.http_ok(sandbox_port, "/_sandbox/books"), seconds=30)
        self.call(env, "demo_seed", str(cast), sandbox_url)
        web.wait_until(lambda: ports.http_ok(port, "/healthz"), seconds=60, what="answering")
        self.call(env, "demo_walk", str(cast), base_url, sandbox_url)
        if not stay:
            return
        people = load(cast)
        write_private(ready, json.dumps(way_in(people, base_url, sandbox_url), indent=1) + "\n")
        reviewer, password = next(iter(people["acme"].reviewers.items()))
        self.stdout.write(
            f"\nSecond Key serves on {base_url}: sign in as {reviewer} with {password}\n"
            f"The agents' API is {base_url}/v1/docs, the documentation {base_url}/docs/, the provider {sandbox_url}.\n"
            f"Everybody's passwords and tokens: {settings.BASE_DIR / '.local' / 'demo.json'}; logs beside it."
            "\nCtrl-C stops."
        )
        supervisor.watch(self.stdout)

    def call(self, env: Mapping[str, str], *words: str) -> None:
        """Run a management command to its end; its output is ours. Raises CommandError."""
        self.stdout.flush()
        line = [sys.executable, "manage.py", *words]
        done = subprocess.run(line, env=env, cwd=settings.BASE_DIR, check=False)  # noqa: S603 - our own words
        if done.returncode != 0:
            raise CommandError(f"`manage.py {words[0]}` failed; what it said stands above.")


def way_in(cast: Mapping[str, Cast], base_url: str, sandbox_url: str) -> dict[str, Any]:
    """The contents of `.local/demo.json`: addresses, names, passwords, tokens, payments to try."""
    return {
        "base_url": base_url,
        "sandbox_url": sandbox_url,
        "tenants": {
            slug: {"agents": one.agents, "reviewers": one.reviewers, "admins": one.admins}
            for slug, one in cast.items()
        },
        "payments": {slug: one.payments for slug, one in cast.items()},
    }
