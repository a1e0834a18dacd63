"""Starting, watching and stopping named child processes.

Every child leads a session of its own, so a Ctrl-C in the terminal reaches only the starter, which then
stops them in order. The starter dying, by SIGKILL too, ends the children on Linux (PR_SET_PDEATHSIG); the
notes in `run/` let the next start end what is left elsewhere. What a child does is not known here.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Self

from approvals.embedded import records
from approvals.embedded.accounts import Account
from approvals.embedded.errors import EmbeddedError
from approvals.embedded.signals import undisturbed

LOG_LIMIT = 4 * 1024 * 1024  # bytes; a longer log is moved to <name>.log.1 when its process starts
PR_SET_PDEATHSIG = 1

# Loaded here, because between fork and exec nothing may be imported.
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What to start. `env` is the whole environment of the child, nothing is inherited.

    `stops` are the polite signals in order, each with the seconds it may take; they go to the process
    itself. SIGKILL to its whole group always follows, for members that stayed behind.
    `death_signal` is what the kernel sends when the starter is gone.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    cwd: Path
    account: Account | None = None
    stdin: bytes = field(default=b"", repr=False)
    stops: tuple[tuple[int, float], ...] = ((signal.SIGTERM, 5.0),)
    death_signal: int = signal.SIGTERM
    echo: bool = False


class Sink(Protocol):
    def write(self, text: str, /) -> object: ...


class ChildEndedError(EmbeddedError):
    """A child ended without being asked to."""


class Child:
    """One started process. Made by Supervisor.start, which alone ends and restarts it."""

    def __init__(self, program: Program, process: subprocess.Popen[bytes], log: Path, log_start: int) -> None:
        self.program = program
        self.log = log
        self._process = process
        self._log_start = log_start
        self._echoed = log_start

    @property
    def name(self) -> str:
        return self.program.name

    @property
    def pid(self) -> int:
        return self._process.pid

    def exited(self) -> bool:
        """Whether it has ended. Asking does not reap it: its number stays ours until its group is ended."""
        if self._process.returncode is not None:
            return True
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            if self._process.poll() is None:
                return False
            records.send_to_group(self.pid, signal.SIGKILL)
            return True
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def tail(self, lines: int = 20) -> str:
        """The last lines this run of it has written."""
        with self.log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, size - 64 * 1024))
            text = log.read().decode(errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def wait_until(self, probe: Callable[[], bool], *, seconds: float, what: str = "ready") -> None:
        """Poll `probe` until it is true. An OSError in it means "not yet".

        EmbeddedError with the end of the log when the child ends first or the time is over.
        """

        def holds() -> bool:
            if self.exited():
                raise ChildEndedError(self.obituary())
            try:
                return probe()
            except OSError:
                return False

        if not records.wait_for(holds, seconds, every=0.05):
            raise EmbeddedError(f"{self.name} was not {what} within {seconds:g} s. {self._log_end()}")

    def obituary(self) -> str:
        """How it ended, with the end of its log. Only for a child that has exited."""
        code = self.reap()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        return f"{self.name} ended by itself ({how}). {self._log_end()}"

    def reap(self) -> int:
        """End what is left of its group, then take its exit status."""
        if self._process.returncode is None:  # once it is reaped, the number may be a stranger's
            records.send_to_group(self.pid, signal.SIGKILL)
        return self._process.wait()

    def forward(self, sink: Sink) -> None:
        """Write the complete lines it has written since the last call, each with its name before it."""
        with self.log.open("rb") as log:
            log.seek(self._echoed)
            fresh, newline, _ = log.read().rpartition(b"\n")
        self._echoed += len(fresh) + len(newline)
        for line in fresh.decode(errors="replace").splitlines():
            sink.write(f"{self.name:<8} | {line}\n")

    def _log_end(self) -> str:
        text = self.tail()
        return f"The end of {self.log}:\n{text}" if text else f"It wrote nothing to {self.log}."


class Supervisor:
    """Starts children and ends them in reverse order. Use it from the main thread only.

    The thread matters: the kernel sends the death signal when the *thread* that started a child ends.
    """

    def __init__(self, *, run: Path, logs: Path) -> None:
        """`run` holds the notes, `logs` one file per process; both are made where they are missing."""
        for folder in (run, logs):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._run = run
        self._logs = logs
        self._marker = uuid.uuid4().hex
        self._children: list[Child] = []

    def start(self, program: Program) -> Child:
        """Start it and note it in `run/`. EmbeddedError where it cannot be run at all."""
        if any(child.name == program.name for child in self._children):
            raise EmbeddedError(f"A process named {program.name} is already running.")
        with undisturbed():
            log = self._logs / f"{program.name}.log"
            process, log_start = self._spawn(program, log)
            child = Child(program, process, log, log_start)
            self._children.append(child)
            born = records.birth(process.pid)
            if born is not None:  # else it has ended already, and whoever waits for it will say so
                note = records.Record(
                    name=program.name,
                    pid=process.pid,
                    birth=born,
                    marker=self._marker,
                    stop_signal=program.stops[0][0],
                    folder=str(self._run),
                )
                records.write(self._run, note)
        _feed(process, program.stdin)
        return child

    def kill(self, child: Child) -> None:
        """SIGKILL its whole group, as a test of crash recovery does. The name is free afterwards."""
        records.send_to_group(child.pid, signal.SIGKILL)
        self._finish(child)

    def stop(self, *children: Child) -> None:
        """Stop these, all at once, last first; bounded by their own `stops`."""
        with undisturbed():
            for step in range(max((len(child.program.stops) for child in children), default=0)):
                _polite_step(step, [child for child in reversed(children) if not child.exited()])
            for child in reversed(children):
                self._finish(child)

    def stop_all(self) -> None:
        self.stop(*self._children)

    def restart(self, child: Child) -> Child:
        """Start the same program again, stopping it first where it still runs."""
        if child in self._children:
            self.stop(child)
        return self.start(child.program)

    def check(self) -> None:
        """ChildEndedError, with the end of its log, if a child has ended without being asked to."""
        for child in self._children:
            if child.exited():
                message = child.obituary()
                self._finish(child)
                raise ChildEndedError(message)

    def forward(self, sink: Sink) -> None:
        """Pass on the new log lines of the children started with `echo`."""
        for child in self._children:
            if child.program.echo:
                child.forward(sink)

    def watch(self, sink: Sink, *, every: float = 0.2) -> None:
        """Forward log lines until a child ends (ChildEndedError) or a stop is asked for (StopRequested)."""
        while True:
            self.forward(sink)
            self.check()
            time.sleep(every)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_all()

    def _finish(self, child: Child) -> None:
        with undisturbed():
            child.reap()
            records.forget(self._run, child.name)
            if child in self._children:
                self._children.remove(child)

    def _spawn(self, program: Program, log: Path) -> tuple[subprocess.Popen[bytes], int]:
        if log.exists() and log.stat().st_size > LOG_LIMIT:
            log.replace(log.with_suffix(".log.1"))
        account = program.account
        # Opened by us and handed over: the account of the child needs no right to the folder.
        with open(log, "ab", opener=_private) as output:
            log_start = output.seek(0, os.SEEK_END)
            try:
                process = subprocess.Popen(  # noqa: S603
                    program.argv,
                    env={**program.env, records.MARKER: self._marker},
                    cwd=program.cwd,
                    stdin=subprocess.PIPE if program.stdin else subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    user=account.uid if account else None,
                    group=account.gid if account else None,
                    extra_groups=[] if account else None,
                    preexec_fn=_die_with_starter(program.death_signal),  # noqa: PLW1509
                )
            except (OSError, subprocess.SubprocessError) as error:
                raise EmbeddedError(f"{program.name} cannot be started: {error}") from error
        return process, log_start


def _polite_step(step: int, children: list[Child]) -> None:
    """Send each its signal number `step` and wait until all have ended or used up their time for it."""
    ends = []
    for child in children:
        if step < len(child.program.stops):
            signum, seconds = child.program.stops[step]
            records.send(child.pid, signum)
            ends.append((child, time.monotonic() + seconds))
    while any(not child.exited() and time.monotonic() < end for child, end in ends):
        time.sleep(0.02)


def _feed(process: subprocess.Popen[bytes], text: bytes) -> None:
    if process.stdin is None:
        return
    try:
        with process.stdin as stdin:
            stdin.write(text)
    except BrokenPipeError:
        pass  # It ended before reading; whoever waits for it reports its log.


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _die_with_starter(signum: int) -> Callable[[], None] | None:
    """What the child does between fork and exec, after CPython has changed the user.

    The order matters: changing the user clears the death signal (prctl(2)), and CPython's child_exec
    calls preexec_fn after setsid, setgroups, setgid and setuid.
    """
    libc = _libc
    if libc is None:
        return None
    starter = os.getpid()

    def ask_kernel() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signum, 0, 0, 0)
        if os.getppid() != starter:
            os._exit(1)  # The starter died before the request: no signal will ever come.

    return ask_kernel
