"""What the waiting wrapper and the view say to each other about one request; nothing else.

The note travels in the ASGI scope, which a client cannot write to, so that no header has to be trusted or
stripped. Under plain WSGI there is none, and `wait` answers at once.
"""

from dataclasses import dataclass

from django.http import HttpRequest

SCOPE_KEY = "second_key.poll"


@dataclass(kw_only=True)
class Poll:
    """A note about one request that may be held."""

    asked: int = 0
    """How often the wrapper has asked for it, this time included; it is counted once against the rate."""
    wait: int = 0
    """Seconds to hold, as the view read them; 0: answer at once."""
    phase: str = ""
    """`pending`, `decided` or `final`, as the view just answered; empty: there is nothing to wait for."""


def poll_of(request: HttpRequest) -> Poll | None:
    """The wrapper's note, where the request came through it."""
    scope = request.META.get("asgi.scope")
    note = scope.get(SCOPE_KEY) if isinstance(scope, dict) else None
    return note if isinstance(note, Poll) else None
