"""Faults of real processes, each alone: killed workers, a broker that is emptied, refuses, or falls silent.

Judged by the provider's books; nobody helps.
"""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.models import Attempt, JournalEntry, Outbox
from ledger.transactions import tenant_reads
from tests.ledger_steps import in_parallel
from tests.live import Live, live, refund_body
from tests.sandbox_process import wait_until

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def system(django_db_setup: None) -> Iterator[Live]:
    with live() as running:
        running.start_beat()
        yield running


@pytest.fixture(autouse=True)
def calm(system: Live) -> Iterator[None]:
    """A worker is there before each test and nothing is armed; afterwards whatever was left is put right."""
    system.sandbox.faults([])
    if "worker" not in system.children:
        system.start_worker()
    yield
    for name in list(system.children):
        if system.children[name].exited():
            system.supervisor.kill(system.children.pop(name))


@pytest.mark.parametrize(
    ("point", "allowed_by", "state"),
    [
        ("after_lease", ["first"], "succeeded"),
        ("after_claim", ["first", "provider_guarantee"], "succeeded"),
        ("after_commit", ["first"], "reconciled_succeeded"),
        ("after_record", ["first"], "succeeded"),
    ],
)
def test_a_worker_killed_at(
    point: str, allowed_by: list[str], state: str, system: Live, tmp_path: Path
) -> None:  # R-G1, R-C3, K19
    here = system.world()
    payment = system.payment(here)
    action_id = system.submit(here, payment)
    wait_until(
        lambda: not Outbox.objects.filter(tenant_id=here.tenant_id, step="observe").exists(),
        what="the record",
    )
    system.kill("worker")
    mark = tmp_path / "crashed"
    doomed = system.start_worker(
        module="tests.faults.crashing_worker", extra={"CRASH_AT": point, "CRASH_MARK": str(mark)}
    )
    system.approve(here, action_id)
    wait_until(doomed.exited, seconds=30, what="the death of the worker")
    assert mark.exists()
    system.supervisor.kill(system.children.pop("worker"))
    system.start_worker()
    final = system.final(here, action_id)
    assert final["execution"]["status"] == state
    assert system.refunds(payment) == [4_900]
    with tenant_reads(here.tenant_id):
        attempts = Attempt.objects.filter(operation__action_id=action_id).order_by("number")
        assert [attempt.allowed_by for attempt in attempts] == allowed_by
        assert not JournalEntry.objects.filter(event="case.opened").exists()
    assert not Outbox.objects.filter(tenant_id=here.tenant_id).exists()


def test_a_lost_acknowledgement(system: Live) -> None:  # R-G2
    here = system.world()
    payment = system.payment(here)
    system.sandbox.fault("refund.create", "lose_ack", payment=payment)
    action_id = system.submit(here, payment)
    system.approve(here, action_id)
    assert system.final(here, action_id)["execution"]["status"] == "reconciled_succeeded"
    assert system.refunds(payment) == [4_900]


def test_a_worker_restarted_during_recovery(system: Live) -> None:  # R-G2
    here = system.world()
    payment = system.payment(here)
    system.sandbox.faults(
        [
            {"on": "refund.create", "times": 1, "fault": "lose_ack", "payment": payment},
            {"on": "refund.list", "times": 2, "fault": "slow", "seconds": 1.5, "payment": payment},
        ]
    )
    action_id = system.submit(here, payment)
    system.approve(here, action_id)
    wait_until(lambda: system.refunds(payment) == [4_900], seconds=20, what="the refund")
    system.kill("worker")
    system.start_worker()
    assert system.final(here, action_id)["execution"]["status"] == "reconciled_succeeded"
    assert system.refunds(payment) == [4_900]


def test_a_flushed_broker_loses_nothing(system: Live) -> None:  # R-C6, K50
    here = system.world()
    payments = [system.payment(here) for _ in range(8)]
    actions = [system.submit(here, payment, step=f"step-{n}") for n, payment in enumerate(payments)]
    wait_until(
        lambda: not Outbox.objects.filter(tenant_id=here.tenant_id, step="observe").exists(), what="records"
    )
    system.kill("worker")
    for action_id in actions:
        system.approve(here, action_id)
    with system.broker() as broker:
        assert broker.flushall()
    system.start_worker()
    for action_id in actions:
        assert system.final(here, action_id)["execution"]["status"] == "succeeded"
    assert [system.refunds(payment) for payment in payments] == [[4_900]] * len(payments)


@pytest.mark.parametrize("broken", ["silent", "refusing"])
def test_a_broken_broker_neither_slows_nor_loses_a_decision(broken: str, system: Live) -> None:  # R-C6, K17
    here = system.world()
    payment = system.payment(here)
    action_id = system.submit(here, payment)
    valkey = system.server("valkey")
    with system.reviewer(here) as person:
        wait_until(
            lambda: not Outbox.objects.filter(tenant_id=here.tenant_id, step="observe").exists(),
            what="the record",
        )
        form = person.question(action_id)
        if broken == "silent":
            os.kill(valkey.pid, signal.SIGSTOP)
        else:
            system.engines.kill("valkey")
        try:
            began = time.monotonic()
            answer = person.answer(form, "approve")
            took = time.monotonic() - began
        finally:
            if broken == "silent":
                os.kill(valkey.pid, signal.SIGCONT)
            else:
                system.engines.revive("valkey")
    assert answer.status_code == 303
    assert took < 1.0, f"the reviewer waited {took:.2f} s"
    assert system.final(here, action_id, seconds=60)["execution"]["status"] == "succeeded"
    assert system.refunds(payment) == [4_900]


def test_twenty_submissions_and_twenty_decisions_at_once(system: Live) -> None:  # R-G4, K29
    here = system.world()
    payment = system.payment(here)

    def submit() -> tuple[str, str]:
        with system.agent(here) as agent:
            for _ in range(100):
                answer = agent.submit(refund_body(payment), key="one-key-for-all")
                if answer.status_code == 201:
                    return answer.headers.get("Idempotent-Replayed", "new"), answer.json()["id"]
                assert answer.status_code == 409, answer.text
                assert answer.headers["Retry-After"] == "1"
                time.sleep(0.05)
        raise AssertionError("still 409 after a hundred tries")

    answers = in_parallel(*[submit] * 20)
    assert sorted(how for how, _ in answers) == ["new"] + ["true"] * 19
    assert len({action for _, action in answers}) == 1
    action_id = answers[0][1]
    wait_until(
        lambda: not Outbox.objects.filter(tenant_id=here.tenant_id, step="observe").exists(),
        what="the record",
    )
    with system.reviewer(here, 0) as first, system.reviewer(here, 1) as second:
        asked = [(person, person.question(action_id)) for person in (first, second) for _ in range(10)]
        statuses = in_parallel(*[lambda p=p, f=f: p.answer(f, "approve").status_code for p, f in asked])
    assert set(statuses) <= {303, 409}, statuses
    assert 303 in statuses
    assert system.final(here, action_id)["execution"]["status"] == "succeeded"
    assert system.refunds(payment) == [4_900]
    with tenant_reads(here.tenant_id):
        assert JournalEntry.objects.filter(event="action.approved").count() == 1
