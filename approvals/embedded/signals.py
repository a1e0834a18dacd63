"""Turning SIGINT, SIGTERM and SIGHUP of the starter into one orderly stop.

The first signal raises StopRequested in the main thread; later ones change nothing, so that an impatient
second Ctrl-C cannot leave servers running. No process is started or ended here.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopRequested(BaseException):
    """A person or the system asked us to stop. Not an Exception: broad handlers must let it through."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.signum = signum


class _State:
    depth = 0
    pending: int | None = None
    raised = False


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Within it the first of the handled signals raises StopRequested. Main thread only.

    It swallows nothing: catch StopRequested outside, after the `finally` blocks that stop the children.
    """
    # Under nohup SIGHUP is ignored on purpose. SIGINT is ignored in whatever a shell runs in the
    # background, yet a person who sends it means it.
    wanted = [s for s in HANDLED if s != signal.SIGHUP or signal.getsignal(s) is not signal.SIG_IGN]
    before = {signum: signal.signal(signum, _handle) for signum in wanted}
    _State.pending, _State.raised = None, False
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Hold a stop back until the block ends: nothing may break in between starting and noting a process."""
    _State.depth += 1
    try:
        yield
    finally:
        _State.depth -= 1
    _raise_pending()


def _handle(signum: int, frame: FrameType | None) -> None:
    if not _State.raised and _State.pending is None:
        _State.pending = signum
    _raise_pending()


def _raise_pending() -> None:
    if _State.pending is not None and _State.depth == 0 and not _State.raised:
        _State.raised = True
        raise StopRequested(_State.pending)
