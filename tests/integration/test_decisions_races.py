"""Deciding at once, deciding while something fails: exactly one takes effect, and the rest get an answer."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Thread
from typing import Any
from unittest.mock import patch
from uuid import UUID

import psycopg
import pytest
from django.conf import settings
from django.db import OperationalError, connection
from pytest_django import Settings

from approvals import decisions, policies, settlement, tenants
from approvals.decisions import (
    ChangedError,
    DecisionError,
    ExpiredError,
    NotEntitledError,
    Outcome,
    SettledError,
)
from approvals.models import ActionStatus
from ledger import locks, outbox
from ledger.errors import JournalError
from ledger.journal import SYSTEM, verify
from ledger.transactions import tenant_reads, tenant_transaction
from tests.actions import bindings, decide, decision_of, question, row, stock
from tests.conftest import Clock
from tests.factories import POLICY, World, world
from tests.ledger_steps import in_parallel

pytestmark = pytest.mark.usefixtures("db")

LARGE = 60_000
ROUNDS = 20
DECIDE_SECONDS = 1.0
"""What a decision may take with the broker dead or deaf."""


@pytest.fixture
def here() -> World:
    return world(reviewers=4)


def kinds_of(results: list[Any]) -> dict[str, int]:
    """How often each kind of answer came."""
    found: dict[str, int] = {}
    for one in results:
        name = (
            ("replayed" if one.replayed else "took effect")
            if isinstance(one, Outcome)
            else type(one).__name__
        )
        found[name] = found.get(name, 0) + 1
    return found


# --- many at once -------------------------------------------------------------------------------------------
def test_twenty_at_once_are_one_decision(here: World) -> None:  # R-B3, K29, K30
    for _ in range(ROUNDS):
        twenty_at_once(here)
    with tenant_reads(here.tenant_id):
        assert verify(here.tenant_id).fault == ""


def twenty_at_once(here: World) -> None:
    """One round: 14 approvals and 6 rejections by four people, several of them clicking more than once."""
    action_id = question(here)
    calls: list[Callable[[], Outcome]] = []
    for number in range(20):
        user = here.reviewers[number % 4]
        verdict = "reject" if number % 8 >= 6 else "approve"
        bound = bindings(here, user, action_id)
        calls.append(partial(decide, here, user, action_id, verdict, bound=bound))
    results = in_parallel(*calls)
    assert all(isinstance(one, Outcome | DecisionError) for one in results), results
    found = kinds_of(results)
    assert found["took effect"] == 1, found
    assert set(found) <= {"took effect", "replayed", "SettledError"}, found
    after = stock(here, action_id)
    approved = after.status == "approved"
    assert (after.votes, after.decisions, after.operations) == (1, 1, int(approved))
    assert {
        name: count for name, count in after.events.items() if name.startswith(("vote", "action.", "oper"))
    } == {
        "action.submitted": 1,
        "action.observed": 1,
        "vote.cast": 1,
        f"action.{after.status}": 1,
    } | ({"operation.prepared": 1} if approved else {})
    assert after.steps == (("execute",) if approved else ())
    decision = decision_of(here, action_id)
    for one in results:  # the losers see who decided and when
        if isinstance(one, SettledError | Outcome):
            assert (one.by_names, one.decided_at) == (tuple(decision.by_names), decision.decided_at)


def test_a_quorum_reached_by_four_at_once(here: World) -> None:  # R-B3
    for _ in range(5):
        action_id = question(here, amount=LARGE)
        opened = [(user, bindings(here, user, action_id)) for user in here.reviewers]
        results = in_parallel(
            *(partial(decide, here, user, action_id, bound=bound) for user, bound in opened)
        )
        assert kinds_of(results) == {"took effect": 2, "SettledError": 2}
        after = stock(here, action_id)
        assert (after.status, after.votes, after.decisions, after.operations) == ("approved", 2, 1, 1)


def test_deciding_cancelling_and_expiring_at_once(here: World, clock: Clock) -> None:  # K18, K32
    for _ in range(5):
        action_id = question(here)
        bound = bindings(here, here.reviewers[0], action_id)
        clock.at(row(here, action_id).expires_at)
        results = in_parallel(
            partial(decisions.expire_due, here.tenant_id, action_id),
            partial(decisions.expire_due, here.tenant_id, action_id),
            partial(decide, here, here.reviewers[0], action_id, bound=bound),
            partial(decisions.cancel, tenant_id=here.tenant_id, agent_id=here.agent.id, action_id=action_id),
        )
        clock.true()
        assert isinstance(results[2], ExpiredError), results
        after = stock(here, action_id)
        assert (after.status, after.decisions, after.votes, after.operations) == ("expired", 1, 0, 0)
        assert after.events["action.expired"] == 1
        assert after.steps == ()


# --- a rival at one exact moment ----------------------------------------------------------------------------
@contextmanager
def rival_before(target: Any, name: str, run: Callable[[], Any]) -> Iterator[None]:
    """Run a rival to its end, once, on a connection of its own, just before `target.name` is called."""
    original = getattr(target, name)
    done: list[bool] = []

    def first_the_rival(*args: Any, **named: Any) -> Any:
        if not done:
            done.append(True)
            elsewhere(run)
        return original(*args, **named)

    with patch.object(target, name, first_the_rival):
        yield
    assert done, f"{name} was never called"


def elsewhere(run: Callable[[], Any]) -> None:
    """In another thread, and so on another connection; waits for its end."""
    failed: list[BaseException] = []

    def work() -> None:
        try:
            run()
        except BaseException as error:  # noqa: BLE001 - told to the test
            failed.append(error)
        finally:
            connection.close()

    thread = Thread(target=work)
    thread.start()
    thread.join(30)
    assert not thread.is_alive(), "the rival never came back"
    assert not failed, failed


def test_a_rival_that_decides_just_before_the_lock(here: World) -> None:  # K29
    rana, omar = here.reviewers[:2]
    action_id = question(here)
    mine, theirs = bindings(here, rana, action_id), bindings(here, omar, action_id)
    with (
        rival_before(decisions, "lock_action", partial(decide, here, omar, action_id, bound=theirs)),
        pytest.raises(SettledError) as caught,
    ):
        decide(here, rana, action_id, bound=mine)
    assert caught.value.by_names == (omar.username,)
    assert (stock(here, action_id).votes, stock(here, action_id).operations) == (1, 1)


def test_a_stop_that_answers_just_before_the_stop_lock_holds(here: World) -> None:  # K41, invariant 9
    rana = here.reviewers[0]
    action_id = question(here)
    bound = bindings(here, rana, action_id)
    with (
        rival_before(decisions, "stop_lock_shared", partial(tenants.revoke_roles, here.tenant_id, rana)),
        pytest.raises(NotEntitledError),
    ):
        decide(here, rana, action_id, bound=bound)
    assert stock(here, action_id).votes == 0


def test_a_policy_that_is_in_force_just_before_the_stop_lock_holds(here: World) -> None:
    action_id = question(here)
    bound = bindings(here, here.reviewers[0], action_id)
    publish = partial(policies.publish, here.tenant_id, kind="refund", document=POLICY, by="test")
    with rival_before(decisions, "stop_lock_shared", publish), pytest.raises(ChangedError):
        decide(here, here.reviewers[0], action_id, bound=bound)
    assert stock(here, action_id).votes == 0


def test_the_clock_is_read_after_the_wait_for_the_lock(here: World, clock: Clock) -> None:  # invariant 7
    action_id = question(here)
    bound = bindings(here, here.reviewers[0], action_id)
    limit = row(here, action_id).expires_at
    with rival_before(decisions, "lock_action", lambda: clock.at(limit)), pytest.raises(ExpiredError):
        decide(here, here.reviewers[0], action_id, bound=bound)
    assert (stock(here, action_id).status, stock(here, action_id).votes) == ("expired", 0)


def test_a_stop_waits_for_the_decision_that_is_under_way(here: World) -> None:  # invariant 9
    rana = here.reviewers[0]
    action_id = question(here)
    bound = bindings(here, rana, action_id)
    order: list[str] = []

    def stop() -> None:
        tenants.revoke_roles(here.tenant_id, rana)
        order.append("stopped")
        connection.close()

    stopping = Thread(target=stop)
    original = settlement.settle_action

    def settle(*args: Any, **named: Any) -> Any:
        stopping.start()
        wait_for_lock(here.tenant_id)
        order.append("deciding")
        return original(*args, **named)

    with patch.object(decisions, "settle_action", settle):
        assert decide(here, rana, action_id, bound=bound).status == "approved"
    stopping.join(30)
    assert order == ["deciding", "stopped"]


def wait_for_lock(tenant_id: UUID) -> None:
    """Until somebody waits for the tenant's stop lock."""
    number = locks.lock_number(f"stop:{tenant_id}") % 2**64
    until = time.monotonic() + 10
    while time.monotonic() < until:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
                " AND classid::bigint = %s AND objid::bigint = %s",
                [number >> 32, number & 0xFFFFFFFF],
            )
            if cursor.fetchone() == (1,):
                return
    raise AssertionError("nobody waits for the stop lock")


def test_settling_a_settled_action_is_an_answer_and_not_a_second_outcome(here: World) -> None:  # invariant 4
    action_id = question(here)
    stale = row(here, action_id)
    decide(here, here.reviewers[0], action_id)
    before = stock(here, action_id)
    with pytest.raises(SettledError), tenant_transaction(here.tenant_id) as tx:
        decisions.settle_action(
            tx,
            stale,
            ActionStatus.REJECTED,
            by_type="system",
            by_names=[],
            reason="late",
            actor=SYSTEM,
        )
    assert stock(here, action_id) == before


# --- when something fails -----------------------------------------------------------------------------------
REFUSE = """
    CREATE FUNCTION test_no_journal() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no room'; END $$;
    CREATE TRIGGER test_no_journal BEFORE INSERT ON ledger_journalentry
    FOR EACH ROW EXECUTE FUNCTION test_no_journal()
"""
ALLOW = "DROP TRIGGER test_no_journal ON ledger_journalentry; DROP FUNCTION test_no_journal()"
BREAKAGES = {
    "the table refuses": (REFUSE, ALLOW),
    "the right is gone": (
        "REVOKE INSERT ON ledger_journalentry FROM {app}",
        "GRANT INSERT ON ledger_journalentry TO {app}",
    ),
}


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_without_the_journal_nothing_is_consumed(  # K69
    here: World, owner: psycopg.Connection, breakage: str
) -> None:
    action_id = question(here)
    bound = bindings(here, here.reviewers[0], action_id)
    before = stock(here, action_id)
    breaks, mends = (text.format(app=settings.APPLICATION_ROLE) for text in BREAKAGES[breakage])
    owner.autocommit = True
    hints: list[UUID] = []
    with patch.object(outbox, "hint", hints.append):
        owner.execute(breaks.encode())
        try:
            for verdict in ("approve", "reject"):
                with pytest.raises(JournalError):
                    decide(here, here.reviewers[0], action_id, verdict, bound=bound)
            with pytest.raises(JournalError):
                decisions.cancel(tenant_id=here.tenant_id, agent_id=here.agent.id, action_id=action_id)
        finally:
            owner.execute(mends.encode())
        assert stock(here, action_id) == before
        assert hints == []
        assert decide(here, here.reviewers[0], action_id, bound=bound).status == "approved"
        assert len(hints) == 1
    assert (stock(here, action_id).votes, stock(here, action_id).steps) == (1, ("execute",))


def test_a_lock_that_cannot_be_had_consumes_nothing(here: World, owner: psycopg.Connection) -> None:
    action_id = question(here)
    bound = bindings(here, here.reviewers[0], action_id)
    before = stock(here, action_id)
    superuser = os.environ["TEST_SUPERUSER_URL"].rsplit("/", 1)[0] + f"/{owner.info.dbname}"
    with psycopg.connect(superuser) as holder:
        holder.execute("SELECT 1 FROM approvals_action WHERE id = %s FOR UPDATE", [action_id])
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '50ms'")
        with pytest.raises(OperationalError):
            decide(here, here.reviewers[0], action_id, bound=bound)
        holder.rollback()
    connection.close()
    assert stock(here, action_id) == before
    assert decide(here, here.reviewers[0], action_id, bound=bound).status == "approved"


@pytest.fixture
def no_publisher() -> Iterator[None]:
    """A publisher that is made anew from the settings, before and after."""
    outbox._publisher = None
    yield
    outbox._publisher = None


@contextmanager
def deaf() -> Iterator[int]:
    """A port that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield int(listener.getsockname()[1])


@pytest.mark.parametrize("broker", ["dead", "deaf"])
@pytest.mark.usefixtures("no_publisher")
def test_a_lost_broker_neither_fails_nor_slows_a_decision(  # R-C6, invariant 2
    here: World, settings: Settings, broker: str
) -> None:
    action_id = question(here)
    bound = bindings(here, here.reviewers[0], action_id)
    outbox._publisher = None  # what the submission above has used
    with deaf() as port:
        settings.CELERY_BROKER_URL = f"redis://127.0.0.1:{port if broker == 'deaf' else 1}/0"
        started = time.monotonic()
        outcome = decide(here, here.reviewers[0], action_id, bound=bound)
        took = time.monotonic() - started
    assert outcome.status == "approved"
    assert took < DECIDE_SECONDS
    assert stock(here, action_id).steps == ("execute",)


def test_nothing_is_published_inside_the_transaction(here: World) -> None:  # invariant 3
    action_id = question(here)
    inside: list[bool] = []
    with patch.object(outbox, "hint", lambda _: inside.append(connection.in_atomic_block)):
        decide(here, here.reviewers[0], action_id)
    assert inside == [False]


def test_the_lock_is_of_the_row_alone_and_lets_references_be_made(here: World) -> None:  # K70
    action_id = question(here)
    bound = bindings(here, here.reviewers[0], action_id)
    statements: list[str] = []

    def listen(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        statements.append(sql)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(listen):
        decide(here, here.reviewers[0], action_id, bound=bound)
    (locking,) = [sql for sql in statements if "FOR NO KEY UPDATE" in sql and "approvals_action" in sql]
    assert locking.endswith('FOR NO KEY UPDATE OF "approvals_action"')
    order = [
        next(number for number, sql in enumerate(statements) if part in sql)
        for part in (
            "pg_advisory_xact_lock_shared",
            "approvals_action",
            "SELECT ledger_now()",
            "approvals_membership",
        )
    ]
    assert order == sorted(order)
    assert "ledger_chainhead" in statements[-1]
