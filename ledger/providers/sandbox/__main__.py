"""`python -m ledger.providers.sandbox --port 8010 --store PATH`: run the sandbox until it is told to stop."""

import argparse
import os
import signal
import sys
from pathlib import Path
from types import FrameType

from .server import SandboxServer
from .service import Service
from .store import Store, StoreError


def main() -> int:
    """Serve; prints one line once the sandbox answers. Returns 1 where it cannot start."""
    parser = argparse.ArgumentParser(prog="python -m ledger.providers.sandbox", description=__doc__)
    parser.add_argument("--port", type=int, required=True, help="0 takes a free one")
    parser.add_argument("--store", type=Path, required=True, help="the SQLite file of the books")
    parser.add_argument("--host", default="127.0.0.1")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    try:
        service = Service(Store(options.store))
        server = SandboxServer(options.host, options.port, service)
    except StoreError as error:
        print(f"sandbox: {error}", file=sys.stderr)
        return 1
    except (OSError, OverflowError) as error:
        print(f"sandbox: cannot listen on {options.host} port {options.port}: {error}", file=sys.stderr)
        return 1
    service.landing.start()
    host = f"[{options.host}]" if ":" in options.host else options.host
    print(f"sandbox ready on http://{host}:{server.port}", flush=True)
    server.serve_forever()
    return 0


def stop(_signal: int, _frame: FrameType | None) -> None:
    """End at once: a dripping connection would hold up any politer end, and commits are kept anyway."""
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
