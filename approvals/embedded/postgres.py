"""One private PostgreSQL server: made, started and stopped with the server's own programs.

It listens on 127.0.0.1 alone, on a port chosen at each start. It never repairs or removes data: what it
cannot start from it names, and leaves to a person.
"""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import psutil
import psycopg

from approvals.embedded import binaries, records, roles
from approvals.embedded.binaries import Binaries
from approvals.embedded.errors import EmbeddedError
from approvals.embedded.keys import Keys
from approvals.embedded.paths import Place
from approvals.embedded.ports import LOOPBACK, free_port
from approvals.embedded.processes import Child, ChildEndedError, Program, Supervisor
from approvals.embedded.roles import PostgresUrls

SUPERUSER = "postgres"

# Nothing of the starter's environment reaches the server: no secrets, no PG… variables.
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}

SETTINGS = {
    "listen_addresses": LOOPBACK,
    # A socket's path may have 107 bytes only; a checkout can lie deeper than that.
    "unix_socket_directories": "",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "max_wal_size": "512MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "password_encryption": "scram-sha-256",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
    "logging_collector": "off",
    "jit": "off",
}
# For tests, whose data need not outlive the machine: nothing is forced to the disk. Commits stay synchronous,
# which costs nothing without fsync: a test may kill the server, and what was committed must be there then.
NOT_DURABLE = {"fsync": "off", "full_page_writes": "off"}

# SIGINT is the fast shutdown (sessions ended, checkpoint), SIGQUIT the immediate one (recovery follows).
STOPS = ((signal.SIGINT, 5.0), (signal.SIGQUIT, 2.0))

START_SECONDS = 60.0  # recovery after a crash is included
RETRIES = 5


class PostgresServer:
    def __init__(
        self, place: Place, programs: Binaries, keys: Keys, supervisor: Supervisor, *, durable: bool
    ) -> None:
        self._place = place
        self._programs = programs
        self._keys = keys
        self._supervisor = supervisor
        self._durable = durable
        self._child: Child | None = None

    def start(self, port: int | None = None) -> PostgresUrls:
        """Make the data folder at the first call, start the server, and wait until the roles stand.

        `port` is for coming back where clients already look; without it a free one is chosen. Call it under
        the lock of the place, after the leftovers were ended. EmbeddedError with the end of the log if it
        cannot start.
        """
        data = self._place.postgres
        major = binaries.postgres_major(self._programs, self._place.account)
        if data.exists():
            self._check(data, major)
        else:
            self._initialize(data)
        _end_former(data)
        urls = self._start_somewhere(data, port)
        try:
            roles.prepare(
                urls.superuser_url,
                owner_password=self._keys.owner_password,
                app_password=self._keys.app_password,
            )
        except psycopg.Error as error:
            raise EmbeddedError(f"The roles of the local PostgreSQL cannot be made: {error}") from error
        return urls.for_database(roles.DATABASE)

    @property
    def child(self) -> Child:
        """The running server. RuntimeError where it was not started."""
        if self._child is None:
            raise RuntimeError("PostgreSQL is not started")
        return self._child

    def stop(self) -> None:
        if self._child is not None:
            self._supervisor.stop(self._child)
            self._child = None

    def _check(self, data: Path, major: str) -> None:
        account = self._place.account
        expected = os.geteuid() if account is None else account.uid
        advice = f"Nothing was changed. Move {data} away to begin with empty data."
        if not data.is_dir() or data.stat().st_uid != expected:
            name = account.name if account else "this user"
            raise EmbeddedError(
                f"{data} is not a data folder of user '{name}', as whom PostgreSQL would run. {advice}"
            )
        try:
            found = (data / "PG_VERSION").read_text(errors="replace").strip()
        except OSError as error:
            raise EmbeddedError(
                f"{data} is not a whole PostgreSQL data folder ({error}). {advice}"
            ) from error
        if found != major:
            raise EmbeddedError(
                f"{data} was made by PostgreSQL {found[:20]!r}, and the installed one is {major}. {advice} "
                "To keep the data, dump it with the version that made it."
            )

    def _initialize(self, data: Path) -> None:
        """initdb into a folder beside, renamed when whole: a folder named `postgres` is always complete."""
        half = data.with_name("postgres.half")
        shutil.rmtree(half, ignore_errors=True)
        self._place.make_folder(half)
        password = half.with_name("postgres.password")
        password.unlink(missing_ok=True)
        account = self._place.account
        descriptor = os.open(password, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(self._keys.superuser_password + "\n")
            if account is not None:
                # For the length of this call; initdb reads it as the server's own account.
                os.chown(password, account.uid, account.gid)
            done = subprocess.run(  # noqa: S603
                self._initdb(half, password),
                cwd="/",
                env=ENVIRONMENT,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=120,
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=[] if account else None,
            )
        except subprocess.TimeoutExpired as error:
            raise EmbeddedError(
                f"initdb did not end within {error.timeout:g} s. Is the disk full or very slow?"
            ) from error
        finally:
            password.unlink()
        if done.returncode != 0:
            raise EmbeddedError(
                f"initdb failed (exit status {done.returncode}):\n{done.stdout}{done.stderr}".rstrip()
            )
        half.rename(data)

    def _initdb(self, folder: Path, password: Path) -> list[str]:
        command = [
            str(self._programs.initdb),
            f"--pgdata={folder}",
            f"--username={SUPERUSER}",
            f"--pwfile={password}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            # PostgreSQL's own: the same order and case rules on every machine.
            "--locale=C",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--no-instructions",
        ]
        return command if self._durable else [*command, "--no-sync"]

    def _start_somewhere(self, data: Path, port: int | None) -> PostgresUrls:
        """Start on `port`, or on a free one.

        Again on another one if somebody took it in between, and again after a moment if orphans of a
        killed server, which end by themselves, still hold its shared memory.
        """
        for attempt in range(1, RETRIES + 1):
            try:
                return self._start_on(data, port or free_port())
            except ChildEndedError as error:
                text = error.message
                passing = "pre-existing shared memory block" in text or "Address already in use" in text
                if not passing or attempt == RETRIES:
                    raise EmbeddedError(
                        f"The local PostgreSQL does not start from {data}. Nothing was changed there; move "
                        f"it away to begin with empty data.\n{text}"
                    ) from error
                time.sleep(0.5 * attempt)
        raise AssertionError("unreachable")

    def _start_on(self, data: Path, port: int) -> PostgresUrls:
        settings = {**SETTINGS, "port": str(port), **({} if self._durable else NOT_DURABLE)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        child = self._supervisor.start(
            Program(
                name="postgres",
                argv=(str(self._programs.postgres_server), "-D", str(data), *options),
                env=ENVIRONMENT,
                cwd=Path("/"),
                account=self._place.account,
                stops=STOPS,
                death_signal=signal.SIGINT,
            )
        )
        self._child = child
        urls = PostgresUrls(
            owner_url=_url(roles.OWNER, self._keys.owner_password, port),
            app_url=_url(roles.APP, self._keys.app_password, port),
            superuser_url=_url(SUPERUSER, self._keys.superuser_password, port),
        )
        try:
            child.wait_until(lambda: _answers(urls.superuser_url), seconds=START_SECONDS)
        except EmbeddedError:
            self.stop()
            raise
        return urls


def _url(role: str, password: str, port: int) -> str:
    return f"postgresql://{role}:{password}@{LOOPBACK}:{port}/postgres"


def _answers(url: str) -> bool:
    try:
        with roles.connect(url, seconds=2) as connection:
            connection.execute("SELECT 1")
    except psycopg.OperationalError as error:
        if "password authentication failed" in str(error):
            raise EmbeddedError(
                "The local PostgreSQL does not accept our password: keys.json and the data folder beside it "
                "do not belong together. Put the right keys.json back, or move both away to begin anew."
            ) from error
        return False
    return True


def _end_former(data: Path) -> None:
    """Make way for a new server: end a former one still running on this folder, drop a stale lock file.

    PostgreSQL refuses to start when the number in postmaster.pid is in use, even by a stranger after a
    restart of the machine. Where its process works in this folder, it is a server of ours without a starter.
    """
    lock = data / "postmaster.pid"
    try:
        pid = int(lock.read_text().splitlines()[0])
        former = psutil.Process(pid)
        ours = Path(former.cwd()).resolve() == data.resolve()
        born = records.birth(pid)
    except (OSError, ValueError, IndexError, psutil.Error):
        ours, pid, born = False, 0, None
    if ours and born is not None:
        for signum, seconds in (*STOPS, (signal.SIGKILL, 5.0)):
            if records.birth(pid) != born:
                break
            records.send(pid, signum)
            records.wait_for(lambda: records.birth(pid) != born, seconds)
    lock.unlink(missing_ok=True)
