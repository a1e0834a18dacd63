"""What the transport reports as not sent was not sent and never will be. (R-C2: certainty, not silence.)

Every test looks at what really arrived at the other side, after the abandoned thread has ended.
"""

import socket
import threading
import time

import pytest

from ledger.providers.transport import ConnectFailedError, LeaseExpiredError
from tests.socket_server import Connection, answer, says, scripted
from tests.transport_calls import MARGIN, in_time, join_transport_threads, post, silence


def test_a_refused_connection_is_known_not_to_be_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with in_time(20), pytest.raises(ConnectFailedError):
        post(f"http://127.0.0.1:{port}")


def test_a_name_that_does_not_resolve_is_known_not_to_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(ConnectFailedError):
        post("https://api.example.invalid")


def test_a_resolver_that_hangs_cannot_stretch_the_deadline_nor_send_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolve, asked, go = socket.getaddrinfo, threading.Event(), threading.Event()

    def hang(*args: object, **kwargs: object) -> object:
        asked.set()
        assert go.wait(60)
        return resolve(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    with scripted(silence) as server:
        with in_time(0.3), pytest.raises(ConnectFailedError):
            post(server.base_url, seconds=0.3)
        assert asked.is_set()
        go.set()
        join_transport_threads()
        assert server.requests in ([], [b""])


def test_a_listener_that_does_not_accept_gets_nothing_when_it_accepts_later() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = []
        while True:  # fill the queue until a connection is left hanging
            filler = socket.socket()
            fillers.append(filler)
            filler.settimeout(0.3)
            try:
                filler.connect(listener.getsockname())
            except TimeoutError:
                break
        with in_time(0.4), pytest.raises(ConnectFailedError):
            post(f"http://127.0.0.1:{listener.getsockname()[1]}", seconds=0.4)
        for filler in fillers:
            filler.close()
        join_transport_threads()
        listener.settimeout(2.5)  # longer than the kernel waits before it sends the first SYN again
        received = []
        while True:
            try:
                accepted, _ = listener.accept()
            except TimeoutError:
                break
            with accepted:
                accepted.settimeout(MARGIN)
                received.append(accepted.recv(1024))
        assert not any(received)


def test_without_a_lease_nothing_is_written() -> None:
    with scripted(silence) as server:
        with pytest.raises(LeaseExpiredError):
            post(server.base_url, may_write=lambda: False)
        assert server.arrived.acquire(timeout=MARGIN)
        assert server.connections[0].ended.wait(MARGIN)
        assert server.requests == [b""]


def test_a_lease_that_cannot_be_checked_is_no_lease() -> None:
    def broken() -> bool:
        raise RuntimeError("no clock")

    with scripted(silence) as server:
        with pytest.raises(LeaseExpiredError):
            post(server.base_url, may_write=broken)
        assert server.arrived.acquire(timeout=MARGIN)
        assert server.connections[0].ended.wait(MARGIN)
        assert server.requests == [b""]


def test_the_lease_is_asked_for_after_connecting() -> None:
    with scripted(says(answer(200))) as server:
        connected: list[bool] = []

        def may_write() -> bool:
            connected.append(server.arrived.acquire(timeout=MARGIN))
            return True

        post(server.base_url, may_write=may_write)
        assert connected == [True]


def test_the_lease_is_not_asked_for_without_a_connection() -> None:
    asked: list[bool] = []

    def ask() -> bool:
        asked.append(True)
        return True

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ConnectFailedError):
        post(f"http://127.0.0.1:{port}", may_write=ask)
    assert asked == []


def test_a_thread_that_was_left_behind_never_writes() -> None:
    go = threading.Event()

    def late() -> bool:
        assert go.wait(60)
        return True  # the lease itself would still allow it

    with scripted(silence) as server:
        with in_time(0.3), pytest.raises(ConnectFailedError):  # nothing was sent, and that is certain
            post(server.base_url, seconds=0.3, may_write=late)
        go.set()
        join_transport_threads()
        assert server.connections[0].ended.wait(MARGIN)
        assert server.requests == [b""]


def test_a_process_that_slept_through_the_deadline_does_not_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread may wake up before the caller has set the flag: then the clock alone must hold it back."""
    clock = time.monotonic

    def asleep() -> bool:
        monkeypatch.setattr(time, "monotonic", lambda: clock() + 3600)
        return True

    with scripted(silence) as server:
        with pytest.raises(ConnectFailedError):
            post(server.base_url, may_write=asleep)
        monkeypatch.undo()
        assert server.connections[0].ended.wait(MARGIN)
        assert server.requests == [b""]


def test_a_caller_that_is_interrupted_leaves_no_writer_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a worker's soft time limit, which raises in the middle of the wait."""
    waiting, go = threading.Event(), threading.Event()
    wait = threading.Event.wait

    def late() -> bool:
        waiting.set()
        return wait(go, 60)

    def interrupted(event: threading.Event, timeout: float | None = None) -> bool:
        # only the wait for the answer; not the one for the thread to have started
        if timeout is not None and threading.current_thread() is threading.main_thread():
            assert wait(waiting, MARGIN)
            raise KeyboardInterrupt
        return wait(event, timeout)

    with scripted(silence) as server:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Event, "wait", interrupted)
            with pytest.raises(KeyboardInterrupt):
                post(server.base_url, may_write=late)
        go.set()
        join_transport_threads()
        assert server.connections[0].ended.wait(MARGIN)
        assert server.requests == [b""]


def test_a_caller_that_is_interrupted_cuts_a_request_that_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    wait, has_request = threading.Event.wait, threading.Event()

    def hold(connection: Connection) -> None:
        has_request.set()
        connection.read_to_end()

    def interrupted(event: threading.Event, timeout: float | None = None) -> bool:
        if timeout is not None and threading.current_thread() is threading.main_thread():
            assert wait(has_request, MARGIN)
            raise KeyboardInterrupt
        return wait(event, timeout)

    with scripted(hold) as server:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Event, "wait", interrupted)
            with pytest.raises(KeyboardInterrupt):
                post(server.base_url, seconds=3600)
        # an hour before its deadline
        assert server.connections[0].ended.wait(MARGIN)
    join_transport_threads()


def test_a_machine_without_threads_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with scripted(silence) as server:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", fail)
            with pytest.raises(ConnectFailedError):
                post(server.base_url)
        assert server.connections == []


def test_plain_http_stays_on_this_machine_whatever_the_resolver_says(monkeypatch: pytest.MonkeyPatch) -> None:
    far = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 80))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: far)
    with in_time(20), pytest.raises(ConnectFailedError, match="not this machine"):
        post("http://localhost:80")


def test_an_address_that_does_not_answer_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(says(answer(200))) as server, socket.create_server(("127.0.0.1", 0)) as taken:
        closed = taken.getsockname()
        taken.close()
        both = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", closed),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", server.port)),
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
        assert post("http://localhost:80").status == 200
