"""Who holds a place at the moment. The lock is the kernel's, so it ends with its holder, however it ends."""

import fcntl
import os
from pathlib import Path
from typing import IO, Self

from approvals.embedded.errors import EmbeddedError


class Lock:
    """Held by the one starter that may use a place; `run` is the place's run folder."""

    def __init__(self, run: Path) -> None:
        self._path = run / "lock"
        self._file: IO[str] | None = None

    def acquire(self) -> None:
        """EmbeddedError naming the holder, at once, if there is one."""
        file = self._path.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with file:
                file.seek(0)
                holder = file.read().strip()
            if not holder.isdecimal():
                raise EmbeddedError("The local servers are just being started by another process.") from None
            raise EmbeddedError(
                f"The local servers are already running as pid {holder}; stop it with Ctrl-C there, or "
                f"kill {holder}."
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self._file = file

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
