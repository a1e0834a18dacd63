"""Holding `GET /v1/actions/{id}?wait=N` (wire: at most 30 s): a thin ASGI wrapper around the Django application.

Django answers, and the wrapper decides whether to give the answer out or to ask again later. Between two
questions a waiting client costs a timer and a socket: no thread, no database connection (design, *Agent API*).
Nothing is authenticated, read or rendered in this room.
"""

import asyncio
import re
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from approvals.asgitypes import Application, Message, Receive, Scope, Send
from approvals.polling import SCOPE_KEY, Poll

ADDRESS = re.compile(r"/v1/actions/[^/]+")
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 0.5
QUESTIONS_PER_SECOND = 200
"""Of all waiting clients together: with many of them the pauses grow, so that deciding stays quick."""
MOST_WAITING = 2_000
MOST_BODY = 1024 * 1024
"""An answer larger than this is given out and not held; an action is far smaller."""


@dataclass
class Held:
    """Django's answer, kept back until it is known whether to give it out."""

    messages: list[Message] = field(default_factory=list)
    size: int = 0

    async def take(self, message: Message) -> None:
        """Stands in for the server's `send`."""
        self.messages.append(message)
        self.size += len(message.get("body", b""))

    @property
    def status(self) -> int:
        """The answer's status; 0 where there is none."""
        return int(self.messages[0]["status"]) if self.messages else 0

    async def give(self, send: Send) -> None:
        """To the client."""
        for message in self.messages:
            await send(message)


class LongPoll:
    """The wrapper. One per process; counts who waits, and lets everyone go when the process is told to stop."""

    def __init__(self, application: Application) -> None:
        self.application = application
        self.waiting = 0
        self.stopping = threading.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            self._answer_waiters_on_stop()
            await self.application(scope, receive, send)
        elif self._may_wait(scope):
            await self._hold(scope, receive, send)
        else:
            await self.application(scope, receive, send)

    def _may_wait(self, scope: Scope) -> bool:
        """Whether the request could be one to hold; whether it is, the view says after reading it."""
        if scope["type"] != "http" or scope["method"] != "GET" or not ADDRESS.fullmatch(scope["path"]):
            return False
        asks = b"wait" in scope.get("query_string", b"") or any(
            name == b"prefer" for name, _ in scope["headers"]
        )
        return asks and self.waiting < MOST_WAITING and not self.stopping.is_set()

    async def _hold(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Ask until there is something to tell, the time is over, or the client has gone.

        1. Ask Django; the time counts from here (RFC 7240). An answer that is neither 200 nor 304 is given out.
        2. With `If-None-Match`, a 304 is worth waiting for; without, an action that is undecided, or decided and
           not final, until it has come further than that.
        3. Pause without anything held, ask again.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        note = Poll()
        gone = loop.create_task(disconnected(receive))
        self.waiting += 1
        try:
            held = await self._ask(scope, note)
            first, pause = note.phase, FIRST_PAUSE
            until = began + note.wait
            conditional = any(name == b"if-none-match" for name, _ in scope["headers"])
            while worth_waiting(held, conditional, first, note.phase) and not self.stopping.is_set():
                left = until - loop.time()
                if left <= 0:
                    break
                await asyncio.wait({gone}, timeout=min(left, max(pause, self.waiting / QUESTIONS_PER_SECOND)))
                if gone.done():
                    return
                pause = min(pause * 1.5, LONGEST_PAUSE)
                held = await self._ask(scope, note)
            await held.give(send)
        finally:
            self.waiting -= 1
            gone.cancel()
            with suppress(asyncio.CancelledError):
                await gone

    async def _ask(self, scope: Scope, note: Poll) -> Held:
        note.asked += 1
        note.phase = ""
        held = Held()
        await self.application({**scope, SCOPE_KEY: note}, empty_body, held.take)
        return held

    def _answer_waiters_on_stop(self) -> None:
        """Chain to the server's own handling of SIGTERM and SIGINT, so that a stop is not held up for 30 s."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            before = signal.getsignal(number)
            if callable(before):
                signal.signal(number, self._stopper(before))

    def _stopper(
        self, before: Callable[[int, FrameType | None], Any]
    ) -> Callable[[int, FrameType | None], Any]:
        def stop(number: int, frame: FrameType | None) -> Any:
            self.stopping.set()
            return before(number, frame)

        return stop


def worth_waiting(held: Held, conditional: bool, first: str, now: str) -> bool:
    """Whether the answer says nothing new yet: a 304, or else the phase in which the waiting began."""
    if conditional:
        return held.status == 304
    return held.status == 200 and held.size <= MOST_BODY and now == first and now in {"pending", "decided"}


async def disconnected(receive: Receive) -> None:
    """Returns when the client has gone. A body that a GET should not have is thrown away, piece by piece."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def empty_body() -> Message:
    """What Django reads: a GET's body means nothing."""
    return {"type": "http.request", "body": b"", "more_body": False}
