"""The numbered execution against the real sandbox, judged by its books alone."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from pytest_django import Settings

from ledger import execution, observations, operations, outbox
from ledger.answers import record
from ledger.errors import GuardRefusedError
from ledger.execution import Claim
from ledger.models import (
    Attempt,
    Case,
    JournalEntry,
    Operation,
    Outbox,
    Receipt,
    RecoveryPermission,
    Response,
)
from ledger.providers.base import Answer, Outcome, ReceiptData
from ledger.reconciliation import reconcile
from ledger.transactions import tenant_reads, tenant_transaction
from tests.conftest import Clock
from tests.factories import World, world
from tests.ledger_steps import attempts, drive, fresh, in_parallel, refund, run_due, steps
from tests.sandbox_process import Sandbox, sandbox

pytestmark = pytest.mark.usefixtures("db")


@pytest.fixture(scope="module")
def provider() -> Iterator[Sandbox]:
    with sandbox() as running:
        yield running


@pytest.fixture(autouse=True)
def bare_ledger(settings: Settings) -> None:
    settings.LEDGER_GUARDS = []
    settings.LEDGER_DEADLINE_SECONDS = 2.0
    settings.LEDGER_LEASE_SECONDS = 4.0
    settings.LEDGER_BACKOFF_SECONDS = 0.05


@pytest.fixture
def here(provider: Sandbox) -> World:
    provider.faults([])
    return world(provider_url=provider.url)


@pytest.fixture
def payment(provider: Sandbox, here: World) -> str:
    return provider.seed(
        {"amount": 10_000, "currency": "usd", "name": "Dana Fox"}, account=here.provider_secret
    )[0]


def books(provider: Sandbox, payment: str) -> list[int]:
    """The amounts of the refunds that the provider's books show on a payment."""
    return [refund["amount"] for refund in provider.payment(payment)["refunds"]]


def posts(provider: Sandbox, here: World) -> int:
    """How often this tenant's account was asked to refund."""
    calls = provider.books(here.provider_secret)["calls"]
    return int(calls.get("refund.create", 0))


def abandoned_claim(here: World, operation: Operation) -> Attempt:
    """A worker that claims and then dies: nothing of it comes back."""
    lease = uuid4()
    held = execution.take_lease(here.tenant_id, operation.id, lease)
    assert held is not None
    observation = execution.observe(here.tenant_id, held, lease)
    assert observation is not None
    attempt = execution.claim(here.tenant_id, operation.id, lease, observation)
    assert isinstance(attempt, Attempt)
    return attempt


def events(operation: Operation) -> list[str]:
    with tenant_reads(operation.tenant_id):
        query = JournalEntry.objects.filter(operation_id=operation.id).order_by("seq")
        return list(query.values_list("event", flat=True))


def test_a_refund_goes_through_once(provider: Sandbox, here: World, payment: str) -> None:  # R-C1, R-C2, R-C7
    operation = refund(here, payment)
    assert run_due(here.tenant_id) == ["succeeded"]
    assert fresh(operation).state == "succeeded"
    assert books(provider, payment) == [4_900]
    with tenant_reads(here.tenant_id):
        receipt = Receipt.objects.get()
        response = Response.objects.get()
    assert receipt.reference == provider.payment(payment)["refunds"][0]["id"]
    assert (receipt.amount, receipt.currency, receipt.source) == (4_900, "usd", "response")
    assert receipt.reference in response.body
    assert not response.late
    assert steps(here.tenant_id) == set()
    assert events(operation) == ["operation.prepared", "operation.dispatched", "operation.succeeded"]


def test_three_deliveries_two_at_once_make_one_call(
    provider: Sandbox, here: World, payment: str
) -> None:  # K12
    operation = refund(here, payment)
    provider.fault("refund.create", "slow", seconds=0.5)
    row = Outbox.objects.get(tenant_id=here.tenant_id)
    words = in_parallel(lambda: outbox.run(row.id), lambda: outbox.run(row.id))
    words.append(outbox.run(row.id))
    assert words.count("succeeded") == 1, words
    assert posts(provider, here) == 1
    assert books(provider, payment) == [4_900]
    assert fresh(operation).attempt_count == 1


@pytest.mark.parametrize("fault", ["lose_ack", "error_after", "truncate"])
def test_a_lost_answer_is_found_and_never_sent_again(
    fault: str, provider: Sandbox, here: World, payment: str, clock: Clock
) -> None:  # R-C2, R-C3, R-G2
    operation = refund(here, payment)
    provider.fault("refund.create", fault)
    assert run_due(here.tenant_id) == ["outcome unknown"]
    assert fresh(operation).unresolved
    assert steps(here.tenant_id) == {"reconcile"}
    drive(here.tenant_id, clock)
    assert fresh(operation).state == "reconciled_succeeded"
    assert not fresh(operation).unresolved
    assert (posts(provider, here), books(provider, payment)) == (1, [4_900])
    assert steps(here.tenant_id) == set()


def test_what_was_never_done_is_sent_again_under_the_same_key(
    provider: Sandbox, here: World, payment: str, clock: Clock
) -> None:  # R-D1, R-D2
    operation = refund(here, payment)
    provider.fault("refund.create", "error_before")
    drive(here.tenant_id, clock)
    first, second = attempts(operation)
    assert (first.allowed_by, first.outcome) == ("first", "unknown")
    assert (second.allowed_by, second.outcome) == ("provider_guarantee", "accepted")
    assert second.permission is not None
    assert second.permission.valid_until is not None
    assert fresh(operation).state == "succeeded"
    assert books(provider, payment) == [4_900]
    assert provider.payment(payment)["refunds"][0]["metadata"]["operation_key"] == operation.operation_key


def test_a_late_original_and_its_second_attempt_are_one_refund(
    provider: Sandbox, here: World, payment: str, clock: Clock, settings: Settings
) -> None:  # K14, R-G2: the first attempt is delayed until after the look-up
    settings.LEDGER_DEADLINE_SECONDS = 0.4
    operation = refund(here, payment)
    provider.fault("refund.create", "delay_commit", seconds=1.5)
    states = []
    for _ in range(60):
        drive(here.tenant_id, clock, rounds=1)
        states.append(fresh(operation).state)
        if states[-1] in {"succeeded", "reconciled_succeeded"}:
            break
    assert states[-1] in {"succeeded", "reconciled_succeeded"}, states
    assert "failed" not in states
    assert books(provider, payment) == [4_900]
    assert {attempt.operation_id for attempt in attempts(operation)} == {operation.id}


def test_a_worker_that_dies_after_the_claim(
    provider: Sandbox, here: World, payment: str, clock: Clock
) -> None:
    # R-C3, K4: nobody sends from `dispatched`; the lease ends, the provider is asked, the same key is used again
    operation = refund(here, payment)
    abandoned_claim(here, operation)
    assert steps(here.tenant_id) == {"watchdog"}
    assert execution.execute(here.tenant_id, operation.id) == "somebody else has it"
    assert execution.watch(here.tenant_id, operation.id) == "the lease still runs"
    assert posts(provider, here) == 0
    drive(here.tenant_id, clock)
    assert [attempt.allowed_by for attempt in attempts(operation)] == ["first", "provider_guarantee"]
    assert fresh(operation).state == "succeeded"
    assert books(provider, payment) == [4_900]


def test_a_worker_that_dies_after_the_provider_committed(
    provider: Sandbox, here: World, payment: str, clock: Clock
) -> None:  # R-G1
    operation = refund(here, payment)
    abandoned_claim(here, operation)
    answer = execution.send(fresh(operation), started=1e18)
    assert answer.outcome is Outcome.ACCEPTED
    drive(here.tenant_id, clock)
    assert fresh(operation).state == "reconciled_succeeded"
    assert (posts(provider, here), books(provider, payment)) == (1, [4_900])


def test_a_late_answer_is_kept_and_moves_nothing_by_itself(
    provider: Sandbox, here: World, payment: str, clock: Clock
) -> None:  # R-C4
    operation = refund(here, payment)
    attempt = abandoned_claim(here, operation)
    answer = execution.send(fresh(operation), started=1e18)
    clock.ahead(10)
    assert execution.watch(here.tenant_id, operation.id) == "outcome unknown"
    assert record(here.tenant_id, operation.id, attempt, answer) == "late; kept as evidence"
    assert fresh(operation).state == "outcome_unknown"
    with tenant_reads(here.tenant_id):
        assert Response.objects.get().late
        assert Receipt.objects.get().operation_id == operation.id
    assert reconcile(here.tenant_id, operation.id) == "happened: receipt_on_attempt"
    assert fresh(operation).state == "reconciled_succeeded"
    assert books(provider, payment) == [4_900]


def test_no_state_but_prepared_ever_sends(provider: Sandbox, here: World, payment: str, clock: Clock) -> None:
    operation = refund(here, payment)
    abandoned_claim(here, operation)
    for state in ("dispatched", "outcome_unknown", "reconciled_succeeded"):
        assert fresh(operation).state == state
        assert execution.execute(here.tenant_id, operation.id) == "somebody else has it"
        if state == "dispatched":
            clock.ahead(10)
            execution.watch(here.tenant_id, operation.id)
            execution.send(fresh(operation), started=1e18)
        elif state == "outcome_unknown":
            reconcile(here.tenant_id, operation.id)
    assert posts(provider, here) == 1


def elsewhere(provider: Sandbox, here: World, payment: str, amount: int) -> None:
    """Somebody refunds in the provider's own dashboard."""
    import stripe

    client = stripe.StripeClient(here.provider_secret, base_addresses={"api": provider.url})
    client.v1.refunds.create({"payment_intent": payment, "amount": amount})


def test_a_payment_refunded_elsewhere_blocks(provider: Sandbox, here: World, payment: str) -> None:  # R-C5
    operation = refund(here, payment)
    elsewhere(provider, here, payment, 9_000)
    assert run_due(here.tenant_id) == ["refused: precondition_failed"]
    blocked = fresh(operation)
    assert (blocked.state, blocked.reason) == ("blocked", "precondition_failed")
    assert blocked.detail["requested"]["amount"] == 4_900
    assert blocked.detail["now"]
    assert posts(provider, here) == 1  # only the one that was made elsewhere
    assert steps(here.tenant_id) == set()


def test_a_disputed_payment_blocks(provider: Sandbox, here: World, payment: str) -> None:  # R-C5
    operation = refund(here, payment)
    provider.dispute(payment)
    run_due(here.tenant_id)
    assert (fresh(operation).state, posts(provider, here)) == ("blocked", 0)


@pytest.mark.parametrize("disputed", [False, True])
def test_an_effect_that_stands_in_the_books_already_is_settled_and_not_sent(
    disputed: bool, provider: Sandbox, here: World, payment: str, clock: Clock
) -> None:  # R-D8: our own key is there although our books know of no attempt, as after a restored backup
    operation = refund(here, payment)
    assert execution.send(fresh(operation), started=1e18).outcome is Outcome.ACCEPTED
    if disputed:
        provider.dispute(payment)
    assert run_due(here.tenant_id)[0] == "refused: already_refunded"
    drive(here.tenant_id, clock)
    assert (fresh(operation).state, fresh(operation).attempt_count) == ("reconciled_succeeded", 0)
    assert (posts(provider, here), books(provider, payment)) == (1, [4_900])


def test_sixty_and_sixty_of_a_hundred_one_goes(provider: Sandbox, here: World, payment: str) -> None:  # K61
    for _ in range(5):
        one_payment = provider.seed({"amount": 10_000, "currency": "usd"}, account=here.provider_secret)[0]
        pair = [refund(here, one_payment, amount=6_000, run_id=f"run_{number}") for number in (1, 2)]
        in_parallel(*[lambda one=one: execution.execute(here.tenant_id, one.id) for one in pair])
        states = sorted(fresh(one).state for one in pair)
        assert states == ["blocked", "succeeded"]
        assert books(provider, one_payment) == [6_000]
        assert {fresh(one).reason for one in pair} == {"", "precondition_failed"}


def test_an_unknown_amount_stays_reserved(provider: Sandbox, here: World, payment: str) -> None:  # K61
    first = refund(here, payment, amount=6_000)
    abandoned_claim(here, first)
    second = refund(here, payment, amount=6_000, run_id="run_2")
    assert execution.execute(here.tenant_id, second.id) == "refused: precondition_failed"
    assert posts(provider, here) == 0


def test_execution_in_time_to_the_microsecond(
    provider: Sandbox, here: World, payment: str, clock: Clock
) -> None:
    with tenant_transaction(here.tenant_id) as tx:  # K26, R-B5
        limit = tx.after(600).replace(microsecond=0)
    late, early = (
        refund(here, payment, execute_before=limit),
        refund(here, payment, execute_before=limit, run_id="r2"),
    )
    clock.at(limit)
    assert execution.execute(here.tenant_id, late.id) == "refused: authorization_expired"
    assert (fresh(late).state, fresh(late).reason) == ("blocked", "authorization_expired")
    assert posts(provider, here) == 0
    clock.at(limit - timedelta(microseconds=1))
    assert execution.execute(here.tenant_id, early.id) == "succeeded"


def test_a_definite_no_is_failed(provider: Sandbox, here: World, payment: str) -> None:
    operation = refund(here, payment)
    provider.fault("refund.create", "refuse", code="charge_expired_for_capture")
    assert run_due(here.tenant_id) == ["failed"]
    assert (fresh(operation).state, fresh(operation).reason) == ("failed", "charge_expired_for_capture")
    assert books(provider, payment) == []


def test_after_the_keys_retention_nothing_is_sent_again(
    provider: Sandbox, here: World, payment: str, clock: Clock
) -> None:  # R-D4, R-D6
    operation = refund(here, payment, execute_before=None)
    provider.fault("refund.create", "error_before")
    assert run_due(here.tenant_id) == ["outcome unknown"]
    clock.ahead(23.5 * 3600)
    words = run_due(here.tenant_id)
    assert words == ["person: key_retention_passed"]
    assert fresh(operation).state == "outcome_unknown"
    with tenant_reads(here.tenant_id):
        case = Case.objects.get()
    assert case.owner
    assert case.review_by > case.opened_at
    assert posts(provider, here) == 1
    assert steps(here.tenant_id) == {"reconcile"}  # it is asked on, for ever: a late original must be seen


def test_a_guard_that_fails_blocks(provider: Sandbox, here: World, payment: str, settings: Settings) -> None:
    settings.LEDGER_GUARDS = [f"{__name__}.broken_guard"]
    operation = refund(here, payment)
    assert run_due(here.tenant_id) == ["refused: guard_error"]
    assert (fresh(operation).state, posts(provider, here)) == ("blocked", 0)


def broken_guard(claim: Claim) -> None:
    raise KeyError(claim.attempt_number)


def no_second_attempt(claim: Claim) -> None:
    if claim.attempt_number > 1:
        raise GuardRefusedError("reviewer_gone", "The reviewer is no longer a member.")


def test_a_refused_second_attempt_is_not_forgotten(
    provider: Sandbox, here: World, payment: str, clock: Clock, settings: Settings
) -> None:  # an attempt that may have landed never ends as `blocked`
    settings.LEDGER_GUARDS = [f"{__name__}.no_second_attempt"]
    operation = refund(here, payment)
    provider.fault("refund.create", "error_before")
    drive(here.tenant_id, clock, rounds=6)
    standing = fresh(operation)
    assert (standing.state, standing.recovery_refused) == ("outcome_unknown", "reviewer_gone")
    assert steps(here.tenant_id) == {"reconcile"}
    with tenant_reads(here.tenant_id):
        assert Case.objects.get().reason == "recovery_refused"
        assert RecoveryPermission.objects.count() == 1
    elsewhere_reference = "re_found_late"
    with tenant_transaction(here.tenant_id) as tx:
        locked = operations.lock(operation.id)
        data = ReceiptData(
            reference=elsewhere_reference, amount=4_900, currency="usd", provider_status="succeeded"
        )
        operations.store_receipt(tx, locked, None, data, source="look_up")
    assert reconcile(here.tenant_id, operation.id) == "happened: receipt_on_attempt"
    with tenant_reads(here.tenant_id):
        assert Case.objects.get().settlement == "reconciled_succeeded"


def test_a_provider_that_is_down_only_delays(here: World, settings: Settings, clock: Clock) -> None:
    gone = world(provider_url="http://127.0.0.1:9")
    operation = refund(gone, "pi_1")
    assert run_due(gone.tenant_id) == ["provider not readable; backed off"]
    assert (fresh(operation).state, fresh(operation).lease_owner) == ("prepared", None)
    assert steps(gone.tenant_id) == {"execute"}
    # past the time limit it is still not called blocked: only the provider's books could say that nothing is there
    clock.ahead(4_000)
    assert run_due(gone.tenant_id) == ["provider not readable; backed off"]
    assert fresh(operation).state == "prepared"


def test_a_rate_limit_is_not_a_refusal(
    provider: Sandbox, here: World, payment: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation = refund(here, payment)
    real = execution.send
    answers: list[Answer] = [
        Answer(outcome=Outcome.NOT_ACCEPTED, reason="rate_limited", status=429, retry_after=7)
    ]
    monkeypatch.setattr(execution, "send", lambda *a, **k: answers.pop() if answers else real(*a, **k))
    assert run_due(here.tenant_id) == ["not accepted; backed off"]
    assert fresh(operation).state == "prepared"
    assert not fresh(operation).unresolved
    drive(here.tenant_id, clock)
    assert [attempt.allowed_by for attempt in attempts(operation)] == ["first", "not_accepted"]
    assert books(provider, payment) == [4_900]


def test_a_reference_belongs_to_one_operation(
    provider: Sandbox, here: World, payment: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # K63
    first, second = refund(here, payment, amount=100), refund(here, payment, amount=100, run_id="run_2")
    execution.execute(here.tenant_id, first.id)
    with tenant_reads(here.tenant_id):
        taken = Receipt.objects.get()
    data = ReceiptData(reference=taken.reference, amount=100, currency="usd", provider_status="succeeded")
    answer = Answer(outcome=Outcome.ACCEPTED, reason="ok", status=200, receipt=data)
    monkeypatch.setattr(execution, "send", lambda *a, **k: answer)
    execution.execute(here.tenant_id, second.id)
    assert fresh(second).state == "outcome_unknown"
    with tenant_reads(here.tenant_id):
        assert Case.objects.get().reason == "reference_taken"
        assert Receipt.objects.count() == 1


def test_two_sweeps_at_once_publish_each_row_once(here: World, payment: str) -> None:  # K18
    made = [refund(here, payment, amount=1, run_id=f"r{number}") for number in range(30)]
    rounds: list[Any] = in_parallel(
        *[lambda: outbox.relay(publish=False, tenant_id=here.tenant_id) for _ in range(2)]
    )
    published = [row for ids in rounds for row in ids]
    assert len(published) == len(set(published)) <= len(made)


def test_an_observation_is_evidence_and_ages(
    provider: Sandbox, here: World, payment: str, clock: Clock, settings: Settings
) -> None:
    operation = refund(here, payment)
    lease = uuid4()
    held = execution.take_lease(here.tenant_id, operation.id, lease)
    assert held is not None
    observation = execution.observe(here.tenant_id, held, lease)
    assert observation is not None
    assert observations.from_json(observation.record).recipient == "Dana Fox"
    settings.LEDGER_OBSERVATION_MAX_AGE_SECONDS = 1.0
    clock.ahead(2)
    assert execution.claim(here.tenant_id, operation.id, lease, observation) == "observation too old"
    assert posts(provider, here) == 0
