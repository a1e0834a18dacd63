"""The socket: HTTP/1.1 with keep-alive, one daemon thread a connection, and every way of not answering well.

What to answer is decided by the service; nothing here knows a refund.
"""

import contextlib
import socket
import socketserver
import sys
import time
import traceback
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

from .control import PREFIX, Control
from .errors import ApiError, Reply, server_error
from .service import Answer, Request, Sending, Service

MAX_BODY = 1024 * 1024
"""Bytes; a seed of thousands of payments fits, a runaway client does not."""
IDLE_SECONDS = 600
HOLD_SECONDS = 60
"""How much longer than the fault's own seconds a silent connection is held for a client that stays."""


class SandboxServer(socketserver.ThreadingTCPServer):
    """Listens at once. Raises OSError where the address is taken."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(self, host: str, port: int, service: Service) -> None:
        if ":" in host:
            self.address_family = socket.AF_INET6
        self.service = service
        self.control = Control(service)
        super().__init__((host, port), Handler)

    @property
    def port(self) -> int:
        """The port that was really bound."""
        return int(self.socket.getsockname()[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is everyday here; anything else is shown."""
        if not isinstance(sys.exception(), OSError):
            traceback.print_exc()


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: SandboxServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = IDLE_SECONDS

    def serve(self) -> None:
        """Read one request in full, answer it as the service says."""
        try:
            body = self._body()
        except ApiError as error:
            self.close_connection = True
            self._send(error.reply())
            return
        path, _, query = self.path.partition("?")
        request = Request(
            method=self.command,
            path=path,
            query=query,
            headers={name.lower(): value for name, value in self.headers.items()},
            body=body,
        )
        self._deliver(self._answer(request))

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = serve  # noqa: N815  (the names http.server looks for)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing: the books are the log."""

    def _answer(self, request: Request) -> Answer:
        try:
            if request.path.startswith(PREFIX):
                return self.server.control.handle(request)
            return self.server.service.handle(request)
        except Exception:  # noqa: BLE001  a fault of the sandbox itself must not look like a network's
            traceback.print_exc()
            return Answer(reply=server_error().reply())

    def _body(self) -> bytes:
        """The body by its Content-Length; ApiError for any other framing and for too much."""
        if self.headers.get("Transfer-Encoding") is not None:
            raise ApiError(411, "A Content-Length is required.")
        text = self.headers.get("Content-Length", "0")
        if not (text.isascii() and text.isdigit()):
            raise ApiError(400, "Invalid Content-Length.")
        if int(text) > MAX_BODY:
            raise ApiError(413, f"A request body has up to {MAX_BODY} bytes.")
        body = self.rfile.read(int(text))
        if len(body) < int(text):
            raise ApiError(400, "The request body ended early.")
        return body

    def _deliver(self, answer: Answer) -> None:
        if answer.sending is Sending.PLAINLY:
            self._send(answer.reply)
            return
        self.close_connection = True
        if answer.sending is Sending.DRIPPING:
            self._drip(answer.reply, answer.seconds)
        elif answer.sending is Sending.TRUNCATED:
            head, body = self._head(answer.reply), answer.reply.body.encode()
            self.wfile.write(head + body[: len(body) // 2])
        elif answer.sending is Sending.SILENTLY:
            self._hold(answer.seconds + HOLD_SECONDS)

    def _send(self, reply: Reply) -> None:
        self.wfile.write(self._head(reply) + reply.body.encode())

    def _head(self, reply: Reply) -> bytes:
        lines = [
            f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}",
            f"Date: {self.date_time_string()}",
            "Content-Type: application/json",
            f"Content-Length: {len(reply.body.encode())}",
            "Cache-Control: no-cache, no-store",
            f"Connection: {'close' if self.close_connection else 'keep-alive'}",
            *(f"{name}: {value}" for name, value in reply.headers),
        ]
        return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")

    def _drip(self, reply: Reply, seconds: float) -> None:
        """Every byte alone, headers included, evenly over `seconds`; a client that goes away ends it."""
        data = self._head(reply) + reply.body.encode()
        start = time.monotonic()
        with contextlib.suppress(ConnectionError):
            for index in range(len(data)):
                self.wfile.write(data[index : index + 1])
                time.sleep(max(0.0, start + seconds * (index + 1) / len(data) - time.monotonic()))

    def _hold(self, seconds: float) -> None:
        """Say nothing until the client has gone, or for `seconds`."""
        until = time.monotonic() + seconds
        with contextlib.suppress(OSError):
            while (left := until - time.monotonic()) > 0:
                self.connection.settimeout(left)
                if not self.connection.recv(4096):
                    return
