"""A Celery worker that kills itself at a named point, once: `python -m tests.faults.crashing_worker …`.

CRASH_AT names the point, CRASH_MARK a file that remembers that it has happened. Only tests know of it.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from celery.__main__ import main

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "approvals.settings")

import django

django.setup()

from ledger import execution  # noqa: E402 - the settings come first

POINTS: dict[str, tuple[str, bool]] = {
    "after_lease": ("observe", False),  # the prepared row is leased, nothing else has happened
    "after_claim": ("send", False),  # dispatched, and not a byte sent
    "after_commit": ("record", False),  # the provider has done it, and nothing is stored
    "after_record": ("record", True),  # the receipt is stored, the message not acknowledged
}


def die(mark: Path) -> None:
    """SIGKILL, the first time."""
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def crashing(function: Callable[..., Any], mark: Path, *, after: bool) -> Callable[..., Any]:
    """`function` with a death before or after it."""

    def run(*args: Any, **kwargs: Any) -> Any:
        if not after:
            die(mark)
        result = function(*args, **kwargs)
        if after:
            die(mark)
        return result

    return run


if __name__ == "__main__":
    name, late = POINTS[os.environ["CRASH_AT"]]
    setattr(execution, name, crashing(getattr(execution, name), Path(os.environ["CRASH_MARK"]), after=late))
    sys.argv[0] = "celery"
    main()
