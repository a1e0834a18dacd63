"""What must be equal, in time and allowed at the moment of a verdict; else nothing is written."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from approvals import decisions, policies
from approvals.decisions import (
    AlreadyDecidedError,
    ChangedError,
    ChangesRequestedError,
    DecisionError,
    ExpiredError,
    FieldError,
    ObservationMissingError,
    SettledError,
)
from approvals.models import Action
from ledger import clock as clocks
from ledger.transactions import tenant_transaction
from tests.actions import (
    bindings,
    decide,
    decision_of,
    observe,
    question,
    row,
    stock,
    submit,
)
from tests.conftest import Clock
from tests.factories import POLICY, World, world

pytestmark = pytest.mark.usefixtures("db")

LARGE = 60_000
"""Needs two reviewers."""


@pytest.fixture
def here() -> World:
    return world()


def refused(here: World, action_id: Any, error: type[DecisionError], call: Any) -> Any:
    """The refusal of `call`, which must have written nothing."""
    before = stock(here, action_id)
    with pytest.raises(error) as caught:
        call()
    assert stock(here, action_id) == before
    return caught.value


# --- what must be equal -------------------------------------------------------------------------------------
@pytest.mark.parametrize("verdict", ["approve", "reject"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("state_version", 7),
        ("fingerprint", "sha256:" + "0" * 64),
        ("policy_version", 2),
        ("view_digest", "sha256:" + "0" * 64),
        ("view_digest", "\x00"),
        ("seq", 2),
        ("seq", 2**40),
        ("seq", -1),
    ],
)
def test_each_binding_counts(here: World, verdict: str, name: str, value: Any) -> None:  # R-B1
    rana = here.reviewers[0]
    action_id = question(here)
    bound = replace(bindings(here, rana, action_id), **{name: value})
    refusal = refused(
        here, action_id, ChangedError, lambda: decide(here, rana, action_id, verdict, bound=bound)
    )
    assert (refusal.changed, refusal.status) == ((name,), 409)


def test_a_page_opened_before_the_record_was_read(here: World) -> None:
    action_id = submit(here)
    opened = bindings(here, here.reviewers[0], action_id)
    observe(here, action_id)
    refusal = refused(
        here, action_id, ChangedError, lambda: decide(here, here.reviewers[0], action_id, bound=opened)
    )
    assert refusal.changed == ("view_digest",)


def test_without_the_record_it_may_be_rejected_but_not_approved(here: World) -> None:
    action_id = submit(here)
    refusal = refused(
        here, action_id, ObservationMissingError, lambda: decide(here, here.reviewers[0], action_id)
    )
    assert refusal.code == "observation_missing"
    assert decide(here, here.reviewers[0], action_id, "reject").status == "rejected"


def test_a_policy_may_go_without_the_record() -> None:
    rule = POLICY["rules"][0] | {"needs_observation": False}
    here = world(policy=POLICY | {"rules": [rule]})
    action_id = submit(here)
    assert decide(here, here.reviewers[0], action_id).status == "approved"
    assert stock(here, action_id).steps == ("execute",)


def test_requested_changes_are_not_approvable(here: World) -> None:
    action_id = question(here)
    with tenant_transaction(here.tenant_id):
        Action.objects.filter(id=action_id).update(changes_requested={"by": "rana", "note": "less"})
    refused(here, action_id, ChangesRequestedError, lambda: decide(here, here.reviewers[0], action_id))


def test_a_policy_published_between_page_and_click(here: World) -> None:  # R-B1, R-B7
    rana, omar = here.reviewers
    action_id = question(here, amount=LARGE)
    decide(here, rana, action_id)
    opened = bindings(here, omar, action_id)
    version = policies.publish(here.tenant_id, kind="refund", document=POLICY, by="test")
    with pytest.raises(ChangedError) as caught:
        decide(here, omar, action_id, bound=opened)
    assert caught.value.changed == ("policy_version",)
    # the question is another one now: under the new version, and the old vote does not count
    action = row(here, action_id)
    assert (action.policy_version, action.state_version) == (version, opened.state_version + 1)
    assert stock(here, action_id).votes == 1
    assert stock(here, action_id).events["action.policy_changed"] == 1
    assert decide(here, omar, action_id).approvals == 1
    assert decide(here, rana, action_id).status == "approved"
    assert decision_of(here, action_id).policy_version == version


def test_a_policy_that_denies_now_settles_it_at_the_click(here: World) -> None:
    action_id = question(here)
    opened = bindings(here, here.reviewers[0], action_id)
    policies.publish(here.tenant_id, kind="refund", document=POLICY | {"rules": []}, by="test")
    with pytest.raises(SettledError) as caught:
        decide(here, here.reviewers[0], action_id, bound=opened)
    assert (caught.value.verdict, caught.value.by_type) == ("rejected", "policy")
    after = stock(here, action_id)
    assert (after.status, after.votes, after.operations, after.steps) == ("rejected", 0, 0, ())


@pytest.mark.parametrize(
    ("verdict", "reason", "field"),
    [
        ("reject", "   ", "reason"),
        ("maybe", "x", "verdict"),
        ("withdraw", "x", "verdict"),
        ("approve", "a\x00b", "reason"),
        ("approve", "\ud800", "reason"),
        ("reject", "x" * 2001, "reason"),
    ],
)
def test_a_field_that_is_wrong(here: World, verdict: str, reason: str, field: str) -> None:
    action_id = question(here)
    refusal = refused(
        here, action_id, FieldError, lambda: decide(here, here.reviewers[0], action_id, verdict, reason)
    )
    assert (refusal.field, refusal.status) == (field, 422)


# --- time ---------------------------------------------------------------------------------------------------
def test_the_boundary_of_the_expiry(here: World, clock: Clock) -> None:  # K26, R-B5
    rana = here.reviewers[0]
    in_time, late = question(here), question(here)
    opened = bindings(here, rana, late)
    clock.at(row(here, in_time).expires_at - timedelta(microseconds=1))
    assert decide(here, rana, in_time).status == "approved"
    clock.at(row(here, late).expires_at)
    with pytest.raises(ExpiredError) as caught:
        decide(here, rana, late, bound=opened)
    assert caught.value.status == 409
    after = stock(here, late)  # the sweeper is off, and still it says what is true
    assert (after.status, after.votes, after.decisions, after.operations) == ("expired", 0, 1, 0)
    assert after.steps == ()
    refused(here, late, ExpiredError, lambda: decide(here, rana, late, bound=opened))


def test_an_expired_one_is_not_cancelled(here: World, clock: Clock) -> None:
    action_id = question(here)
    clock.at(row(here, action_id).expires_at)
    with pytest.raises(AlreadyDecidedError) as caught:
        decisions.cancel(tenant_id=here.tenant_id, agent_id=here.agent.id, action_id=action_id)
    assert caught.value.verdict == "expired"
    assert row(here, action_id).status == "expired"


def test_expiring_too_early_moves_the_step_and_nothing_else(here: World, clock: Clock) -> None:
    action_id = question(here)
    before = stock(here, action_id)
    clock.at(row(here, action_id).expires_at - timedelta(microseconds=1))
    assert decisions.expire_due(here.tenant_id, action_id) == "not yet due"
    assert stock(here, action_id) == before
    assert decisions.expire_due(here.tenant_id, uuid4()) == "there is no such action"


def test_the_step_of_a_settled_action_is_finished(here: World, clock: Clock) -> None:
    action_id = question(here)
    decide(here, here.reviewers[0], action_id)
    with tenant_transaction(here.tenant_id) as tx:
        tx.schedule("expire", action_id, due_at=clocks.now(), hint=False)
    clock.at(row(here, action_id).expires_at)
    assert decisions.expire_due(here.tenant_id, action_id) == "settled already"
    assert (stock(here, action_id).status, stock(here, action_id).steps) == ("approved", ("execute",))
