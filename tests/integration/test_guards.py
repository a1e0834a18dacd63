"""What must still hold when an approved action is carried out; judged by the books of the sandbox."""

import json
from collections.abc import Iterator
from typing import Any, cast
from uuid import UUID

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from pytest_django import Settings

from approvals import agents, guards, policies, tenants
from approvals.models import Agent, Role
from ledger import clock as clocks
from ledger.errors import GuardRefusedError
from ledger.execution import Claim
from ledger.models import Observation, Operation
from ledger.transactions import tenant_reads, tenant_transaction
from tests.actions import decide, decision_of, operation_of, question, row, stock, submit
from tests.conftest import Clock
from tests.factories import POLICY, World, world
from tests.ledger_steps import run_due
from tests.sandbox_process import Sandbox, sandbox

pytestmark = pytest.mark.usefixtures("db")

LARGE = 60_000
GENEROUS: dict[str, Any] = {"name": "anything", "when": {}, "outcome": "allow"}


@pytest.fixture(scope="module")
def provider() -> Iterator[Sandbox]:
    with sandbox() as running:
        yield running


@pytest.fixture
def here() -> World:
    return world()


def approved(here: World, *, amount: int = 4_900) -> UUID:
    """An approved refund, by as many as are needed."""
    action_id = question(here, amount=amount)
    for one in here.reviewers:
        if row(here, action_id).status == "pending":
            decide(here, one, action_id)
    return action_id


def ask(here: World, approved_id: UUID, **changes: Any) -> None:
    """The guard's word on the action's operation now; `changes` are what the row would say."""
    with tenant_reads(here.tenant_id):
        operation = Operation.objects.select_related("account").get(action_id=approved_id)
        for name, value in changes.items():
            setattr(operation, name, value)
        observation = Observation.objects.get(action_id=approved_id)
        claim = Claim(operation=operation, observation=observation, attempt_number=1, now=clocks.now())
        guards.authorization_in_force(claim)


def refused(here: World, approved_id: UUID, **changes: Any) -> GuardRefusedError:
    with pytest.raises(GuardRefusedError) as caught:
        ask(here, approved_id, **changes)
    return caught.value


def facts(refusal: GuardRefusedError, side: str) -> dict[str, Any]:
    """What a refusal tells of one side: `requested`, `approved` or `now`."""
    return dict(cast("dict[str, Any]", refusal.detail)[side])


# --- in force -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("amount", [4_900, LARGE])
def test_an_approval_is_in_force(here: World, amount: int) -> None:
    ask(here, approved(here, amount=amount))


def test_a_decision_of_the_policy_is_in_force() -> None:
    here = world(policy=POLICY | {"rules": [GENEROUS]})
    action_id = question(here)
    assert decision_of(here, action_id).by_type == "policy"
    ask(here, action_id)


def test_it_takes_no_row_lock_and_writes_nothing(here: World) -> None:
    action_id = approved(here)
    statements: list[str] = []

    def listen(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        statements.append(sql)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(listen):
        ask(here, action_id)
    assert not [sql for sql in statements if "FOR NO KEY" in sql or "FOR UPDATE" in sql]
    assert not [sql for sql in statements if sql.startswith(("INSERT", "UPDATE", "DELETE"))]


# --- what is no longer so -----------------------------------------------------------------------------------
@pytest.mark.parametrize("status", ["pending", "rejected"])
def test_without_an_approval_nothing_goes(here: World, status: str) -> None:  # K33
    target, source = question(here), approved(here)
    if status == "rejected":
        decide(here, here.reviewers[0], target, "reject", "no")
    refusal = refused(here, source, action_id=target)
    assert (refusal.reason, facts(refusal, "now")) == ("not_approved", {"status": status})


@pytest.mark.parametrize(
    "changes",
    [
        {"request": json.dumps({"payment": "pi_1", "amount": 4_901, "currency": "usd"})},
        {"fingerprint": "sha256:" + "0" * 64},
        {"kind_version": 2},
        {"kind": "payout"},
    ],
)
def test_what_would_be_sent_is_what_was_approved(here: World, changes: dict[str, Any]) -> None:  # R-B1, R-C5
    action_id = approved(here)
    refusal = refused(here, action_id, **changes)
    assert refusal.reason == "fingerprint_changed"
    assert facts(refusal, "approved") == {"fingerprint": decision_of(here, action_id).fingerprint}


def test_another_account_is_another_action(here: World) -> None:
    other = world()
    assert refused(here, approved(here), account=other.account).reason == "fingerprint_changed"


def test_a_revoked_agent(here: World) -> None:  # R-C5
    action_id = approved(here)
    agents.revoke_agent(here.tenant_id, here.agent.id)
    assert refused(here, action_id).reason == "agent_revoked"


@pytest.mark.parametrize("how", ["roles", "account", "owner"])
@pytest.mark.parametrize("amount", [4_900, LARGE])
def test_a_reviewer_who_may_no_longer_decide(here: World, how: str, amount: int) -> None:  # K41
    rana = here.reviewers[0]
    action_id = approved(here, amount=amount)
    if how == "roles":
        tenants.revoke_roles(here.tenant_id, rana)
    elif how == "account":
        get_user_model().objects.filter(pk=rana.pk).update(is_active=False)
    else:
        with tenant_transaction(here.tenant_id):
            Agent.objects.filter(id=here.agent.id).update(owner=rana)
    refusal = refused(here, action_id)
    assert refusal.reason == "reviewer_not_entitled"
    assert rana.username in facts(refusal, "approved")["approved_by"]
    assert rana.username not in facts(refusal, "now")["approved_by"]


def test_somebody_who_approved_may_have_another_role_besides(here: World) -> None:
    action_id = approved(here)
    tenants.grant_roles(here.tenant_id, here.reviewers[0], [Role.AUDITOR])
    ask(here, action_id)


# --- the policy since then ----------------------------------------------------------------------------------
ONE = {"name": "r", "when": {}, "outcome": "review", "quorum": 1, "roles": ["reviewer"]}


@pytest.mark.parametrize(
    ("rules", "holds"),
    [
        ([ONE], True),
        ([ONE | {"roles": ["admin", "reviewer"]}], True),
        ([GENEROUS], True),
        ([ONE | {"quorum": 2}], False),
        ([ONE | {"roles": ["admin"]}], False),
        ([{"name": "r", "when": {}, "outcome": "deny", "reason": "stopped"}], False),
        ([], False),
        ([{"name": "r", "when": {"max_share": 1}, "outcome": "allow"}], False),
        ([{"name": "r", "when": {"max_share": 50}, "outcome": "allow"}], True),
    ],
)
def test_a_newer_policy(here: World, rules: list[Any], holds: bool) -> None:  # R-C5, R-B7
    action_id = approved(here)
    policies.publish(here.tenant_id, kind="refund", document=POLICY | {"rules": rules}, by="test")
    if holds:
        ask(here, action_id)
        return
    refusal = refused(here, action_id)
    assert refusal.reason == "policy_tightened"
    assert (facts(refusal, "approved")["policy_version"], facts(refusal, "now")["policy_version"]) == (1, 2)


def test_what_a_policy_allowed_it_must_still_allow() -> None:
    here = world(policy=POLICY | {"rules": [GENEROUS]})
    action_id = question(here)
    policies.publish(here.tenant_id, kind="refund", document=POLICY | {"rules": [ONE]}, by="test")
    assert refused(here, action_id).reason == "policy_tightened"
    policies.publish(here.tenant_id, kind="refund", document=POLICY | {"rules": [GENEROUS]}, by="test")
    ask(here, action_id)


# --- carried out --------------------------------------------------------------------------------------------
def at_the_sandbox(provider: Sandbox) -> tuple[World, UUID, str]:
    """An approved refund of a payment in the sandbox's books, not carried out yet."""
    provider.faults([])
    here = world(provider_url=provider.url)
    (payment,) = provider.seed(
        {"amount": 12_000, "currency": "usd", "name": "Dana Fox"}, account=here.provider_secret
    )
    action_id = submit(here, payment=payment)
    assert run_due(here.tenant_id) == ["observed: unchanged"]
    decide(here, here.reviewers[0], action_id)
    return here, action_id, payment


def test_an_approved_refund_is_carried_out_once(provider: Sandbox) -> None:
    here, action_id, payment = at_the_sandbox(provider)
    assert run_due(here.tenant_id) == ["succeeded"]
    assert run_due(here.tenant_id) == []
    (refund,) = provider.payment(payment)["refunds"]
    operation = operation_of(here, action_id)
    assert refund["amount"] == 4_900
    assert refund["metadata"]["operation_key"] == operation.operation_key
    assert stock(here, action_id).steps == ()


@pytest.mark.parametrize("what", ["reviewer", "agent", "policy"])
def test_what_no_longer_holds_blocks_and_nothing_is_sent(provider: Sandbox, what: str) -> None:  # R-C5, K41
    here, action_id, payment = at_the_sandbox(provider)
    if what == "reviewer":
        get_user_model().objects.filter(pk=here.reviewers[0].pk).update(is_active=False)
    elif what == "agent":
        agents.revoke_agent(here.tenant_id, here.agent.id)
    else:
        policies.publish(here.tenant_id, kind="refund", document=POLICY | {"rules": []}, by="test")
    before = provider.calls("refund.create")
    (word,) = run_due(here.tenant_id)
    assert word.startswith("refused: ")
    assert provider.calls("refund.create") == before
    assert provider.payment(payment)["refunds"] == []
    operation = operation_of(here, action_id)
    assert (operation.state, operation.attempt_count) == ("blocked", 0)
    assert operation.detail["message"]
    assert (row(here, action_id).status, stock(here, action_id).steps) == ("approved", ())


def test_an_approval_that_was_not_carried_out_in_time(provider: Sandbox, clock: Clock) -> None:  # K26
    here, action_id, payment = at_the_sandbox(provider)
    limit = decision_of(here, action_id).execute_before
    assert limit is not None
    before = provider.calls("refund.create")
    clock.at(limit)
    assert run_due(here.tenant_id) == ["refused: authorization_expired"]
    assert provider.calls("refund.create") == before
    assert provider.payment(payment)["refunds"] == []
    assert row(here, action_id).status == "approved"


def test_a_guard_that_fails_blocks(provider: Sandbox, settings: Settings) -> None:  # invariant 1
    here, action_id, payment = at_the_sandbox(provider)
    settings.LEDGER_GUARDS = ["tests.integration.no_such_module.guard"]
    (word,) = run_due(here.tenant_id)
    assert word == "refused: guard_error"
    assert provider.payment(payment)["refunds"] == []
    assert operation_of(here, action_id).state == "blocked"
