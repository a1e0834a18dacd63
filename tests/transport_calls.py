"""What the tests of the transport share: one POST, and time asserted with a generous margin."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ledger.providers.transport import Deadline, Origin, Response, Transport
from tests.socket_server import Connection

MARGIN = 10.0
THREAD = "second-key-transport"


def post(
    base_url: str,
    *,
    seconds: float = 20.0,
    may_write: Callable[[], bool] = lambda: True,
    body: bytes = b"amount=4900",
) -> Response:
    return Transport(origin=Origin.parse(base_url)).send(
        "POST",
        "/v1/refunds",
        headers={"Authorization": "Bearer sk_test_secret"},
        body=body,
        deadline=Deadline.after(seconds),
        may_write=may_write,
    )


@contextmanager
def in_time(seconds: float) -> Iterator[None]:
    start = time.monotonic()
    yield
    assert time.monotonic() - start < seconds + MARGIN


def join_transport_threads() -> None:
    for thread in threading.enumerate():
        if thread.name == THREAD:
            thread.join(MARGIN)
            assert not thread.is_alive(), "a transport thread does not end"


def silence(connection: Connection) -> None:
    """A server that never answers and waits for the other side to go."""
    connection.read_to_end()
