"""The sandbox provider as a subprocess for tests: started on a free port, judged by its books, always ended.

Only the standard library; no Django and no client of the provider, so that any kind of test can use it.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ACCOUNT = "sk_test_acme"
"""The account that is seeded where a test names no other."""
READY = "sandbox ready on "
START_SECONDS = 20.0


class SandboxError(Exception):
    """The sandbox did not start, or refused a request to `/_sandbox/`; the message is its own."""


class Sandbox:
    """A running sandbox. `kill` and `start` keep the port and the books."""

    def __init__(self, folder: Path, port: int | None = None) -> None:
        self.store = folder / "books.sqlite3"
        self.errors = folder / "stderr.txt"
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        """The process id, while it runs."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it and wait for its ready line. Raises SandboxError with what it printed."""
        assert self._process is None, "already running"
        arguments = ["--port", str(self.port), "--store", str(self.store)]
        with self.errors.open("a") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "ledger.providers.sandbox", *arguments],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._process = process
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], START_SECONDS)
        line = process.stdout.readline() if readable else ""
        if not line.startswith(READY):
            self.kill()
            raise SandboxError(f"no ready line but {line!r}; stderr: {self.errors.read_text()}")

    def kill(self) -> None:
        """End it as a crash does (SIGKILL) and wait for its end."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """End it politely (SIGTERM); returns its exit status."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        try:
            return process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            if process.stdout is not None:
                process.stdout.close()

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """One `/_sandbox/` request; SandboxError with the message where it is refused."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/_sandbox/{path}", data=data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                raise SandboxError(json.load(error)["error"]["message"]) from error

    def books(self, account: str | None = None) -> dict[str, Any]:
        """`{payments, calls, pending, now}`, of one account (its secret key) or of all."""
        found: dict[str, Any] = self.ask("GET", "books" + (f"?account={account}" if account else ""))
        return found

    def payment(self, id: str) -> dict[str, Any]:  # noqa: A002
        """One payment of the books: `{id, amount, currency, refunded, disputed, refunds, …}`."""
        return next(payment for payment in self.books()["payments"] if payment["id"] == id)

    def calls(self, operation: str) -> int:
        """How often `refund.create`, `refund.list`, … arrived."""
        count: int = self.books()["calls"].get(operation, 0)
        return count

    def seed(self, *payments: Mapping[str, Any], account: str = ACCOUNT) -> list[str]:
        """Payments that have arrived; returns their ids. Without any, one of 100,000 minor units in usd."""
        wanted = payments or ({},)
        body = {
            "account": account,
            "payments": [{"amount": 100_000, "currency": "usd", **one} for one in wanted],
        }
        return [one["id"] for one in self.ask("POST", "seed", body)["payments"]]

    def faults(self, faults: Sequence[Mapping[str, Any]]) -> None:
        """Arm faults, in order; an empty list disarms all."""
        self.ask("POST", "faults", list(faults))

    def fault(self, on: str, fault: str, **more: Any) -> None:
        """Arm one fault, e.g. `fault("refund.create", "slow", seconds=2)`."""
        self.faults([{"on": on, "fault": fault, **more}])

    def advance(self, seconds: float) -> None:
        """Move the provider's clock forward."""
        self.ask("POST", "clock", {"advance": seconds})

    def dispute(self, payment: str) -> None:
        """The payer disputes a payment."""
        self.ask("POST", "dispute", {"payment": payment})

    def reset(self) -> None:
        """Empty the books, disarm all faults, set the clock right."""
        self.ask("POST", "reset", {})


@contextmanager
def sandbox(folder: Path | None = None, port: int | None = None) -> Iterator[Sandbox]:
    """A sandbox for the length of a `with`; its books lie in `folder`, else in one that is removed after."""
    with tempfile.TemporaryDirectory(prefix="sandbox-") as temporary:
        running = Sandbox(folder or Path(temporary), port)
        running.start()
        try:
            yield running
        finally:
            running.kill()


def free_port() -> int:
    """A port below the range that outgoing connections take, so that a restart finds it free again."""
    start = 20_000 + os.getpid() % 5_000
    for port in range(start, start + 5_000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise SandboxError("no free port")


def wait_until(ask: Any, seconds: float = 10.0, what: str = "it") -> Any:
    """Ask until the answer is true, and return it; AssertionError with the last answer when time is up."""
    until = time.monotonic() + seconds
    while not (found := ask()):
        assert time.monotonic() < until, f"{what} did not happen within {seconds} s: {found!r}"
        time.sleep(0.01)
    return found
