"""The deadline transport: one HTTP request over one fresh connection, and the truth about what was sent.

It knows sockets, TLS and time, and no provider. It never retries, follows no redirect, ignores the proxy
variables of the environment and must never log: what passes through it carries secrets.

What a caller may rely on:

1. `send` returns or raises when the deadline is over, whatever the network does: the exchange runs in a
   thread of its own, name resolution and TLS included, and the caller waits no longer than that.
2. A `NotSentError` means that no byte of the request was written and that none will be.
3. Whatever goes wrong after the first byte is a `NoAnswerError`: nothing is known about the outcome.
4. A thread that was left behind cannot write later. Before writing it looks, under a lock, at a flag which
   the caller sets when it leaves; if it had begun, its socket has been shut down under it.

Every call gets a fresh connection. On a reused one, "the server had closed it" and "the server took the
request and died" look the same, and a connection failure would no longer prove that nothing was sent.
"""

import contextlib
import ipaddress
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from http.client import HTTPConnection, HTTPException
from typing import NoReturn, Self
from urllib.parse import urlsplit

import certifi

from ledger.providers.response import MAX_BYTES, NoAnswerError, Response, TransportError, read_response

__all__ = [
    "MAX_BYTES",
    "ConnectFailedError",
    "Deadline",
    "LeaseExpiredError",
    "NoAnswerError",
    "NotSentError",
    "Origin",
    "Response",
    "Transport",
    "TransportError",
]


class NotSentError(TransportError):
    """No byte of the request was written, and none will be."""


class ConnectFailedError(NotSentError):
    """No connection (name resolution and TLS included), or the deadline passed before the first byte."""

    def __init__(self, detail: str = "") -> None:
        super().__init__("connect_failed", detail)


class LeaseExpiredError(NotSentError):
    """Connected, but the caller's permission to write had run out."""

    def __init__(self, detail: str = "") -> None:
        super().__init__("lease_expired", detail)


@dataclass(frozen=True)
class Deadline:
    """A moment on the monotonic clock. Several requests may share one."""

    ends: float

    @classmethod
    def after(cls, seconds: float) -> Self:
        """The moment `seconds` from now."""
        return cls(time.monotonic() + seconds)

    def remaining(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.ends - time.monotonic())


@dataclass(frozen=True)
class Origin:
    """Where requests go: a scheme, a host and a port, and nothing else."""

    secure: bool
    host: str
    port: int
    authority: str

    @classmethod
    def parse(cls, base_url: str) -> Self:
        """Read a base URL. ValueError unless it is https, or http to this machine, without path or user."""
        parts = urlsplit(base_url)
        host, port = parts.hostname or "", parts.port
        if parts.scheme not in {"https", "http"} or not host:
            raise ValueError(f"a provider's base URL is https://host[:port], not {base_url!r}")
        if parts.path not in {"", "/"} or parts.query or parts.fragment or "@" in parts.netloc:
            raise ValueError("a provider's base URL has no path, query, fragment or user")
        secure = parts.scheme == "https"
        if not secure and host != "localhost" and not _is_loopback(host):
            raise ValueError("plain http is only for a provider on this machine; use https")
        return cls(secure=secure, host=host, port=port or (443 if secure else 80), authority=parts.netloc)


@dataclass(frozen=True, kw_only=True)
class Transport:
    """Sends requests to one origin. Holds no connection and no state, so it may be shared by threads."""

    origin: Origin
    tls: ssl.SSLContext | None = None
    """For an origin with a private authority. Without it: verified against certifi, or SSL_CERT_FILE/_DIR."""
    max_bytes: int = MAX_BYTES

    def send(
        self,
        method: str,
        target: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        deadline: Deadline,
        may_write: Callable[[], bool] = lambda: True,
    ) -> Response:
        """One request, one complete response of any status.

        Raises NotSentError, NoAnswerError, or ValueError for a request that cannot be written as HTTP.
        """
        exchange = _Exchange(
            origin=self.origin,
            tls=(self.tls or _default_tls()) if self.origin.secure else None,
            method=method,
            payload=_serialize(self.origin, method, target, headers, body),
            deadline=deadline,
            may_write=may_write,
            max_bytes=self.max_bytes,
        )
        return exchange.run()


@dataclass(kw_only=True)
class _Exchange:
    """One request on its way. `run` belongs to the caller's thread, `_work` and below to another."""

    origin: Origin
    tls: ssl.SSLContext | None
    method: str
    payload: bytes
    deadline: Deadline
    may_write: Callable[[], bool]
    max_bytes: int

    _done: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    # under the lock:
    _abandoned: bool = False
    _writing: bool = False
    _switch: socket.socket | None = None
    _outcome: Response | TransportError | None = None

    def run(self) -> Response:
        thread = threading.Thread(target=self._work, name="second-key-transport", daemon=True)
        try:
            thread.start()
            self._done.wait(self.deadline.remaining())
        except RuntimeError as error:  # the machine has no thread left; then nothing has run
            raise ConnectFailedError("no thread for the request") from error
        finally:
            # also when the caller itself is interrupted, as by a worker's soft time limit
            outcome = self._leave()
        if isinstance(outcome, Response):
            return outcome
        raise outcome.with_traceback(None)

    def _leave(self) -> Response | TransportError:
        with self._lock:
            self._abandoned = True
            self._throw_switch()
            if self._outcome is not None:
                return self._outcome
            if self._writing:
                return NoAnswerError("timeout", "no complete answer before the deadline")
            return ConnectFailedError("the deadline passed before the first byte")

    def _throw_switch(self) -> None:
        if self._switch is None:
            return
        # Shut down at the descriptor, not through SSLSocket.shutdown: that one drops the TLS layer first, and
        # a writer in between would send the request in the clear.
        with contextlib.suppress(OSError):  # never connected, or closed by the other side
            self._switch.shutdown(socket.SHUT_RDWR)
        self._switch.close()
        self._switch = None

    def _work(self) -> None:
        outcome: Response | TransportError
        try:
            outcome = self._exchange()
        except TransportError as error:
            outcome = error
        except Exception as error:  # noqa: BLE001 - the caller must hear of it, and it changes no certainty
            detail = f"{type(error).__name__} in the transport"
            outcome = (
                NoAnswerError("connection_lost", detail) if self._writing else ConnectFailedError(detail)
            )
        with self._lock:
            self._outcome = outcome
        self._done.set()

    def _exchange(self) -> Response:
        connection = self._connect()
        try:
            self._begin_writing()
            try:
                connection.settimeout(max(self.deadline.remaining(), 0.001))
                connection.sendall(self.payload)
            except TimeoutError:
                raise NoAnswerError("timeout", "the request could not be written in time") from None
            except OSError as error:
                raise NoAnswerError("connection_lost", type(error).__name__) from None
            return read_response(connection, self.method, self.deadline.remaining, self.max_bytes)
        finally:
            connection.close()

    def _begin_writing(self) -> None:
        """The last gate: the lease, then the flag and the clock in one step. After it, nothing is certain."""
        try:
            allowed = self.may_write()
        except Exception as error:
            raise LeaseExpiredError(f"the lease could not be checked: {type(error).__name__}") from error
        if not allowed:
            raise LeaseExpiredError("the lease ran out before the first byte")
        with self._lock:
            # The clock too, not the flag alone: a process that was stopped and wakes up late may run this
            # thread before the caller's.
            if self._abandoned or not self.deadline.remaining():
                raise ConnectFailedError("the deadline passed before the first byte")
            self._writing = True

    def _connect(self) -> socket.socket:
        try:
            found = socket.getaddrinfo(self.origin.host, self.origin.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise ConnectFailedError(f"{self.origin.host} does not resolve: {type(error).__name__}") from None
        detail = "no address"
        for index, (family, kind, protocol, _, address) in enumerate(found):
            if not self.origin.secure and not _is_loopback(str(address[0])):
                detail = f"{self.origin.host} is not this machine"
                continue
            # every address gets its share: one that swallows packets must not eat the time of the next
            share = self.deadline.remaining() / (len(found) - index)
            try:
                return self._open(socket.socket(family, kind, protocol), address, share)
            except OSError as error:  # TLS failures are OSErrors too
                detail = f"{type(error).__name__}: {error.strerror or error}"
        raise ConnectFailedError(detail)

    def _open(self, raw: socket.socket, address: tuple[object, ...], share: float) -> socket.socket:
        try:
            with self._lock:
                if self._abandoned:
                    raise ConnectFailedError("the deadline passed before the first byte")
                if self._switch is not None:
                    self._switch.close()
                # A second handle on the same socket, for the caller to shut. The thread alone closes its own:
                # closed from outside, the number could be given to another connection while it still writes.
                self._switch = raw.dup()
            raw.settimeout(max(share, 0.001))
            raw.connect(address)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.tls is None:
                return raw
            raw.settimeout(max(self.deadline.remaining(), 0.001))
            return self.tls.wrap_socket(raw, server_hostname=self.origin.host)
        except BaseException:
            raw.close()
            raise


class _Serializer(HTTPConnection):
    """http.client's way of writing a request (framing, header checks), into a buffer instead of a socket."""

    def __init__(self) -> None:
        super().__init__("unused")
        self.written = bytearray()

    def connect(self) -> NoReturn:
        raise AssertionError("a serializer does not connect")

    def send(self, data: object) -> None:
        assert isinstance(data, bytes)
        self.written += data


def _serialize(
    origin: Origin, method: str, target: str, headers: Mapping[str, str], body: bytes | None
) -> bytes:
    serializer = _Serializer()
    fields = {**headers, "Host": origin.authority, "Connection": "close"}
    try:
        serializer.request(method, target, body=body, headers=fields)
    except (ValueError, HTTPException):
        serializer.written.clear()
    if not serializer.written:  # raised here, without the cause: http.client's message quotes the header
        raise ValueError("the request cannot be written as HTTP: a header or the target is malformed")
    return bytes(serializer.written)


@cache
def _default_tls() -> ssl.SSLContext:
    # An operator's own trust store (the variables OpenSSL itself reads) goes before the bundled one.
    own = os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR")
    return ssl.create_default_context(cafile=None if own else certifi.where())


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False
