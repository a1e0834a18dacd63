"""The operating-system account the servers run as, and what that account can reach.

PostgreSQL refuses to run as root. This room only picks an account that exists and asks the kernel what
it may read; it must never add a user or change the mode of a folder.
"""

import os
import pwd
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from approvals.embedded.errors import OWN_SERVERS, EmbeddedError

PREFERRED = ("postgres", "nobody")


@dataclass(frozen=True, slots=True)
class Account:
    name: str
    uid: int
    gid: int


def engine_account() -> Account | None:
    """The account for the servers when we are root; None when we are not, they then run as ourselves."""
    if os.geteuid() != 0:
        return None
    for name in PREFERRED:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return Account(name=name, uid=entry.pw_uid, gid=entry.pw_gid)
    raise EmbeddedError(
        "PostgreSQL refuses to run as root, and there is no user 'postgres' or 'nobody' to run it as. "
        f"Start as an ordinary user. {OWN_SERVERS}"
    )


def can_reach(account: Account | None, paths: Iterable[Path]) -> bool:
    """Whether `account` can read every file and enter every folder in `paths`.

    The kernel answers, to a process of that account: mode bits alone would miss ACLs and the folders
    above. As ourselves (None) we are taken to reach what we were started from.
    """
    if account is None:
        return True
    script = 'for p; do if test -d "$p"; then test -x "$p"; else test -r "$p"; fi || exit 1; done'
    try:
        done = subprocess.run(  # noqa: S603
            ["/bin/sh", "-c", script, "sh", *map(str, paths)],
            cwd="/",
            env={},
            user=account.uid,
            group=account.gid,
            extra_groups=[],
            capture_output=True,
            check=False,
            timeout=30,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise EmbeddedError(
            f"Cannot run a process as user '{account.name}' ({error}), and PostgreSQL refuses to run as "
            f"root. Start as an ordinary user. {OWN_SERVERS}"
        ) from error
    return done.returncode == 0
