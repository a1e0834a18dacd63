"""Reading one HTTP response from a socket that may lie, drip, stop or never end.

Only bytes in and a complete response out. What is not complete and well-formed is a NoAnswerError; nothing
here guesses, and nothing is read past the deadline or the size limit.
"""

import io
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse, IncompleteRead
from typing import Any, Final, cast

MAX_BYTES: Final = 1024 * 1024
"""Largest response, head and body. A full page of a hundred refunds is about a tenth of it."""


@dataclass(frozen=True)
class Response:
    """A complete response. Header names in lower case, repeated headers joined with a comma."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class TransportError(Exception):
    """A request did not get a complete response. `reason` is a stable code."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


class NoAnswerError(TransportError):
    """The request was sent, at least in part, and there is no complete answer: the outcome is unknown.

    `reason` is `timeout`, `connection_lost`, `truncated`, `too_large` or `malformed`; `partial` holds what
    had arrived of the body, and the status if the head had arrived.
    """

    def __init__(self, reason: str, detail: str = "", partial: Response | None = None) -> None:
        super().__init__(reason, detail)
        self.partial = partial


class _TooLargeError(Exception):
    pass


class _Wire(io.RawIOBase):
    """The socket as http.client reads it: every read bounded by the time left, all reads by a size."""

    def __init__(self, connection: socket.socket, remaining: Callable[[], float], max_bytes: int) -> None:
        self.connection = connection
        self.remaining = remaining
        self.max_bytes = max_bytes
        self.received = bytearray()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        left = self.remaining()
        if not left:
            raise TimeoutError
        self.connection.settimeout(left)
        count = self.connection.recv_into(buffer)
        self.received += memoryview(buffer)[:count]
        if len(self.received) > self.max_bytes:
            raise _TooLargeError
        return count

    def makefile(self, mode: str) -> io.BufferedReader:
        assert mode == "rb"
        return io.BufferedReader(self)


def read_response(
    connection: socket.socket, method: str, remaining: Callable[[], float], max_bytes: int
) -> Response:
    """Read one complete response; NoAnswerError for anything less. `remaining` gives the seconds left."""
    wire = _Wire(connection, remaining, max_bytes)
    response = HTTPResponse(cast("socket.socket", wire), method=method)  # it only ever calls makefile()
    head: Response | None = None
    try:
        response.begin()
        head = Response(response.status, _headers(response), b"")
        body = _body(response)
    except TimeoutError:
        reason, detail = "timeout", "the answer did not arrive in time"
    except _TooLargeError:
        reason, detail = "too_large", f"an answer of more than {max_bytes} bytes"
    except IncompleteRead:
        reason, detail = "truncated", "the connection ended within the answer"
    except OSError as error:
        reason, detail = "connection_lost", type(error).__name__
    except (HTTPException, ValueError) as error:
        reason, detail = "malformed", type(error).__name__
    else:
        return Response(head.status, head.headers, body)
    finally:
        response.close()
    if head is not None:
        head = Response(head.status, head.headers, bytes(wire.received.partition(b"\r\n\r\n")[2]))
    raise NoAnswerError(reason, detail, head)


def _body(response: HTTPResponse) -> bytes:
    body = bytearray()
    while piece := response.read(65536):
        body += piece
    # http.client ends quietly when the connection does; what is left of Content-Length tells
    if response.length:
        raise IncompleteRead(bytes(body), response.length)
    return bytes(body)


def _headers(response: HTTPResponse) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in response.getheaders():
        key = name.lower()
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    return headers
