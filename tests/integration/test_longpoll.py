"""Holding a poll: a real web process, real waiting, no thread and no connection while it waits (R-A, K24, K28)."""

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import httpx
import psutil
import pytest
from django.db import connection

from approvals import agents
from approvals.asgitypes import Message, Scope
from approvals.longpoll import LongPoll, worth_waiting
from approvals.models import Action, ActionStatus
from approvals.polling import SCOPE_KEY, Poll
from approvals.settlement import lock_action, settle_action
from ledger.journal import SYSTEM, Actor
from ledger.operations import cancel_undispatched, lock_for_action
from ledger.transactions import tenant_transaction
from tests.agent_calls import AgentClient, WebServer, submission, web_server
from tests.conftest import Clock
from tests.factories import World, world

pytestmark = pytest.mark.usefixtures("db")


@pytest.fixture(scope="module")
def server(django_db_setup: None) -> Iterator[WebServer]:
    with web_server() as running:
        yield running


@pytest.fixture
def made() -> World:
    return world()


@pytest.fixture
def pending(made: World) -> dict[str, Any]:
    obj: dict[str, Any] = AgentClient(made).submit(submission()).json()
    return obj


class Waiting:
    """A poll in a thread of its own, with how long it took."""

    def __init__(
        self, server: WebServer, made: World, obj: dict[str, Any], query: str = "", **headers: str
    ) -> None:
        self.answer: httpx.Response | None = None
        self.seconds = 0.0

        def run() -> None:
            began = time.monotonic()
            self.answer = httpx.get(
                f"{server.url}/v1/actions/{obj['id']}{query}",
                headers={"Authorization": f"Bearer {made.token}"} | headers,
                timeout=40,
            )
            self.seconds = time.monotonic() - began

        self.thread = threading.Thread(target=run)
        self.thread.start()

    def result(self) -> httpx.Response:
        """The answer, when it has come."""
        self.thread.join(40)
        assert self.answer is not None
        return self.answer

    def is_held(self, seconds: float = 0.6) -> bool:
        """Whether there is no answer yet after a while."""
        self.thread.join(seconds)
        return self.thread.is_alive()


def decide(made: World, obj: dict[str, Any], status: ActionStatus = ActionStatus.REJECTED) -> None:
    """As a reviewer does, in another process than the server's."""
    with tenant_transaction(made.tenant_id) as tx:
        settle_action(
            tx,
            lock_action(UUID(obj["id"])),
            status,
            by_type="reviewer",
            by_names=["rana"],
            reason="",
            actor=Actor(type="reviewer", id="1"),
        )


def close_operation(made: World, obj: dict[str, Any]) -> None:
    """The approved action becomes final."""
    with tenant_transaction(made.tenant_id) as tx:
        (operation,) = lock_for_action(UUID(obj["id"]))
        assert cancel_undispatched(tx, operation, reason="test", actor=SYSTEM)


def test_a_pending_action_is_held_until_it_is_decided(
    server: WebServer, made: World, pending: dict[str, Any]
) -> None:
    waiting = Waiting(server, made, pending, "?wait=20")
    assert waiting.is_held()
    decide(made, pending)
    answer = waiting.result()
    assert (answer.status_code, answer.json()["status"]) == (200, "rejected")
    assert waiting.seconds < 5
    assert answer.headers["ETag"]
    assert answer.headers["X-Request-ID"]


def test_the_wait_ends_with_what_stands(server: WebServer, made: World, pending: dict[str, Any]) -> None:
    waiting = Waiting(server, made, pending, "?wait=1")
    answer = waiting.result()
    assert (answer.status_code, answer.json()["status"]) == (200, "pending")
    assert 0.9 <= waiting.seconds < 4


def test_a_decided_action_is_held_until_it_is_final(
    server: WebServer, made: World, pending: dict[str, Any]
) -> None:
    decide(made, pending, ActionStatus.APPROVED)
    waiting = Waiting(server, made, pending, "?wait=20")
    assert waiting.is_held()
    close_operation(made, pending)
    answer = waiting.result()
    assert (answer.json()["final"], answer.json()["execution"]["status"]) == (True, "cancelled")


def test_a_poll_that_began_undecided_ends_with_the_decision(
    server: WebServer, made: World, pending: dict[str, Any]
) -> None:
    waiting = Waiting(server, made, pending, "?wait=20")
    assert waiting.is_held()
    decide(made, pending, ActionStatus.APPROVED)
    answer = waiting.result()
    assert (answer.json()["status"], answer.json()["final"]) == ("approved", False)


def test_a_final_action_is_answered_at_once(server: WebServer, made: World, pending: dict[str, Any]) -> None:
    decide(made, pending)
    waiting = Waiting(server, made, pending, "?wait=20")
    assert waiting.result().json()["final"] is True
    assert waiting.seconds < 3


def test_if_none_match_holds_until_anything_differs(
    server: WebServer, made: World, pending: dict[str, Any]
) -> None:
    now = Waiting(server, made, pending).result()
    waiting = Waiting(server, made, pending, "?wait=20", **{"If-None-Match": now.headers["ETag"]})
    assert waiting.is_held()
    with tenant_transaction(made.tenant_id):  # still pending, but another question
        Action.objects.filter(id=pending["id"]).update(changes_requested={"by": "rana", "note": "?"})
    answer = waiting.result()
    assert (answer.status_code, answer.json()["status"]) == (200, "pending")
    assert answer.headers["ETag"] != now.headers["ETag"]
    stale = Waiting(server, made, pending, "?wait=20", **{"If-None-Match": now.headers["ETag"]})
    assert stale.result().status_code == 200
    assert stale.seconds < 3


def test_if_none_match_and_nothing_new_is_304_at_the_end(
    server: WebServer, made: World, pending: dict[str, Any]
) -> None:
    tag = Waiting(server, made, pending).result().headers["ETag"]
    waiting = Waiting(server, made, pending, "?wait=1", **{"If-None-Match": tag})
    answer = waiting.result()
    assert (answer.status_code, answer.content, answer.headers["ETag"]) == (304, b"", tag)
    assert waiting.seconds >= 0.9


def test_prefer_wait_holds_and_says_so(server: WebServer, made: World, pending: dict[str, Any]) -> None:
    # RFC 7240
    waiting = Waiting(server, made, pending, Prefer="respond-async, wait=1")
    answer = waiting.result()
    assert waiting.seconds >= 0.9
    assert answer.headers["Preference-Applied"] == "wait=1"


@pytest.mark.parametrize("query", ["?wait=0", "", "?wait=x"])
def test_what_does_not_ask_to_wait_is_answered_at_once(
    server: WebServer, made: World, pending: dict[str, Any], query: str
) -> None:
    waiting = Waiting(server, made, pending, query)
    assert waiting.result().status_code == (422 if query == "?wait=x" else 200)
    assert waiting.seconds < 3


def test_an_expiry_ends_the_wait(server: WebServer, made: World, clock: Clock) -> None:
    # K28: without a worker, from the database alone
    obj = AgentClient(made).submit(submission(expires_in=60)).json()
    waiting = Waiting(server, made, obj, "?wait=20")
    assert waiting.is_held()
    clock.ahead(61)
    answer = waiting.result()
    assert (answer.json()["status"], answer.json()["hint"]) == ("expired", {"supersedes": obj["id"]})


def test_a_revoked_token_ends_the_wait(server: WebServer, made: World, pending: dict[str, Any]) -> None:
    waiting = Waiting(server, made, pending, "?wait=20")
    assert waiting.is_held()
    agents.revoke_agent(made.tenant_id, made.agent.id)
    assert waiting.result().status_code == 401


def test_a_foreign_id_is_404_at_once(server: WebServer, pending: dict[str, Any]) -> None:
    waiting = Waiting(server, world(), pending, "?wait=20")
    assert waiting.result().status_code == 404
    assert waiting.seconds < 3


def test_a_wait_counts_once_against_the_rate(server: WebServer, made: World, pending: dict[str, Any]) -> None:
    first = int(Waiting(server, made, pending).result().headers["RateLimit-Remaining"])
    after = int(Waiting(server, made, pending, "?wait=2").result().headers["RateLimit-Remaining"])
    assert first - after == 1 or after > first  # the window may have turned over


def test_two_hundred_waiters_hold_no_threads_and_all_learn_of_it(server: WebServer, made: World) -> None:
    # K24, baselines: one thread per waiting connection is what this must not do
    assert server.process is not None
    process = psutil.Process(server.process.pid)
    objects = [AgentClient(made).submit(submission()).json() for _ in range(4)]

    def decide_all() -> None:
        for one in objects:
            decide(made, one)
        connection.close()  # this thread's own

    async def run() -> tuple[list[httpx.Response], int]:
        limits = httpx.Limits(max_connections=300, max_keepalive_connections=300)
        headers = {"Authorization": f"Bearer {made.token}"}
        async with httpx.AsyncClient(
            base_url=server.url, headers=headers, timeout=60, limits=limits
        ) as client:
            calls = [
                asyncio.create_task(client.get(f"/v1/actions/{objects[n % 4]['id']}?wait=30"))
                for n in range(200)
            ]
            done, _ = await asyncio.wait(calls, timeout=4)
            assert not done
            threads = process.num_threads()
            await asyncio.to_thread(decide_all)
            return list(await asyncio.gather(*calls)), threads

    answers, threads = asyncio.run(run())
    assert {one.status_code for one in answers} == {200}
    assert {one.json()["status"] for one in answers} == {"rejected"}
    assert threads < 30


def test_clients_that_go_away_leave_nothing_behind(
    server: WebServer, made: World, pending: dict[str, Any]
) -> None:
    # K73, for polls: connections that break do not poison what comes after
    headers = {"Authorization": f"Bearer {made.token}"}
    for _ in range(20):
        with pytest.raises(httpx.ReadTimeout):
            httpx.get(f"{server.url}/v1/actions/{pending['id']}?wait=20", headers=headers, timeout=0.15)
    for _ in range(20):
        assert httpx.get(f"{server.url}/v1/me", headers=headers, timeout=10).status_code == 200


def test_a_stop_answers_whoever_waits_instead_of_waiting_for_them(
    made: World, pending: dict[str, Any]
) -> None:
    with web_server() as own:
        waiting = Waiting(own, made, pending, "?wait=30")
        assert waiting.is_held(1)
        began = time.monotonic()
        own.stop(10)
        assert time.monotonic() - began < 8
        assert waiting.result().json()["status"] == "pending"
        assert waiting.seconds < 15


# --- the wrapper alone, without Django ------------------------------------------------------------------------


def scope(path: str = "/v1/actions/1", query: bytes = b"wait=20", method: str = "GET", **more: Any) -> Scope:
    """An ASGI scope."""
    return {"type": "http", "method": method, "path": path, "query_string": query, "headers": [], **more}


class Fake:
    """An application that answers a list of phases, one a question, the last for ever."""

    def __init__(self, *phases: str, wait: int = 20) -> None:
        self.phases = list(phases)
        self.wait = wait
        self.notes: list[Any] = []

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        note = scope.get(SCOPE_KEY)
        self.notes.append(note)
        if isinstance(note, Poll):
            note.wait = self.wait
            note.phase = self.phases.pop(0) if len(self.phases) > 1 else self.phases[0]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})


async def call(poll: LongPoll, asked: Scope, *, leave_after: float | None = None) -> list[Message]:
    """One request; the client leaves after a while, or stays."""
    sent: list[Message] = []

    async def receive() -> Message:
        await asyncio.sleep(60 if leave_after is None else leave_after)
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await poll(asked, receive, send)
    return sent


def test_the_wrapper_asks_until_the_phase_has_moved_on() -> None:
    fake = Fake("pending", "pending", "decided")
    sent = asyncio.run(call(LongPoll(fake), scope()))
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert [note.asked for note in fake.notes] == [3, 3, 3]  # one note, asked three times


@pytest.mark.parametrize(
    "asked",
    [
        scope(method="POST"),
        scope(query=b""),
        scope(path="/v1/actions"),
        scope(path="/v1/actions/1/cancel"),
        scope(path="/actions/1"),
    ],
)
def test_only_a_poll_with_a_wait_is_held(asked: Scope) -> None:
    fake = Fake("pending")
    asyncio.run(call(LongPoll(fake), asked))
    assert fake.notes == [None]


def test_a_client_that_has_gone_gets_nothing_and_is_no_longer_counted() -> None:
    poll = LongPoll(Fake("pending"))
    assert asyncio.run(call(poll, scope(), leave_after=0.05)) == []
    assert poll.waiting == 0


def test_beyond_the_cap_the_answer_comes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("approvals.longpoll.MOST_WAITING", 0)
    fake = Fake("pending")
    sent = asyncio.run(call(LongPoll(fake), scope()))
    assert len(sent) == 2
    assert fake.notes == [None]


def test_what_is_worth_waiting_for() -> None:
    class Answered:
        def __init__(self, status: int) -> None:
            self.status, self.size = status, 100

    def worth(status: int, conditional: bool, first: str, now: str) -> bool:
        return worth_waiting(Answered(status), conditional, first, now)  # type: ignore[arg-type]

    assert worth(304, True, "pending", "pending")
    assert worth(304, True, "final", "final")
    assert not worth(200, True, "pending", "pending")
    assert worth(200, False, "pending", "pending")
    assert worth(200, False, "decided", "decided")
    assert not worth(200, False, "pending", "decided")
    assert not worth(200, False, "final", "final")
    assert not worth(404, False, "", "")
    assert not worth(401, True, "", "")
