"""Effects that land later (`delay_commit`): a thread that makes each when it is due by the provider's clock.

They lie in the store, so a killed sandbox lands them after its next start, at once where they are overdue.
"""

import json
import threading
from collections.abc import Callable
from typing import cast

from .idempotency import Execute, land
from .params import Params
from .store import Store

type Planner = Callable[[str, str, Params, float], Execute]
"""(endpoint, account, parameters, seconds hidden) → what to execute."""


class Landing:
    """Waits for due effects; `wake` it whenever one was added or the clock was moved."""

    def __init__(self, store: Store, plan: Planner) -> None:
        self._store = store
        self._plan = plan
        self._changed = threading.Event()

    def start(self) -> None:
        """Land from now on, in a daemon thread."""
        threading.Thread(target=self._run, name="landing", daemon=True).start()

    def wake(self) -> None:
        """Look again."""
        self._changed.set()

    def land_due(self) -> float | None:
        """Make every effect that is due; returns the seconds until the next one, or None."""
        while True:
            with self._store.transaction() as books:
                found = books.pending("1 = 1", [], "ORDER BY due, seq LIMIT 1")
                if not found:
                    return None
                pending = found[0]
                if pending.due > books.now:
                    return pending.due - books.now
                params = cast("Params", json.loads(pending.params))
                land(books, pending, self._plan(pending.endpoint, pending.account, params, pending.hide))

    def _run(self) -> None:
        while True:
            # Cleared before looking, so that a change while looking is not slept through.
            self._changed.clear()
            seconds = self.land_due()
            self._changed.wait(None if seconds is None else min(seconds, 3600))
