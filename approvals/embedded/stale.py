"""Removing what nobody will use again: places whose checkout is gone, and those of killed test runs.

Only folders made by this package are removed, only while their lock is ours and nothing lives in them.
"""

import contextlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from approvals.embedded import records
from approvals.embedded.errors import EmbeddedError
from approvals.embedded.lock import Lock

TEST_PREFIX = "second-key-test-"
GRACE = 7 * 24 * 3600.0  # seconds
BEING_MADE = 60.0  # seconds


def recorded_checkout(folder: Path) -> Path | None:
    """The checkout that a folder under /var/lib/second-key was made for."""
    try:
        return Path((folder / "checkout").read_text())
    except OSError:
        return None


def remove_stale(places: Path) -> None:
    """Remove the folders in `places` whose checkout is gone or keeps its data somewhere else now.

    Checkouts in a temporary folder go at once. Another may lie on a disk that is not mounted today, or its
    `.local` may only have been moved aside: the copied programs go, the data waits a week.
    """
    temporary = {Path(tempfile.gettempdir()).resolve(), Path("/tmp"), Path("/var/tmp")}  # noqa: S108
    for folder in _folders(places, "*"):
        checkout = recorded_checkout(folder)
        if checkout is None or (checkout / ".local").resolve() == folder or _age(folder) < BEING_MADE:
            continue
        gone_for_good = not checkout.exists() and any(base in checkout.parents for base in temporary)
        with _unused(folder) as unused:
            if unused:
                remove_all = gone_for_good or _age(folder / "run") > GRACE
                shutil.rmtree(folder if remove_all else folder / "engines", ignore_errors=True)


def remove_stale_tests(base: Path) -> None:
    """Remove what killed test runs have left in `base`, ending their servers where those still run."""
    for folder in _folders(base, f"{TEST_PREFIX}*"):
        if _age(folder) > BEING_MADE:
            with _unused(folder, end=True) as unused:
                if unused:
                    shutil.rmtree(folder, ignore_errors=True)


def _folders(base: Path, pattern: str) -> Iterator[Path]:
    """Our own folders. In /tmp anybody may put a link with such a name."""
    for folder in base.glob(pattern):
        with contextlib.suppress(OSError):
            state = folder.lstat()
            if stat.S_ISDIR(state.st_mode) and state.st_uid == os.geteuid():
                yield folder


def _age(folder: Path) -> float:
    """Seconds since something was made or removed in it."""
    with contextlib.suppress(OSError):
        return time.time() - folder.lstat().st_mtime
    return GRACE


@contextlib.contextmanager
def _unused(folder: Path, *, end: bool = False) -> Iterator[bool]:
    """Whether nobody uses the folder; if so, the lock is held within the block."""
    run = folder / "run"
    lock = Lock(run)
    try:
        run.mkdir(mode=0o700, exist_ok=True)
        lock.acquire()
    except (OSError, EmbeddedError):
        yield False
        return
    try:
        if end:
            records.end_leftovers(run)
        yield not records.leftovers(run)
    finally:
        lock.release()
