"""A small program for test_embedded.py: starts the servers of a checkout and waits to be stopped.

    python starter.py CHECKOUT ELSEWHERE [--orphans] [--stubborn] [--as-nobody]

Prints one line of JSON when they answer, `error: …` if they cannot run. With --orphans the kernel is not
asked to end the servers with the starter, as on a system that cannot. With --stubborn the child beside the
servers ignores SIGTERM. With --as-nobody it becomes that user first, all its modules being loaded: the
interpreter may lie where nobody can read.
"""

import encodings.idna  # noqa: F401  (loaded while it can still be read, see --as-nobody)
import json
import os
import pwd
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from approvals.embedded import paths, processes
from approvals.embedded.engines import Engines
from approvals.embedded.errors import EmbeddedError
from approvals.embedded.processes import Program
from approvals.embedded.signals import StopRequested, stop_on_signals

# Deaf to the polite signal, as is the process it starts: both end only by SIGKILL to their group.
STUBBORN = "trap '' TERM; echo up; sleep 600"


def main() -> int:
    paths.ELSEWHERE = Path(sys.argv[2])
    if "--orphans" in sys.argv:
        processes._libc = None
    if "--as-nobody" in sys.argv:
        nobody = pwd.getpwnam("nobody")
        os.setgroups([])
        os.setgid(nobody.pw_gid)
        os.setuid(nobody.pw_uid)
    try:
        with stop_on_signals(), Engines(Path(sys.argv[1])) as engines, engines.supervisor() as children:
            child = children.start(
                Program(
                    name="child",
                    argv=(
                        "/bin/sh",
                        "-c",
                        STUBBORN if "--stubborn" in sys.argv else "echo up; exec sleep 600",
                    ),
                    env={"PATH": "/usr/bin:/bin"},
                    cwd=Path("/"),
                    stops=((15, 1.0),),
                )
            )
            child.wait_until(lambda: "up" in child.tail(), seconds=20)
            pids = [json.loads(path.read_text())["pid"] for path in engines.place.run.glob("*.json")]
            urls = engines.addresses.postgres
            print(
                json.dumps(
                    {
                        "pids": pids,
                        "recovered": engines.recovered,
                        "owner_url": urls.owner_url,
                        "superuser_url": urls.superuser_url,
                    }
                ),
                flush=True,
            )
            children.watch(sys.stderr)
    except EmbeddedError as error:
        print(f"error: {error}", flush=True)
        return 1
    except StopRequested as stop:
        return 128 + stop.signum
    return 0


if __name__ == "__main__":
    sys.exit(main())
