"""How often one agent may ask: a fixed window of a minute, counted in this process's memory.

It keeps one runaway loop from starving the others. It is no security boundary and no accounting: each web
process counts for itself, and a restart forgets.
"""

import threading
import time
from dataclasses import dataclass

from django.conf import settings

WINDOW = 60
DEFAULT_PER_MINUTE = 30_000  # 500 a second: about what one process can answer at all
MOST_CALLERS = 10_000


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """What is left for one caller. `reset` in seconds until the window starts anew."""

    limit: int
    remaining: int
    reset: int
    allowed: bool

    def headers(self) -> dict[str, str]:
        """The rate headers that stand on every answer."""
        return {
            "RateLimit-Limit": str(self.limit),
            "RateLimit-Remaining": str(self.remaining),
            "RateLimit-Reset": str(self.reset),
        }


class Limiter:
    """Counts requests per caller and window. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, tuple[int, int]] = {}  # caller -> (window number, requests)

    def ask(self, caller: str, *, cost: int = 1) -> Allowance:
        """Count a request (`cost` 0: only look) and say what is left."""
        limit = int(getattr(settings, "API_RATE_PER_MINUTE", DEFAULT_PER_MINUTE))
        now = time.monotonic()
        window = int(now // WINDOW)
        reset = max(1, round((window + 1) * WINDOW - now))
        with self._lock:
            known, used = self._counts.get(caller, (window, 0))
            if known != window:
                used = 0
            allowed = used + cost <= limit
            if allowed:
                used += cost
            if caller not in self._counts and len(self._counts) >= MOST_CALLERS:
                self._counts = {name: entry for name, entry in self._counts.items() if entry[0] == window}
                if len(self._counts) >= MOST_CALLERS:
                    self._counts.clear()
            self._counts[caller] = (window, used)
        return Allowance(limit=limit, remaining=max(0, limit - used), reset=reset, allowed=allowed)

    def forget(self) -> None:
        """Start from nothing, for tests."""
        with self._lock:
            self._counts.clear()


limiter = Limiter()
