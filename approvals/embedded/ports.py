"""Free and taken TCP ports of the loopback interface. Nothing here listens for longer than a check."""

import errno
import http.client
import socket

import psutil

from approvals.embedded.errors import EmbeddedError

LOOPBACK = "127.0.0.1"


def free_port() -> int:
    """A port that was free a moment ago; whoever listens on it must be ready to ask for another."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def is_free(port: int) -> bool:
    """Whether a server on `port` of 127.0.0.1 would be the one that answers at `localhost`.

    A listener on ::1 alone is no obstacle to ours, but browsers try that address first.
    """
    return _can_bind(socket.AF_INET, LOOPBACK, port) and _can_bind(socket.AF_INET6, "::1", port)


def require_free(port: int, *, purpose: str, option: str = "--port") -> None:
    """EmbeddedError naming the port, who holds it where that can be seen, and the option that moves us."""
    if not 0 < port < 65536:
        raise EmbeddedError(f"{option} {port} is no port; choose one between 1024 and 65535.")
    if not is_free(port):
        if port < 1024:
            raise EmbeddedError(
                f"Port {port} for {purpose} cannot be opened. Choose another with {option} PORT."
            )
        raise EmbeddedError(
            f"Port {port} for {purpose} is taken{_holder(port)}. Stop what uses it, or choose another with "
            f"{option} PORT."
        )


def is_open(port: int, *, seconds: float = 0.5) -> bool:
    """Whether something accepts connections on `port` of 127.0.0.1."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=seconds):
            return True
    except OSError:
        return False


def http_ok(port: int, path: str, *, seconds: float = 2.0) -> bool:
    """Whether `GET path` on `port` of 127.0.0.1 answers 200. No proxy of the environment is asked."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=seconds)
    try:
        connection.request("GET", path, headers={"Host": f"localhost:{port}"})
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _can_bind(family: socket.AddressFamily, address: str, port: int) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # As servers do: connections of an earlier run in TIME_WAIT are no obstacle, a listener is.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, port))
    except OSError as error:
        # A machine without IPv6 has no such address, and nobody who could hold it.
        return error.errno not in (errno.EADDRINUSE, errno.EACCES)
    return True


def _holder(port: int) -> str:
    try:
        for connection in psutil.net_connections("tcp"):
            local = connection.laddr
            if connection.status == psutil.CONN_LISTEN and local and local.port == port and connection.pid:
                return f" by {psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except (psutil.Error, OSError):
        pass  # Without the right to look at other users' processes the port alone is named.
    return ""
