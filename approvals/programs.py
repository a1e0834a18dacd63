"""The processes that make up a running Second Key, as command lines: web, worker, beat, and the sandbox provider.

For the demo and the tests; an installation starts the same lines with its own supervisor.
"""

import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from approvals.embedded.processes import Program

ROOT = Path(__file__).resolve().parent.parent
HOST = "127.0.0.1"


def manage(env: Mapping[str, str], *words: str, name: str = "") -> Program:
    """A management command, run to its end."""
    return Program(name=name or words[0], argv=(sys.executable, "manage.py", *words), env=env, cwd=ROOT)


def web(env: Mapping[str, str], *, port: int, name: str = "web") -> Program:
    """The web process."""
    argv = ("uvicorn", "approvals.asgi:application", "--host", HOST, "--port", str(port), "--no-access-log")
    tail = ("--log-level", "warning", "--timeout-graceful-shutdown", "2", "--no-server-header")
    return Program(name=name, argv=(sys.executable, "-m", *argv, *tail), env=env, cwd=ROOT)


def worker(
    env: Mapping[str, str], *, name: str = "worker", module: str = "celery", concurrency: int = 8
) -> Program:
    """A Celery worker on threads: a step waits for a provider most of its time."""
    argv = ("-A", "approvals.celery", "worker", "--pool=threads", f"--concurrency={concurrency}")
    tail = (
        "-Q",
        "steps,sweeps",
        "-n",
        f"{name}@%h",
        "--without-gossip",
        "--without-mingle",
        "--without-heartbeat",
    )
    return Program(
        name=name,
        argv=(sys.executable, "-m", module, *argv, *tail, "--loglevel", "WARNING"),
        env=env,
        cwd=ROOT,
        stops=((signal.SIGTERM, 4.0), (signal.SIGQUIT, 2.0)),
    )


def beat(env: Mapping[str, str], *, name: str = "beat") -> Program:
    """The clock of the sweeps. Two of them do no harm."""
    argv = ("-A", "approvals.celery", "beat", "--pidfile=", "--loglevel", "WARNING")
    return Program(name=name, argv=(sys.executable, "-m", "celery", *argv), env=env, cwd=ROOT)


def sandbox(env: Mapping[str, str], *, port: int, store: Path, name: str = "sandbox") -> Program:
    """The sandbox provider with its own books."""
    argv = ("-m", "ledger.providers.sandbox", "--host", HOST, "--port", str(port), "--store", str(store))
    return Program(name=name, argv=(sys.executable, *argv), env=env, cwd=ROOT)
