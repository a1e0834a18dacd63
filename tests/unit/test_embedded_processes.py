"""Starting, watching and stopping processes; no server is needed."""

import io
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from approvals.embedded import records
from approvals.embedded.errors import EmbeddedError
from approvals.embedded.processes import Child, ChildEndedError, Program, Supervisor
from approvals.embedded.records import birth, wait_for
from approvals.embedded.signals import StopRequested, stop_on_signals, undisturbed

# Prints the number of a child it starts in its own group, then waits.
FAMILY = "sleep 600 & echo child $!; wait"
DEAF_FAMILY = f"trap '' TERM; {FAMILY}"


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    made = Supervisor(run=tmp_path / "run", logs=tmp_path / "log")
    yield made
    made.stop_all()


def shell(script: str, name: str = "family", *, seconds: float = 5.0, echo: bool = False) -> Program:
    return Program(
        name=name,
        argv=("/bin/sh", "-c", script),
        env={"PATH": "/usr/bin:/bin"},
        cwd=Path("/"),
        stops=((signal.SIGTERM, seconds),),
        echo=echo,
    )


def grandchild(child: Child) -> int:
    child.wait_until(lambda: "child" in child.tail(), seconds=10)
    return int(child.tail().split()[-1])


def gone(pid: int) -> bool:
    return wait_for(lambda: birth(pid) is None, 10)


def test_stopping_ends_the_whole_group_and_its_note(supervisor: Supervisor, tmp_path: Path) -> None:
    child = supervisor.start(shell(FAMILY))
    below = grandchild(child)
    assert [record.pid for record in records.read_all(tmp_path / "run")] == [child.pid]
    assert os.getsid(child.pid) == child.pid != os.getsid(0)
    supervisor.stop(child)
    assert gone(child.pid)
    assert gone(below)
    assert records.read_all(tmp_path / "run") == []


def test_who_ignores_the_polite_signal_is_killed_in_bounded_time(supervisor: Supervisor) -> None:
    children = [supervisor.start(shell(DEAF_FAMILY, name, seconds=0.5)) for name in ("one", "two", "three")]
    below = [grandchild(child) for child in children]
    began = time.monotonic()
    supervisor.stop_all()
    assert time.monotonic() - began < 1.5  # together, not one after the other
    assert all(gone(pid) for pid in below)


def test_kill_and_restart(supervisor: Supervisor) -> None:
    first = supervisor.start(shell(FAMILY))
    below = grandchild(first)
    supervisor.kill(first)
    assert gone(below)
    second = supervisor.restart(first)
    assert second.pid != first.pid
    assert grandchild(second) != below
    third = supervisor.restart(second)  # while it runs: stopped first
    assert birth(second.pid) is None
    assert birth(third.pid) is not None


def test_a_child_that_ends_by_itself_is_reported_with_the_end_of_its_log(supervisor: Supervisor) -> None:
    supervisor.start(shell("echo first; echo the reason >&2; exit 3", "worker"))
    with pytest.raises(ChildEndedError, match=r"worker ended by itself \(exit status 3\)[\s\S]*the reason"):
        supervisor.watch(io.StringIO(), every=0.01)
    supervisor.check()  # reported once
    killed = supervisor.start(shell("exec sleep 600", "web"))
    os.kill(killed.pid, signal.SIGKILL)
    with pytest.raises(ChildEndedError, match=r"web ended by itself \(signal SIGKILL\)"):
        killed.wait_until(lambda: False, seconds=10)


def test_the_rest_of_a_group_whose_leader_ended_does_not_outlive_it(supervisor: Supervisor) -> None:
    child = supervisor.start(shell("sleep 600 & echo child $!"))
    below = grandchild_of_ended(child)
    with pytest.raises(ChildEndedError):
        supervisor.watch(io.StringIO(), every=0.01)
    assert gone(below)


def grandchild_of_ended(child: Child) -> int:
    assert wait_for(child.exited, 10)
    return int(child.tail().split()[-1])


def test_waiting_in_vain_ends_with_the_log(supervisor: Supervisor) -> None:
    child = supervisor.start(shell("echo still thinking; exec sleep 600"))

    def not_yet() -> bool:
        raise ConnectionRefusedError

    with pytest.raises(EmbeddedError, match=r"family was not ready within 0\.3 s[\s\S]*still thinking"):
        child.wait_until(not_yet, seconds=0.3)


def test_lines_are_forwarded_whole_with_the_name_before_them(supervisor: Supervisor) -> None:
    child = supervisor.start(shell("echo one; printf 'two\\nhal'; exec sleep 600", "web", echo=True))
    supervisor.start(shell("echo silent", "quiet"))
    child.wait_until(lambda: "hal" in child.tail(), seconds=10)
    sink = io.StringIO()
    supervisor.forward(sink)
    supervisor.forward(sink)
    assert sink.getvalue() == "web      | one\nweb      | two\n"


def test_the_log_is_private_and_a_long_one_is_moved_aside(supervisor: Supervisor, tmp_path: Path) -> None:
    log = tmp_path / "log" / "family.log"
    supervisor.stop(supervisor.start(shell("echo before")))
    assert log.stat().st_mode & 0o777 == 0o600
    log.write_bytes(b"x" * (4 * 1024 * 1024 + 1))
    child = supervisor.start(shell("echo after; exec sleep 600"))
    child.wait_until(lambda: "after" in child.tail(), seconds=10)
    assert log.read_text() == "after\n"
    assert log.with_suffix(".log.1").exists()


def test_the_environment_is_exactly_what_was_given(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_STARTER", "x")
    child = supervisor.start(shell("exec sleep 600"))
    seen = psutil.Process(child.pid).environ()
    assert seen.pop(records.MARKER)
    assert seen.keys() - {"PWD", "OLDPWD", "SHLVL", "_"} == {"PATH"}


def test_it_can_be_started_while_other_threads_run(supervisor: Supervisor) -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        supervisor.stop(supervisor.start(shell(FAMILY)))
    finally:
        done.set()
        thread.join()


def test_what_cannot_be_started_is_named(supervisor: Supervisor) -> None:
    with pytest.raises(EmbeddedError, match="family cannot be started"):
        supervisor.start(replace(shell(""), argv=("/nonexistent/program",)))
    supervisor.start(shell(FAMILY))
    with pytest.raises(EmbeddedError, match="already running"):
        supervisor.start(shell(FAMILY))


def test_a_reused_number_is_never_ended(supervisor: Supervisor, tmp_path: Path) -> None:
    stranger = supervisor.start(shell(FAMILY))
    below = grandchild(stranger)
    (note,) = records.read_all(tmp_path / "run")
    other = tmp_path / "other"
    other.mkdir()
    forged = replace(note, birth="long ago", marker="another", folder=str(other))
    records.write(other, forged)
    assert records.end_leftovers(other) == []
    assert birth(stranger.pid) is not None
    assert birth(below) is not None
    assert records.read_all(other) == []


def test_notes_copied_with_a_checkout_end_nothing(supervisor: Supervisor, tmp_path: Path) -> None:
    child = supervisor.start(shell(FAMILY))
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "family.json").write_bytes((tmp_path / "run" / "family.json").read_bytes())
    assert records.end_leftovers(copy) == []
    assert birth(child.pid) is not None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}', json.dumps({"name": "x"})])
def test_a_damaged_note_is_no_note(tmp_path: Path, content: str) -> None:
    (tmp_path / "x.json").write_text(content)
    assert records.end_leftovers(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_members_of_a_group_whose_leader_is_gone_are_found(supervisor: Supervisor, tmp_path: Path) -> None:
    child = supervisor.start(shell(FAMILY))
    below = grandchild(child)
    os.kill(child.pid, signal.SIGKILL)
    assert wait_for(child.exited, 10)
    assert birth(below) is not None
    assert records.end_leftovers(tmp_path / "run") == []
    assert gone(below)


def test_a_zombie_counts_as_gone() -> None:
    pid = os.posix_spawn("/bin/true", ["/bin/true"], {})
    try:
        assert wait_for(lambda: birth(pid) is None, 10)
    finally:
        os.waitpid(pid, 0)
    assert birth(os.getpid()) is not None


def interrupted_twice() -> None:
    with stop_on_signals():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            pytest.fail("the signal did not arrive")
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)


def test_the_first_signal_stops_and_later_ones_change_nothing() -> None:
    before = signal.getsignal(
        signal.SIGINT
    )  # ignored, where a shell has put the whole run into the background
    with pytest.raises(StopRequested) as caught:
        interrupted_twice()
    assert caught.value.signum == signal.SIGTERM
    assert signal.getsignal(signal.SIGINT) is before


def interrupted_while_undisturbed(reached: list[str]) -> None:
    with stop_on_signals():
        with undisturbed():
            os.kill(os.getpid(), signal.SIGINT)
            reached.append("the end of the block")
        reached.append("what follows")


def test_a_signal_waits_for_the_end_of_what_must_not_be_disturbed() -> None:
    reached: list[str] = []
    with pytest.raises(StopRequested):
        interrupted_while_undisturbed(reached)
    assert reached == ["the end of the block"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs PR_SET_PDEATHSIG")
def test_a_child_ends_with_its_starter(tmp_path: Path) -> None:
    starter = os.fork()
    if starter == 0:
        Supervisor(run=tmp_path / "run", logs=tmp_path / "log").start(shell("exec sleep 600"))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(starter, 0)
    (note,) = records.read_all(tmp_path / "run")
    assert wait_for(lambda: not records.is_alive(note), 10)
