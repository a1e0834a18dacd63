"""The deadline transport against real sockets: what was sent, and when it is over. (R-C2, R-D3 stand on it.)

Time is asserted only as "not later than the deadline and a generous margin", where the other side would hold
on for ever.
"""

import contextlib
import itertools
import threading
import time
from pathlib import Path

import pytest

from ledger.providers.transport import (
    ConnectFailedError,
    Deadline,
    LeaseExpiredError,
    NoAnswerError,
    Origin,
    Transport,
)
from tests.sandbox_process import wait_until
from tests.socket_server import Connection, Script, answer, says, scripted
from tests.transport_calls import MARGIN, THREAD, in_time, join_transport_threads, post, silence

# -- a complete answer ------------------------------------------------------------------------------------


def test_a_complete_answer_comes_back_whatever_its_status() -> None:
    with scripted(says(answer(402, b'{"a":1}', "Request-Id: req_1", "X-A: 1", "X-A: 2"))) as server:
        response = post(server.base_url)
    assert (response.status, response.body) == (402, b'{"a":1}')
    assert response.headers["request-id"] == "req_1"
    assert response.headers["x-a"] == "1, 2"


def test_the_request_is_written_once_and_as_given() -> None:
    with scripted(says(answer(200))) as server:
        post(server.base_url)
        [request] = server.requests
    head, _, body = request.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /v1/refunds HTTP/1.1"
    assert {b"Authorization: Bearer sk_test_secret", b"Connection: close", b"Content-Length: 11"} <= {*lines}
    assert b"Host: 127.0.0.1:%d" % server.port in lines
    assert body == b"amount=4900"


@pytest.mark.parametrize(
    ("raw", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", b"abcde"),
        (b"HTTP/1.0 200 OK\r\n\r\nabc", b"abc"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", b"abc"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    ],
)
def test_every_framing_of_a_complete_answer_is_read(raw: bytes, body: bytes) -> None:
    with scripted(says(raw)) as server:
        assert post(server.base_url).body == body


def test_an_answer_is_not_waited_for_beyond_its_length() -> None:
    def keep_open(connection: Connection) -> None:
        connection.send(answer(200, b"abc"))
        connection.read_to_end()

    with scripted(keep_open) as server:
        assert post(server.base_url).body == b"abc"


def test_a_redirect_is_an_answer_and_never_followed() -> None:
    with scripted(says(answer(200))) as other:
        redirect = answer(307, b"", f"Location: {other.base_url}/v1/refunds")
        with scripted(says(redirect)) as server:
            assert post(server.base_url).status == 307
        assert other.connections == []


def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(says(answer(200))) as proxy, scripted(says(answer(200))) as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.base_url)
        assert post(server.base_url).status == 200
        assert proxy.connections == []


# -- sent, and no complete answer: nothing is known -------------------------------------------------------


def drip_head(connection: Connection) -> None:
    connection.drip((b"%c" % byte for byte in answer(200, b"x" * 10**6)), 0.05)


def drip_body(connection: Connection) -> None:
    connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    connection.drip(itertools.repeat(b"x"), 0.05)


def drip_chunks(connection: Connection) -> None:
    connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    connection.drip(itertools.repeat(b"1\r\nx\r\n"), 0.05)


def drip_headers(connection: Connection) -> None:
    connection.send(b"HTTP/1.1 200 OK\r\n")
    connection.drip(itertools.repeat(b"X"), 0.05)


def half_an_answer_then_silence(connection: Connection) -> None:
    connection.send(answer(200, b"x" * 100)[:-50])
    connection.read_to_end()


@pytest.mark.parametrize(
    "script", [silence, drip_head, drip_body, drip_chunks, drip_headers, half_an_answer_then_silence]
)
def test_no_server_can_stretch_the_deadline(script: Script) -> None:
    with scripted(script) as server:
        with in_time(0.5), pytest.raises(NoAnswerError) as caught:
            post(server.base_url, seconds=0.5)
        assert caught.value.reason == "timeout"
        # and the abandoned connection is really gone: the script sees its end
        assert server.connections[0].ended.wait(MARGIN)
    join_transport_threads()


def test_a_server_that_never_reads_cannot_stretch_the_deadline() -> None:
    def hold(connection: Connection) -> None:
        connection.closing.wait(60)

    with scripted(hold, read=False) as server:
        with in_time(0.5), pytest.raises(NoAnswerError) as caught:
            post(server.base_url, seconds=0.5, body=b"x" * 64 * 1024 * 1024)
        assert caught.value.reason == "timeout"
        join_transport_threads()


def reset(connection: Connection) -> None:
    connection.reset()


def reset_within_the_answer(connection: Connection) -> None:
    connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
    time.sleep(0.05)  # let the bytes leave before the reset destroys them; either order must be unknown
    connection.reset()


def flood(head: bytes, piece: bytes) -> Script:
    def script(connection: Connection) -> None:
        connection.send(head)
        connection.drip(itertools.repeat(piece), 0)

    return script


BROKEN: list[tuple[str, Script, set[str]]] = [
    ("reset", reset, {"connection_lost"}),
    ("closed", says(b""), {"connection_lost"}),
    ("reset within", reset_within_the_answer, {"connection_lost"}),
    ("cut status line", says(b"HTTP/1.1 2"), {"malformed"}),
    ("cut body", says(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"), {"truncated"}),
    ("no body", says(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"), {"truncated"}),
    ("cut chunk", says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"), {"truncated"}),
    (
        "no last chunk",
        says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n"),
        {"truncated"},
    ),
    ("not http", says(b"SSH-2.0-OpenSSH_9.9\r\n"), {"malformed"}),
    ("http 2", says(b"HTTP/2 200\r\n\r\n"), {"malformed"}),
    ("bad status", says(b"HTTP/1.1 99999 No\r\n\r\n"), {"malformed"}),
    ("bad chunk", says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nabc"), {"malformed"}),
    ("endless header", flood(b"HTTP/1.1 200 OK\r\nX: ", b"x" * 4096), {"malformed", "too_large"}),
    ("endless headers", flood(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 100), {"malformed", "too_large"}),
    ("endless continue", flood(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100), {"too_large"}),
    ("endless body", flood(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536), {"too_large"}),
    (
        "endless trailer",
        flood(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n" * 99),
        {"too_large"},
    ),
    ("large body", says(answer(200, b"x" * (1024 * 1024 + 1))), {"too_large"}),
]


@pytest.mark.parametrize(("script", "reasons"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_an_answer_that_is_not_complete_says_nothing(script: Script, reasons: set[str]) -> None:
    with scripted(script) as server:
        with in_time(20), pytest.raises(NoAnswerError) as caught:
            post(server.base_url)
        assert caught.value.reason in reasons
        assert len(server.connections) == 1  # and it was not tried again


def test_what_had_arrived_of_a_cut_answer_is_kept_as_evidence() -> None:
    cut = b'HTTP/1.1 200 OK\r\nRequest-Id: req_1\r\nContent-Length: 99\r\n\r\n{"id": "re_1'
    with scripted(says(cut)) as server, pytest.raises(NoAnswerError) as caught:
        post(server.base_url)
    partial = caught.value.partial
    assert partial is not None
    assert (partial.status, partial.headers["request-id"], partial.body) == (200, "req_1", b'{"id": "re_1')


# -- requests and addresses -------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["sk_secret\r\nX-Other: 1", "sk_secret\n", "sk_secret\N{SNOWMAN}"])
def test_a_header_cannot_break_out_and_is_not_quoted_in_the_error(value: str) -> None:
    transport = Transport(origin=Origin.parse("http://127.0.0.1:1"))
    with pytest.raises(ValueError, match="malformed") as caught:
        transport.send("GET", "/", headers={"Authorization": value}, deadline=Deadline.after(1))
    error: BaseException | None = caught.value
    while error is not None:
        assert "sk_secret" not in str(error)
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize("target", ["/a b", "/a\r\nX: 1", "/\N{SNOWMAN}"])
def test_a_target_cannot_break_out(target: str) -> None:
    transport = Transport(origin=Origin.parse("http://127.0.0.1:1"))
    with pytest.raises(ValueError, match="malformed"):
        transport.send("GET", target, headers={}, deadline=Deadline.after(1))


@pytest.mark.parametrize(
    ("url", "secure", "host", "port"),
    [
        ("https://api.stripe.com", True, "api.stripe.com", 443),
        ("https://api.stripe.com/", True, "api.stripe.com", 443),
        ("https://10.0.0.1:8443", True, "10.0.0.1", 8443),
        ("http://localhost:8010", False, "localhost", 8010),
        ("http://127.0.0.1:8010", False, "127.0.0.1", 8010),
        ("http://[::1]:8010", False, "::1", 8010),
    ],
)
def test_a_base_url_is_read(url: str, secure: bool, host: str, port: int) -> None:
    origin = Origin.parse(url)
    assert (origin.secure, origin.host, origin.port) == (secure, host, port)


@pytest.mark.parametrize(
    "url",
    [
        "http://api.stripe.com",
        "http://10.0.0.1",
        "http://localhost.example.com",
        "http://127.0.0.1.example.com",
        "https://user:secret@api.stripe.com",
        "https://api.stripe.com/prefix",
        "https://api.stripe.com?x=1",
        "https://api.stripe.com#x",
        "https://",
        "https://api.stripe.com:99999",
        "ftp://api.stripe.com",
        "api.stripe.com",
        "",
    ],
)
def test_a_base_url_that_could_lead_elsewhere_is_refused(url: str) -> None:
    with pytest.raises(ValueError):
        Origin.parse(url)


# -- leaks ------------------------------------------------------------------------------------------------


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def test_fifty_calls_of_every_kind_leave_no_thread_and_no_socket() -> None:
    scripts = itertools.cycle([says(answer(200, b"{}")), reset, says(b""), silence, drip_body])

    def mixed(connection: Connection) -> None:
        next(scripts)(connection)

    with scripted(mixed) as server:
        before = open_files()
        for index in range(50):
            lease = index % 7 != 0
            with contextlib.suppress(NoAnswerError, LeaseExpiredError, ConnectFailedError):
                post(server.base_url, seconds=0.1, may_write=lambda lease=lease: lease)  # type: ignore[misc]
        join_transport_threads()
        # the server's own ends close as it gets to them
        wait_until(lambda: open_files() <= before, MARGIN, "closing every socket")
    assert not [thread for thread in threading.enumerate() if thread.name == THREAD]
