"""One private Valkey server, the broker of the local run.

It keeps nothing on disk, on purpose: PostgreSQL is the truth and the broker only makes it quick, so losing
every message at a restart is the ordinary case and not a fault.
"""

import signal
import socket
from pathlib import Path

from approvals.embedded.binaries import Binaries
from approvals.embedded.errors import EmbeddedError
from approvals.embedded.keys import Keys
from approvals.embedded.paths import Place
from approvals.embedded.ports import LOOPBACK, free_port
from approvals.embedded.processes import Child, ChildEndedError, Program, Supervisor

START_SECONDS = 15.0
RETRIES = 5


class ValkeyServer:
    def __init__(self, place: Place, programs: Binaries, keys: Keys, supervisor: Supervisor) -> None:
        self._place = place
        self._programs = programs
        self._keys = keys
        self._supervisor = supervisor
        self._child: Child | None = None

    def start(self, port: int | None = None) -> str:
        """Start on `port`, or on a free one, and wait until it answers; returns the URL of database 0."""
        self._place.make_folder(self._place.valkey)
        for attempt in range(1, RETRIES + 1):
            try:
                return self._start_on(port or free_port())
            except ChildEndedError as error:
                if "Address already in use" not in error.message or attempt == RETRIES:
                    raise EmbeddedError(f"The local Valkey does not start.\n{error.message}") from error
        raise AssertionError("unreachable")

    @property
    def child(self) -> Child:
        """The running server. RuntimeError where it was not started."""
        if self._child is None:
            raise RuntimeError("Valkey is not started")
        return self._child

    def stop(self) -> None:
        if self._child is not None:
            self._supervisor.stop(self._child)
            self._child = None

    def _start_on(self, port: int) -> str:
        password = self._keys.broker_password
        child = self._supervisor.start(
            Program(
                name="valkey",
                # The configuration comes on standard input: an argument would show the password to everybody.
                argv=(str(self._programs.valkey), "-"),
                env={"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"},
                cwd=Path("/"),
                account=self._place.account,
                stdin=_configuration(self._place.valkey, port, password).encode(),
                stops=((signal.SIGTERM, 4.0),),
                death_signal=signal.SIGTERM,
            )
        )
        self._child = child
        try:
            child.wait_until(lambda: _answers(port, password), seconds=START_SECONDS)
        except EmbeddedError:
            self.stop()
            raise
        return f"redis://:{password}@{LOOPBACK}:{port}/0"


def _configuration(folder: Path, port: int, password: str) -> str:
    escaped = str(folder).replace("\\", "\\\\").replace('"', '\\"')
    return "\n".join(
        [
            f"bind {LOOPBACK}",
            f"port {port}",
            f"requirepass {password}",
            f'dir "{escaped}"',
            "daemonize no",
            'save ""',
            "appendonly no",
            # A full broker must refuse a message (the outbox keeps the step) and never drop another's.
            "maxmemory 256mb",
            "maxmemory-policy noeviction",
            "",
        ]
    )


def _answers(port: int, password: str) -> bool:
    with socket.create_connection((LOOPBACK, port), timeout=1) as connection:
        connection.sendall(f"AUTH {password}\r\nPING\r\n".encode())
        return connection.recv(64).startswith(b"+OK")
