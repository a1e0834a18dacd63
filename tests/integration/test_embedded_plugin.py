"""The servers of a test run itself: tests/engines.py in a pytest of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from approvals.embedded import roles, stale
from approvals.embedded.records import birth, wait_for

ROOT = Path(__file__).parents[2]

TEST = """
import json, os, pathlib, time
from tests import engines

def test_it():
    wanted = ("DATABASE_URL", "DATABASE_OWNER_URL", "REDIS_URL", "SECRET_KEY", "TEST_SUPERUSER_URL")
    report = {name: os.environ.get(name) for name in wanted}
    half = pathlib.Path(os.environ["REPORT"] + ".half")
    half.write_text(json.dumps(report))
    half.rename(os.environ["REPORT"])
    if "HOLD" in os.environ:
        time.sleep(60)
"""


def interruptible() -> None:
    """Undo what a shell does that has put the whole run into the background: SIGINT is ignored below it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Run:
    """A pytest with the plugin, without Django."""

    def __init__(self, folder: Path, *options: str, **env: str) -> None:
        (folder / "test_it.py").write_text(TEST)
        self.report = folder / "report.json"
        ours = ("TEST_DATABASE", "TEST_SUPERUSER_URL", "DATABASE_URL", "DATABASE_OWNER_URL", "REDIS_URL")
        clean = {name: value for name, value in os.environ.items() if name not in ours}
        options = ("-p", "no:django", "-p", "no:cacheprovider", "-p", "tests.engines", *options)
        command = ["-m", "pytest", "-c", os.devnull, "--rootdir", str(folder), *options]
        self.process = subprocess.Popen(
            [sys.executable, *command, str(folder / "test_it.py")],
            cwd=ROOT,
            env={**clean, "REPORT": str(self.report), **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=interruptible,  # noqa: PLW1509 - one statement, and no thread has begun
        )

    def servers(self) -> dict[int, str | None]:
        children = psutil.Process(self.process.pid).children()
        return {child.pid: birth(child.pid) for child in children}

    def finish(self, signum: int | None = None) -> tuple[int, str]:
        if signum is not None:
            self.process.send_signal(signum)
        output, _ = self.process.communicate(timeout=30)
        return self.process.returncode, output


type StartRun = Callable[..., Run]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartRun]:
    runs: list[Run] = []

    def started(*options: str, **env: str) -> Run:
        runs.append(Run(tmp_path, *options, **env))
        return runs[-1]

    yield started
    for run in runs:
        if run.process.poll() is None:
            run.finish(signal.SIGKILL)


def data_folder(superuser_url: str) -> Path:
    with roles.connect(superuser_url) as connection:
        assert connection.execute("SHOW fsync").fetchone() == ("off",)
        row = connection.execute("SHOW data_directory").fetchone()
    assert row is not None
    return Path(str(row[0]))


def test_a_run_gets_servers_of_its_own_and_removes_them(start: StartRun) -> None:
    run = start(HOLD="1")
    assert wait_for(run.report.exists, 30)
    report, servers = json.loads(run.report.read_text()), run.servers()
    assert len(servers) == 2
    assert report["DATABASE_URL"] != os.environ.get("DATABASE_URL")
    data = data_folder(report["TEST_SUPERUSER_URL"])
    run.finish(signal.SIGINT)
    assert all(birth(pid) != born for pid, born in servers.items())
    assert not data.parent.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="needs PR_SET_PDEATHSIG")
def test_a_killed_run_leaves_no_server(start: StartRun) -> None:
    run = start(HOLD="1")
    assert wait_for(run.report.exists, 30)
    servers = run.servers()
    assert len(servers) == 2
    data = data_folder(json.loads(run.report.read_text())["TEST_SUPERUSER_URL"])
    run.finish(signal.SIGKILL)
    assert wait_for(lambda: all(birth(pid) != born for pid, born in servers.items()), 10)
    # Its data is removed by a later run, once it cannot be one that is just being set up.
    stale.remove_stale_tests(data.parents[1])
    assert data.exists()
    os.utime(data.parent, (time.time() - 3600,) * 2)
    stale.remove_stale_tests(data.parents[1])
    assert not data.parent.exists()


def test_collecting_needs_no_servers(start: StartRun) -> None:
    code, output = start("--collect-only", PATH="/nonexistent").finish()
    assert code == 0, output
    assert "1 test collected" in output


def test_addresses_that_were_given_are_kept(start: StartRun) -> None:
    given = {
        "DATABASE_URL": "postgresql://a",
        "DATABASE_OWNER_URL": "postgresql://b",
        "REDIS_URL": "redis://c",
    }
    run = start(TEST_DATABASE="1", **given)
    code, output = run.finish()
    assert code == 0, output
    report = json.loads(run.report.read_text())
    assert {name: report[name] for name in given} == given
    assert report["TEST_SUPERUSER_URL"] is None
