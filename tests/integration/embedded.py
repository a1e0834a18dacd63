"""Checkouts, and starters that are processes of their own, for the tests of the private servers.

Fixtures are imported by name where they are used. Nothing here asserts anything.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from approvals.embedded import paths, roles
from approvals.embedded.records import birth

STARTER = Path(__file__).with_name("starter.py")

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run the servers as another user")


@pytest.fixture(name="open_folder")
def make_open_folder() -> Iterator[Path]:
    """A folder everybody may enter; pytest's own tmp_path is closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="embedded-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(name="elsewhere")
def make_elsewhere(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for /var/lib/second-key."""
    folder = open_folder / "var-lib"
    monkeypatch.setattr(paths, "ELSEWHERE", folder)
    return folder


@pytest.fixture(name="checkout")
def make_checkout(open_folder: Path, elsewhere: Path) -> Path:
    folder = open_folder / "project"
    folder.mkdir()
    return folder


@pytest.fixture(name="closed_checkout")
def make_closed_checkout(open_folder: Path, elsewhere: Path) -> Path:
    """A checkout the account of the servers cannot enter: its parent is 0700, as a home folder often is."""
    folder = open_folder / "home" / "project"
    folder.mkdir(parents=True)
    folder.parent.chmod(0o700)
    return folder


class Starter:
    """The starter as a process of its own."""

    def __init__(self, checkout: Path, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(STARTER), str(checkout), str(paths.ELSEWHERE), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        self.report: dict[str, Any] = {} if self.line.startswith("error") else json.loads(self.line or "{}")
        self.births = {pid: birth(pid) for pid in self.report.get("pids", [])}

    def end(self, signum: int) -> int:
        """Send it the signal, unless it has ended; its exit status."""
        self.process.send_signal(signum)
        code = self.process.wait(20)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def alive(self) -> list[int]:
        return [pid for pid, born in self.births.items() if birth(pid) == born]


type Start = Callable[..., Starter]


@pytest.fixture(name="start")
def make_start() -> Iterator[Start]:
    starters: list[Starter] = []

    def started(checkout: Path, *options: str) -> Starter:
        starters.append(Starter(checkout, *options))
        return starters[-1]

    yield started
    for starter in starters:
        starter.end(signal.SIGKILL)
        for pid in starter.alive():
            os.kill(pid, signal.SIGKILL)


def write_row(url: str) -> None:
    with roles.connect(url) as connection:
        connection.execute("CREATE TABLE kept (value int)")
        connection.execute("INSERT INTO kept VALUES (42)")


def read_row(url: str) -> object:
    with roles.connect(url) as connection:
        row = connection.execute("SELECT value FROM kept").fetchone()
    return row[0] if row else None


def server_processes(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if str(folder) in " ".join(process.cmdline()) or Path(process.cwd()).is_relative_to(folder):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found
