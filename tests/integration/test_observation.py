"""The provider's record beside a proposal: kept, weighed, and the proposal closed where it cannot be done."""

from datetime import timedelta
from functools import partial
from typing import Any
from unittest.mock import patch
from uuid import UUID, uuid4

import pytest
from django.db import connection

from approvals import decisions, observation, policies, questions
from approvals.models import Action
from ledger import clock as clocks
from ledger import observations, operations
from ledger.models import Observation, Operation, Outbox, ProviderAccount
from ledger.providers.base import KnownRefund
from ledger.states import OperationState
from ledger.transactions import tenant_reads, tenant_transaction
from tests.actions import (
    bindings,
    decide,
    decision_of,
    observe,
    observe_in_vain,
    operation_of,
    page,
    question,
    record_of,
    row,
    stock,
    submit,
    told,
)
from tests.conftest import Clock
from tests.factories import POLICY, World, world
from tests.ledger_steps import in_parallel, run_due

pytestmark = pytest.mark.usefixtures("db")


@pytest.fixture
def here() -> World:
    return world()


def kept(here: World, action_id: UUID) -> int:
    with tenant_reads(here.tenant_id):
        return Observation.objects.filter(action_id=action_id).count()


def due(action_id: UUID) -> Outbox:
    return Outbox.objects.get(step="observe", subject_id=action_id)


def test_the_record_is_kept_and_the_question_stands(here: World) -> None:  # R-B2
    action_id = submit(here)
    before = row(here, action_id)
    assert observe(here, action_id) == "observed: unchanged"
    after = row(here, action_id)
    assert after.observation is not None
    assert after.observation.record["recipient"] == "Dana Fox"
    assert after.updated_at > before.updated_at
    assert (after.state_version, after.status) == (1, "pending")
    assert stock(here, action_id).steps == ("expire",)
    entry = told(here, action_id, "action.observed")
    assert (entry["observation"], entry["digest"]) == (str(after.observation.id), after.observation.digest)
    assert page(here, action_id).title == "Refund 49.00 USD to Dana Fox"


@pytest.mark.parametrize(
    ("record", "word", "says"),
    [
        ({"missing": True}, "payment_missing", "does not know this payment"),
        ({"currency": "inr"}, "currency_mismatch", "another currency"),  # K60
        ({"amount": 4_899}, "amount_exceeds_refundable", "Less than this amount"),
        ({"refunded": 115_101}, "amount_exceeds_refundable", "Less than this amount"),
        ({"disputed": True}, "payment_disputed", "disputes"),
        ({"status": "requires_capture"}, "payment_not_succeeded", "not arrived"),
    ],
)
def test_what_cannot_be_done_is_closed_by_the_system(
    here: World, record: dict[str, Any], word: str, says: str
) -> None:  # R-C5
    action_id = submit(here)
    assert observe(here, action_id, **record) == f"rejected: {word}"
    decision = decision_of(here, action_id)
    assert (decision.verdict, decision.by_type, decision.by_names) == ("rejected", "system", [])
    assert says in decision.reason
    after = stock(here, action_id)
    assert (after.status, after.decisions, after.operations, after.steps) == ("rejected", 1, 0, ())
    assert kept(here, action_id) == 1


def test_exactly_what_is_left_can_be_asked_for(here: World) -> None:
    action_id = submit(here)
    assert observe(here, action_id, refunded=115_100) == "observed: unchanged"


def test_what_our_own_unknown_refund_may_have_taken_is_not_there(here: World) -> None:  # K61
    payment = f"pi_{uuid4().hex}"
    first = question(here, payment=payment, record={"amount": 9_000})
    second = submit(here, payment=payment)
    decide(here, here.reviewers[0], first)
    with tenant_transaction(here.tenant_id) as tx:
        operation = Operation.objects.get(action_id=first)
        operations.move(
            tx,
            operation,
            OperationState.DISPATCHED,
            unresolved=True,
            lease_owner=uuid4(),
            lease_until=tx.now(),
        )
    assert observe(here, second, amount=9_000) == "rejected: amount_exceeds_refundable"


# --- what the policy says with the record -------------------------------------------------------------------
def shares(*rules: dict[str, Any]) -> dict[str, Any]:
    """A policy with these rules before one that asks a person."""
    last = {"name": "anything else", "when": {}, "outcome": "review"}
    return POLICY | {"rules": [*rules, last]}


SMALL_SHARE = {"name": "a small share", "when": {"max_share": 10}, "outcome": "allow"}
GREAT_SHARE = {
    "name": "not a small share",
    "when": {"max_share": 100},
    "outcome": "deny",
    "reason": "Only a tenth may go back.",
}


def test_a_rule_that_needed_the_record_allows_with_it() -> None:  # R-B6, R-B8
    here = world(policy=shares(SMALL_SHARE))
    action_id = submit(here)
    assert row(here, action_id).status == "pending"
    assert observe(here, action_id) == "observed: approved"
    decision = decision_of(here, action_id)
    assert (decision.by_type, decision.by_names) == ("policy", ["a small share"])
    after = stock(here, action_id)
    assert (after.votes, after.operations, after.steps) == (0, 1, ("execute",))


def test_a_rule_that_needed_the_record_denies_with_it() -> None:
    here = world(policy=shares(SMALL_SHARE, GREAT_SHARE))
    action_id = submit(here)
    assert observe(here, action_id, amount=20_000) == "observed: rejected"
    decision = decision_of(here, action_id)
    assert (decision.by_type, decision.reason) == ("policy", "Only a tenth may go back.")
    assert stock(here, action_id).operations == 0


def test_a_rule_that_does_not_match_after_all_makes_it_another_question() -> None:
    here = world(policy=shares(SMALL_SHARE))
    rana = here.reviewers[0]
    action_id = submit(here)
    opened = bindings(here, rana, action_id)
    assert observe(here, action_id, amount=20_000) == "observed: changed"
    action = row(here, action_id)
    assert (action.state_version, action.policy_outcome["rule"]) == (2, "anything else")
    with pytest.raises(decisions.ChangedError):
        decide(here, rana, action_id, bound=opened)
    assert decide(here, rana, action_id).status == "approved"


def test_a_policy_published_before_the_record_came_is_the_one_that_counts(here: World) -> None:
    action_id = submit(here)
    policies.publish(here.tenant_id, kind="refund", document=POLICY | {"rules": []}, by="test")
    assert observe(here, action_id) == "observed: rejected"
    assert decision_of(here, action_id).policy_version == 2


# --- providers that cannot be read, actions that are gone ---------------------------------------------------
def test_a_provider_that_cannot_be_read_is_asked_later_and_later(here: World, clock: Clock) -> None:
    action_id = submit(here)
    start = due(action_id).created_at
    waits = []
    for _ in range(8):
        clock.at(max(due(action_id).due_at, start))
        assert "backed off" in observe_in_vain(here, action_id)
        waits.append((due(action_id).due_at - clocks.now()).total_seconds())
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    after = stock(here, action_id)
    assert (after.status, after.steps, kept(here, action_id)) == ("pending", ("expire", "observe"), 0)
    assert observe(here, action_id) == "observed: unchanged"


def test_the_step_finds_the_provider_down_by_itself(here: World) -> None:
    action_id = submit(here)  # nothing listens where the factory's account lives
    words = run_due(here.tenant_id)
    assert len(words) == 1
    assert "backed off" in words[0]
    assert due(action_id).due_at > clocks.now()


def test_nothing_is_open_while_the_provider_is_asked(here: World) -> None:  # invariant 3
    action_id = submit(here)
    inside: list[bool] = []

    def ask(*_: Any) -> Any:
        inside.append(connection.in_atomic_block)
        return clocks.now(), record_of(row(here, action_id))

    with patch.object(observations, "read", ask):
        observation.observe(here.tenant_id, action_id)
    assert inside == [False]


def test_a_record_that_comes_after_the_decision_changes_nothing(here: World) -> None:
    action_id = submit(here)

    def decided_meanwhile(*_: Any) -> Any:
        decide(here, here.reviewers[0], action_id, "reject", "no")
        return clocks.now(), record_of(row(here, action_id), disputed=True)

    with patch.object(observations, "read", decided_meanwhile):
        assert observation.observe(here.tenant_id, action_id) == "settled already"
    after = stock(here, action_id)
    assert (after.decisions, after.steps, kept(here, action_id)) == (1, (), 0)
    assert decision_of(here, action_id).by_type == "reviewer"


def test_the_step_of_a_settled_action_is_finished(here: World) -> None:
    action_id = question(here)
    decide(here, here.reviewers[0], action_id, "reject", "no")
    with tenant_transaction(here.tenant_id) as tx:
        tx.schedule("observe", action_id, due_at=tx.now(), hint=False)
    assert observe(here, action_id) == "settled already"
    assert stock(here, action_id).steps == ()
    assert observation.observe(here.tenant_id, uuid4()) == "settled already"


def test_a_record_that_comes_at_the_expiry_closes_the_action(here: World, clock: Clock) -> None:  # R-B5
    action_id = submit(here)
    clock.at(row(here, action_id).expires_at)
    assert observe(here, action_id) == "settled already"
    after = stock(here, action_id)
    assert (after.status, after.decisions, after.steps, kept(here, action_id)) == ("expired", 1, (), 0)


def test_without_an_account_it_is_rejected_with_the_reason(here: World) -> None:
    action_id = submit(here)
    with tenant_transaction(here.tenant_id) as tx:
        ProviderAccount.objects.filter(id=here.account.id).update(disabled_at=tx.now())
    assert observation.observe(here.tenant_id, action_id) == "rejected: no provider account"
    decision = decision_of(here, action_id)
    assert decision.by_type == "system"
    assert "switched off" in decision.reason


def test_two_at_once_keep_both_records_and_leave_one_question(here: World) -> None:  # K18
    action_id = submit(here)
    known = record_of(row(here, action_id))
    with patch.object(observations, "read", lambda *_: (clocks.now(), known)):
        words = in_parallel(*[partial(observation.observe, here.tenant_id, action_id)] * 2)
    assert words == ["observed: unchanged"] * 2
    after = stock(here, action_id)
    assert (after.status, after.state_version, after.steps) == ("pending", 1, ("expire",))
    assert kept(here, action_id) == after.events["action.observed"] == 2
    assert decide(here, here.reviewers[0], action_id).status == "approved"


# --- what else stands on the page ---------------------------------------------------------------------------
def test_requests_that_look_alike_are_shown_and_let_through(here: World) -> None:  # R-A6
    payment = f"pi_{uuid4().hex}"
    before = submit(here, payment=payment)
    same_person = question(here)
    question(here, amount=4_901)
    question(here, record={"recipient": "Somebody Else"})
    same_customer = submit(here, customer="cus_7")
    action_id = question(here, payment=payment, customer="cus_7")
    shown = page(here, action_id)
    found = {one.action_id: one.same for one in shown.look_alikes}
    assert found == {
        str(before): ("payment",),
        str(same_person): ("recipient",),
        str(same_customer): ("customer",),
    }
    assert shown.look_alikes[0].action_id == str(same_customer)  # the newest first
    assert {one.status for one in shown.look_alikes} == {"pending"}
    digest = shown.view_digest
    decide(here, here.reviewers[0], before, "reject", "no")
    assert page(here, action_id).view_digest == digest
    assert {one.status for one in page(here, action_id).look_alikes} == {"pending", "rejected"}
    assert decide(here, here.reviewers[0], action_id).status == "approved"


def test_look_alikes_are_few_and_recent(here: World, clock: Clock) -> None:
    payment = f"pi_{uuid4().hex}"
    newest = [submit(here, payment=payment) for _ in range(6)][1:]
    action_id = submit(here, payment=payment)
    assert [one.action_id for one in page(here, action_id).look_alikes] == [
        str(one) for one in reversed(newest)
    ]
    clock.ahead(timedelta(days=30, seconds=10).total_seconds())
    assert page(here, submit(here, payment=payment)).look_alikes == ()


def test_earlier_refunds_come_from_the_record_and_from_our_own_books(here: World) -> None:  # R-B2
    payment = f"pi_{uuid4().hex}"
    listed, unlisted = (question(here, payment=payment) for _ in range(2))
    for one in (listed, unlisted):
        decide(here, here.reviewers[0], one)
    key = operation_of(here, listed).operation_key
    theirs = KnownRefund(id="re_1", amount=700, status="succeeded", operation_key=None, created=1_794_000_100)
    ours = KnownRefund(id="re_2", amount=4_900, status="pending", operation_key=key, created=1_794_000_200)
    action_id = question(here, payment=payment, record={"refunded": 5_600, "refunds": (theirs, ours)})
    found = {
        (one.reference, one.action_id): (one.amount, one.status) for one in page(here, action_id).earlier
    }
    assert found == {
        ("re_1", ""): (700, "succeeded"),
        ("re_2", str(listed)): (4_900, "pending"),
        ("", str(unlisted)): (4_900, "prepared"),
    }


def test_the_question_asks_few_things_of_the_database(here: World) -> None:
    payment = f"pi_{uuid4().hex}"
    for _ in range(3):
        question(here, payment=payment)
    action_id = question(here, payment=payment)
    statements: list[str] = []

    def listen(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        statements.append(sql)
        return execute(sql, params, many, context)

    with tenant_reads(here.tenant_id):
        action = Action.objects.select_related("observation").get(id=action_id)
        with connection.execute_wrapper(listen):
            questions.build(action, action.observation)
    assert len(statements) == 2


def test_the_record_is_read_as_the_effect_would_be_sent(here: World) -> None:
    action_id = question(here)
    asked = observation.effect_request(row(here, action_id))
    decide(here, here.reviewers[0], action_id)
    assert operations.effect_request(operation_of(here, action_id)) == asked
