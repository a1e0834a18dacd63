"""Evidence that crosses an answer or a refusal: whatever may have landed never ends as "nothing happened"."""

from collections.abc import Iterator
from typing import Any

import pytest
from pytest_django import Settings

from ledger import execution, observations, operations
from ledger.answers import record
from ledger.ids import new_id
from ledger.journal import SYSTEM
from ledger.models import Attempt, Case, Operation, Outbox, Receipt
from ledger.providers.base import Answer, Outcome, ProviderUnavailableError, ReceiptData
from ledger.reconciliation import reconcile
from ledger.transactions import tenant_reads, tenant_transaction
from tests.conftest import Clock
from tests.factories import World, world
from tests.ledger_steps import attempts, drive, fresh, refund, run_due, steps
from tests.sandbox_process import Sandbox, sandbox

pytestmark = pytest.mark.usefixtures("db")
LATE = Answer(
    outcome=Outcome.ACCEPTED,
    reason="ok",
    status=200,
    receipt=ReceiptData(reference="re_late", amount=4_900, currency="usd", provider_status="succeeded"),
)


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
    return world(provider_url=provider.url, reviewers=0)


@pytest.fixture
def payment(provider: Sandbox, here: World) -> str:
    return provider.seed({"amount": 10_000, "currency": "usd"}, account=here.provider_secret)[0]


def second_attempt(
    here: World, operation: Operation, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> list[Attempt]:
    """Attempt 1 stays open, its lease ends, and attempt 2 is dispatched under the provider's guarantee."""
    made: list[Attempt] = []

    def keep(tenant_id: Any, operation_id: Any, attempt: Attempt, answer: Answer) -> str:
        made.append(attempt)
        return "kept"

    monkeypatch.setattr(execution, "send", lambda *a, **k: Answer(outcome=Outcome.UNKNOWN, reason="timeout"))
    monkeypatch.setattr(execution, "record", keep)
    execution.execute(here.tenant_id, operation.id)
    clock.ahead(10)
    execution.watch(here.tenant_id, operation.id)
    reconcile(here.tenant_id, operation.id)
    execution.execute(here.tenant_id, operation.id)
    assert [one.number for one in made] == [1, 2]
    return made


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.NOT_ACCEPTED])
def test_a_late_receipt_outweighs_what_a_later_attempt_is_told(
    outcome: Outcome, here: World, payment: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:  # R-D8: else the operation ends as if nothing had happened, and a successor pays again
    operation = refund(here, payment)
    first, second = second_attempt(here, operation, monkeypatch, clock)
    record(here.tenant_id, operation.id, first, LATE)
    record(
        here.tenant_id, operation.id, second, Answer(outcome=outcome, reason="permission_error", status=403)
    )
    assert fresh(operation).state == "outcome_unknown"
    assert steps(here.tenant_id) == {"reconcile"}
    assert reconcile(here.tenant_id, operation.id) == "happened: receipt_on_attempt"
    assert fresh(operation).state == "reconciled_succeeded"


def test_two_references_are_a_case_however_they_came(
    here: World, payment: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:  # R-D8
    operation = refund(here, payment)
    first, second = second_attempt(here, operation, monkeypatch, clock)
    record(here.tenant_id, operation.id, first, LATE)
    other = ReceiptData(reference="re_other", amount=4_900, currency="usd", provider_status="succeeded")
    record(here.tenant_id, operation.id, second, Answer(outcome=Outcome.ACCEPTED, reason="ok", receipt=other))
    with tenant_reads(here.tenant_id):
        case = Case.objects.get(settled_at__isnull=True)
        assert Receipt.objects.count() == 2
    assert (case.reason, case.detail["references"]) == ("duplicate_effect", ["re_late", "re_other"])


def test_our_key_in_the_books_comes_before_an_expired_approval(
    provider: Sandbox, here: World, payment: str, clock: Clock
) -> None:  # a restored backup, read after the time limit: never "nothing was sent"
    operation = refund(here, payment)
    assert execution.send(fresh(operation), started=1e18).outcome is Outcome.ACCEPTED
    clock.ahead(4_000)
    assert run_due(here.tenant_id)[0] == "refused: already_refunded"
    drive(here.tenant_id, clock)
    assert fresh(operation).state == "reconciled_succeeded"


def test_an_unreadable_list_after_our_key_was_seen_permits_nothing(
    provider: Sandbox, here: World, payment: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:  # R-D1, R-D3
    operation = refund(here, payment)
    execution.send(fresh(operation), started=1e18)
    run_due(here.tenant_id)
    provider.faults([{"on": "refund.list", "times": 3, "fault": "error_before"}])
    for _ in range(3):
        assert reconcile(here.tenant_id, operation.id) == "wait: no_complete_look_up_yet"
    assert fresh(operation).state == "outcome_unknown"
    drive(here.tenant_id, clock)
    assert fresh(operation).state == "reconciled_succeeded"
    assert attempts(operation) == []


def test_an_open_attempt_waits_as_unknown_when_the_provider_cannot_be_read(
    here: World, payment: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:  # never `prepared`, which would say that nothing was done
    operation = refund(here, payment)
    monkeypatch.setattr(execution, "send", lambda *a, **k: Answer(outcome=Outcome.UNKNOWN, reason="timeout"))
    run_due(here.tenant_id)
    assert reconcile(here.tenant_id, operation.id) == "may_resend: provider_guarantee"

    def down(*_: Any) -> None:
        raise ProviderUnavailableError("http_503")

    monkeypatch.setattr(observations, "read", down)
    execution.execute(here.tenant_id, operation.id)
    assert (fresh(operation).state, fresh(operation).unresolved) == ("outcome_unknown", True)
    assert steps(here.tenant_id) == {"reconcile"}
    monkeypatch.undo()
    drive(here.tenant_id, clock)
    assert fresh(operation).state == "succeeded"


def test_an_end_that_denies_a_stored_receipt_is_refused(here: World, payment: str) -> None:
    operation = refund(here, payment)
    receipt = LATE.receipt
    assert receipt is not None

    def deny() -> None:
        with tenant_transaction(here.tenant_id) as tx:
            locked = operations.lock(operation.id)
            operations.store_receipt(tx, locked, None, receipt, source="look_up")
            operations.settle(tx, locked, execution.S.BLOCKED, event="operation.blocked", reason="x")

    with pytest.raises(operations.InvalidTransitionError, match="a receipt is stored"):
        deny()


def test_a_later_effect_neither_overtakes_nor_outlives_the_first(
    provider: Sandbox, here: World, payment: str
) -> None:
    # R-C9, and every unfinished thing has an outbox row
    first = refund(here, payment)
    with tenant_transaction(here.tenant_id) as tx:
        second = operations.open_operation(
            tx,
            action_id=first.action_id,
            run_id="run_1",
            kind="refund",
            kind_version=1,
            effect="notify",
            sequence=2,
            parameters={"payment": payment},
            fingerprint=first.fingerprint,
            account=here.account,
            resource_key=f"notice:{new_id()}",
            amount=None,
            currency="",
            execute_before=None,
            actor=SYSTEM,
        )
    assert execution.execute(here.tenant_id, second.id) == "somebody else has it"
    provider.fault("refund.create", "refuse", code="charge_expired_for_capture")
    assert run_due(here.tenant_id) == ["failed"]
    assert (fresh(second).state, fresh(second).reason) == ("cancelled", "earlier_effect_not_done")
    assert not Outbox.objects.filter(tenant_id=here.tenant_id).exists()
