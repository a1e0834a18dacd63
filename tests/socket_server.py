"""A tiny TCP server whose every answer is a test's own script, for what a real provider would never do.

A script gets the accepted connection and the request as it was read; when it returns, the connection is
closed. Whatever arrives is kept, and `close` ends every script that is still holding on.
"""

import contextlib
import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Connection:
    """One accepted connection. `received` grows until the other side has gone (`ended`)."""

    socket: socket.socket
    closing: threading.Event
    received: bytearray = field(default_factory=bytearray)
    ended: threading.Event = field(default_factory=threading.Event)

    def read_request(self) -> None:
        """Read one request, by its Content-Length; OSError or an early end leave what there is."""
        while b"\r\n\r\n" not in self.received:
            if not self._more():
                return
        head, _, body = bytes(self.received).partition(b"\r\n\r\n")
        length = 0
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        missing = length - len(body)
        while missing > 0 and (count := self._more()):
            missing -= count

    def read_to_end(self) -> None:
        """Read until the other side has gone."""
        while self._more():
            pass

    def _more(self) -> int:
        try:
            piece = self.socket.recv(65536)
        except OSError:
            piece = b""
        self.received += piece
        return len(piece)

    def send(self, data: bytes) -> None:
        """Send, caring for nothing."""
        with contextlib.suppress(OSError):
            self.socket.sendall(data)

    def reset(self) -> None:
        """Close with RST instead of FIN."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def drip(self, data: Iterator[bytes], every: float) -> None:
        """Send piece after piece until there are none, the client has gone or the server is closed."""
        for piece in data:
            if self.closing.wait(every):
                return
            try:
                self.socket.sendall(piece)
            except OSError:
                return


type Script = Callable[[Connection], None]


class ScriptedServer:
    """Listens on loopback; runs the script on each connection, after its request was read."""

    def __init__(self, script: Script, *, tls: ssl.SSLContext | None = None, read: bool = True) -> None:
        self._script = script
        self._tls = tls
        self._read = read
        self._closing = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._threads: list[threading.Thread] = []
        self.connections: list[Connection] = []
        self.arrived = threading.Semaphore(0)
        """Released once for each connection that was accepted."""
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    @property
    def base_url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def requests(self) -> list[bytes]:
        """What each connection has sent, in the order in which they came."""
        return [bytes(connection.received) for connection in self.connections]

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            connection = Connection(accepted, self._closing)
            self.connections.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()
            self.arrived.release()

    def _serve(self, connection: Connection) -> None:
        try:
            if self._tls is not None:
                connection.socket = self._tls.wrap_socket(connection.socket, server_side=True)
            if self._read:
                connection.read_request()
            self._script(connection)
        except OSError:
            pass
        finally:
            connection.socket.close()
            connection.ended.set()

    def close(self) -> None:
        self._closing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._acceptor.join(10)
        for connection in self.connections:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(connection.socket, socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        assert not any(thread.is_alive() for thread in self._threads), "a script is still running"


@contextmanager
def scripted(
    script: Script, *, tls: ssl.SSLContext | None = None, read: bool = True
) -> Iterator[ScriptedServer]:
    """A server for one test."""
    server = ScriptedServer(script, tls=tls, read=read)
    try:
        yield server
    finally:
        server.close()


def answer(status: int, body: bytes = b"", *headers: str) -> bytes:
    """A complete HTTP/1.1 response."""
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def json_answer(status: int, value: object, *headers: str) -> bytes:
    """A complete response with a JSON body."""
    return answer(status, json.dumps(value).encode(), "Content-Type: application/json", *headers)


def says(data: bytes) -> Script:
    """A script that answers with these bytes."""
    return lambda connection: connection.send(data)
