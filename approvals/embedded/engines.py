"""Both servers of one place, started and stopped together.

The one entrance for `manage.py demo` and the tests; it hands out addresses and keys. What is done with
them (migrating, seeding, serving) does not belong here.
"""

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Self
from urllib.parse import urlsplit

from approvals.embedded import keys, paths, records, roles
from approvals.embedded.errors import EmbeddedError
from approvals.embedded.keys import Keys
from approvals.embedded.lock import Lock
from approvals.embedded.paths import Place
from approvals.embedded.postgres import PostgresServer
from approvals.embedded.processes import Child, Supervisor
from approvals.embedded.roles import PostgresUrls
from approvals.embedded.valkey import ValkeyServer

type ServerName = Literal["postgres", "valkey"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    postgres: PostgresUrls
    redis_url: str = field(repr=False)
    keys: Keys

    def environment(self) -> dict[str, str]:
        """The variables the settings read."""
        return {
            "DATABASE_URL": self.postgres.app_url,
            "DATABASE_OWNER_URL": self.postgres.owner_url,
            "REDIS_URL": self.redis_url,
            "SECRET_KEY": self.keys.secret_key,
            "SECOND_KEY_ENCRYPTION_KEYS": self.keys.encryption_key,
        }


class Engines:
    """PostgreSQL and Valkey of a checkout.

    with Engines(root) as engines:
        engines.addresses.environment()

    Entering raises EmbeddedError, with everything stopped again, if either cannot run.
    """

    def __init__(self, root: Path | None = None, *, durable: bool = True) -> None:
        """`root` is the checkout; None gives a temporary place that is removed at the end."""
        self._root = root
        self._durable = durable
        self._running: _Running | None = None

    @property
    def place(self) -> Place:
        return self._now.place

    @property
    def addresses(self) -> Addresses:
        return self._now.addresses

    @property
    def recovered(self) -> list[str]:
        """Names of the processes of an earlier run that had to be ended first."""
        return self._now.recovered

    def supervisor(self) -> Supervisor:
        """A new one for processes that use the servers. Stop it first: a `with` block inside does."""
        return Supervisor(run=self.place.run, logs=self.place.logs)

    def start(self) -> Addresses:
        """Start both and write `environment`; returns when they answer. See the class for errors."""
        temporary = self._root is None
        place = paths.settle_for_tests() if self._root is None else paths.settle(self._root)
        lock = Lock(place.run)
        lock.acquire()
        supervisor = Supervisor(run=place.run, logs=place.logs)
        try:
            recovered = records.end_leftovers(place.run)
            programs = place.programs_to_run()
            secrets = keys.load_or_generate(place.keys)
            postgres = PostgresServer(place, programs, secrets, supervisor, durable=self._durable)
            valkey = ValkeyServer(place, programs, secrets, supervisor)
            addresses = Addresses(postgres=postgres.start(), redis_url=valkey.start(), keys=secrets)
            keys.write_environment(place.environment, addresses.environment())
        except OSError as error:
            _close(place, lock, supervisor, remove=temporary)
            raise EmbeddedError(f"The local servers cannot be started in {place.folder}: {error}") from error
        except BaseException:
            _close(place, lock, supervisor, remove=temporary)
            raise
        self._running = _Running(place, lock, supervisor, postgres, valkey, addresses, recovered, os.getpid())
        return addresses

    def stop(self) -> None:
        """Stop both, within some 8 s; a second call does nothing."""
        running, self._running = self._running, None
        # A forked copy of the starter does not own the servers.
        if running is not None and running.pid == os.getpid():
            _close(running.place, running.lock, running.supervisor, remove=self._root is None)

    def server(self, name: ServerName) -> Child:
        """The process of one of the two, to look at."""
        return self._server(name).child

    def kill(self, name: ServerName) -> None:
        """End one of the two as a crash would, without a word to it."""
        self._now.supervisor.kill(self.server(name))

    def revive(self, name: ServerName) -> None:
        """Start one that was killed again, at the address it had; returns when it answers."""
        url = self.addresses.postgres.app_url if name == "postgres" else self.addresses.redis_url
        self._server(name).start(urlsplit(url).port)

    def create_database(self, name: str, template: str | None = None) -> PostgresUrls:
        """See roles.create_database; returns the addresses of the new database."""
        roles.create_database(self.addresses.postgres.superuser_url, name, template)
        return self.addresses.postgres.for_database(name)

    def drop_database(self, name: str) -> None:
        roles.drop_database(self.addresses.postgres.superuser_url, name)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _server(self, name: ServerName) -> PostgresServer | ValkeyServer:
        return self._now.postgres if name == "postgres" else self._now.valkey

    @property
    def _now(self) -> "_Running":
        if self._running is None:
            raise RuntimeError("the local servers are not started")
        return self._running


@dataclass(frozen=True, slots=True)
class _Running:
    place: Place
    lock: Lock
    supervisor: Supervisor
    postgres: PostgresServer
    valkey: ValkeyServer
    addresses: Addresses
    recovered: list[str]
    pid: int


def _close(place: Place, lock: Lock, supervisor: Supervisor, *, remove: bool) -> None:
    try:
        supervisor.stop_all()
    finally:
        if remove:
            shutil.rmtree(place.folder, ignore_errors=True)
        lock.release()
