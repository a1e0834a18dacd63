"""Notes about started processes, so that the next start finds what a killed starter left behind.

A process is known by its number *and* the moment it was born: a number alone is reused by the system,
and a stranger's process must never be ended.
"""

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

# Set in the environment of every child and inherited by its children: finds the members of a group
# whose leader is gone.
MARKER = "SECOND_KEY_STARTED_BY"

HAS_PROC = Path("/proc/self/stat").exists()


@dataclass(frozen=True, slots=True)
class Record:
    """`folder` is the run folder it was written in: a copied checkout must not end the original's servers."""

    name: str
    pid: int
    birth: str
    marker: str
    stop_signal: int
    folder: str


def birth(pid: int) -> str | None:
    """When the process was born, comparable for equality only; None if it is gone or a zombie."""
    if HAS_PROC:
        # psutil's time stamp moves when the wall clock is set; ticks since boot do not.
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            return None
        return None if fields[0] in "ZX" else f"{boot}:{fields[19]}"
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else f"{process.create_time():.6f}"
    except psutil.Error:
        return None


def is_alive(record: Record) -> bool:
    return birth(record.pid) == record.birth


def write(run: Path, record: Record) -> None:
    path = run / f"{record.name}.json"
    half = path.with_suffix(".half")
    half.write_text(json.dumps(asdict(record)))
    half.replace(path)


def forget(run: Path, name: str) -> None:
    (run / f"{name}.json").unlink(missing_ok=True)


def read_all(run: Path) -> list[Record]:
    """The notes of this very folder; a half-written or foreign one counts as none."""
    found = []
    for path in sorted(run.glob("*.json")):
        try:
            record = Record(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            continue
        if record.folder == str(run):
            found.append(record)
    return found


def leftovers(run: Path) -> list[Record]:
    """Processes of an earlier run that still live."""
    return [record for record in read_all(run) if is_alive(record)]


def end_leftovers(run: Path, *, seconds: float = 6.0) -> list[str]:
    """End what an earlier run left behind; returns its names. Call it under the lock of the place.

    Each gets its own stop signal first, all at once; who is still there after `seconds` is killed.
    """
    records = read_all(run)
    alive = [record for record in records if is_alive(record)]
    for record in alive:
        send(record.pid, record.stop_signal)
    wait_for(lambda: not any(is_alive(record) for record in alive), seconds)
    for record in alive:
        if is_alive(record):
            send_to_group(record.pid, signal.SIGKILL)
    wait_for(lambda: not any(is_alive(record) for record in alive), 5.0)
    _kill_marked({record.marker for record in records})
    for path in run.glob("*.json"):
        path.unlink(missing_ok=True)
    return [record.name for record in alive]


def send(pid: int, signum: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it ended by itself, which is what was wanted
        os.kill(pid, signum)


def send_to_group(pid: int, signum: int) -> None:
    # Nobody may be left in it; macOS says "not permitted" for a group of zombies.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signum)


def wait_for(condition: Callable[[], bool], seconds: float, *, every: float = 0.02) -> bool:
    """Poll `condition` until it holds or the time is over; whether it held."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(every)
    return True


def _kill_marked(markers: set[str]) -> None:
    for process in _marked(markers):
        try:
            process.kill()
        except psutil.Error:
            continue


def _marked(markers: set[str]) -> Iterator[psutil.Process]:
    if not markers:
        return
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    for process in psutil.process_iter():
        try:
            if process.pid not in own and process.environ().get(MARKER) in markers:
                yield process
        except (psutil.Error, OSError):
            continue
