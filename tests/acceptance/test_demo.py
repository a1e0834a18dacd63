"""`manage.py demo` as a newcomer meets it: in a checkout of its own, started, killed, started again, stopped."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from approvals.demo.browser import AgentProgram, Person
from approvals.embedded import ports
from tests.live import refund_body
from tests.sandbox_process import wait_until

pytestmark = pytest.mark.timeout(300)
ROOT = Path(__file__).resolve().parent.parent.parent
PARTS = ("approvals", "ledger", "templates", "static", "manage.py")


class Demo:
    """One run of the command."""

    def __init__(self, checkout: Path, port: int, sandbox_port: int) -> None:
        self.checkout, self.port = checkout, port
        self.log = checkout / "demo-output.txt"
        drop = ("DATABASE_URL", "DATABASE_OWNER_URL", "REDIS_URL", "SECRET_KEY", "SECOND_KEY_ENCRYPTION_KEYS")
        env = {name: value for name, value in os.environ.items() if name not in (*drop, "BASE_URL")}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "manage.py",
                    "demo",
                    "--port",
                    str(port),
                    "--sandbox-port",
                    str(sandbox_port),
                ],
                cwd=checkout,
                env=env,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def way_in(self) -> dict[str, Any]:
        """What `.local/demo.json` says once it is ready."""
        path = self.checkout / ".local" / "demo.json"

        def ready() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return path.exists()

        wait_until(ready, seconds=90, what="the demo")
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def left(self) -> list[str]:
        """Processes that were started from the checkout and still run."""
        found = []
        for process in psutil.process_iter(["pid", "cmdline", "cwd"]):
            words = " ".join(process.info["cmdline"] or [])
            if str(self.checkout) in words or (process.info["cwd"] or "").startswith(str(self.checkout)):
                found.append(f"{process.pid} {words[:120]}")
        return found


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "checkout"
    folder.mkdir()
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / part)
    yield folder
    real = (folder / ".local").resolve()
    if real.is_relative_to("/var/lib/second-key"):
        shutil.rmtree(real, ignore_errors=True)


def test_the_demo_starts_survives_a_kill_and_stops(checkout: Path) -> None:
    port, sandbox_port = ports.free_port(), ports.free_port()
    first = Demo(checkout, port, sandbox_port)
    try:
        way_in = first.way_in()
        said = first.log.read_text()
        assert "The books show each refund once." in said
        assert "What exactly was authorized" in said
        assert {len(way_in["payments"][slug]) >= 8 for slug in ("acme", "globex")} == {True}
        books = httpx.get(way_in["sandbox_url"] + "/_sandbox/books", timeout=10).json()
        assert [
            [refund["amount"] for refund in one["refunds"]] for one in books["payments"] if one["refunds"]
        ] == [[4_900], [4_900]], "each of the two walks moved the books once"
        acme = way_in["tenants"]["acme"]
        with AgentProgram(way_in["base_url"], acme["agents"]["support-bot"]) as agent:
            answer = agent.submit(refund_body(way_in["payments"]["acme"][0]), key="demo-test-key")
        assert answer.status_code == 201, answer.text
        assert oct((checkout / ".local" / "demo.json").stat().st_mode)[-3:] == "600"

        second = Demo(checkout, ports.free_port(), ports.free_port())
        second.process.wait(60)
        assert second.process.returncode != 0
        assert f"already running as pid {first.process.pid}" in second.log.read_text()
    finally:
        first.process.kill()
        first.process.wait(10)
    (checkout / ".local" / "demo.json").unlink()

    again = Demo(checkout, port, sandbox_port)
    try:
        found = again.way_in()
        assert found["tenants"] == way_in["tenants"], "passwords and tokens are kept"
        assert found["payments"] == way_in["payments"]
        with Person(found["base_url"]) as rana:
            rana.sign_in("rana", acme["reviewers"]["rana"])
            assert rana.decide(answer.json()["id"], "approve").status_code == 303
        with AgentProgram(found["base_url"], acme["agents"]["support-bot"]) as agent:
            assert agent.until_final(answer.json()["id"])["execution"]["status"] == "succeeded"
        assert httpx.get(found["base_url"] + "/readyz", timeout=10).status_code == 200
        again.process.send_signal(signal.SIGTERM)
        again.process.wait(30)
        assert again.process.returncode == 0, again.log.read_text()
        wait_until(lambda: not again.left(), seconds=5, what="everything to have ended")
    finally:
        if again.process.poll() is None:
            again.process.kill()
            again.process.wait(10)


def test_a_taken_port_is_named(checkout: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        run = Demo(checkout, port, ports.free_port())
        run.process.wait(60)
    assert run.process.returncode != 0
    assert f"Port {port}" in run.log.read_text()
    assert "--port" in run.log.read_text()
    assert "Traceback" not in run.log.read_text()
    wait_until(lambda: not run.left(), seconds=5, what="the servers to have ended")
