"""What a verdict does, what it needs, and that whatever it lacks leaves everything as it was."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth import get_user_model

from approvals import agents, decisions, policies, tenants
from approvals.decisions import (
    ActionNotFoundError,
    AlreadyDecidedError,
    ChangedError,
    ChangesRequestedError,
    DecisionError,
    ExpiredError,
    FieldError,
    NotEntitledError,
    ObservationMissingError,
    SettledError,
)
from approvals.models import Action, Agent, Role, Vote
from ledger import clock as clocks
from ledger import keys
from ledger.journal import verify
from ledger.transactions import tenant_reads, tenant_transaction
from tests.actions import (
    bindings,
    decide,
    decision_of,
    observe,
    operation_of,
    page,
    question,
    row,
    stock,
    submit,
    told,
)
from tests.conftest import Clock
from tests.factories import POLICY, World, person, world

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


# --- what a verdict does ------------------------------------------------------------------------------------
def test_an_approval_writes_everything_at_once(here: World) -> None:  # R-B3, R-B4, R-C1, R-C6
    rana = here.reviewers[0]
    action_id = question(here)
    bound = bindings(here, rana, action_id)
    outcome = decide(here, rana, action_id, reason="  seen  ", bound=bound)
    assert (outcome.status, outcome.approvals, outcome.quorum, outcome.replayed) == ("approved", 1, 1, False)
    after = stock(here, action_id)
    assert (after.votes, after.decisions, after.operations) == (1, 1, 1)
    assert after.steps == ("execute",)
    for event in ("vote.cast", "action.approved", "operation.prepared"):
        assert after.events[event] == 1, event

    decision, operation, action = (
        decision_of(here, action_id),
        operation_of(here, action_id),
        row(here, action_id),
    )
    assert decision.by_names == [rana.username]
    assert (decision.verdict, decision.by_type, decision.reason) == ("approved", "reviewer", "seen")
    assert decision.fingerprint == action.fingerprint == operation.fingerprint == bound.fingerprint
    assert (decision.state_version, action.state_version) == (bound.state_version, bound.state_version + 1)
    assert decision.policy_version == 1
    assert decision.execute_before == decision.decided_at + timedelta(seconds=3600)
    assert operation.execute_before == decision.execute_before
    assert operation.request == action.parameters
    assert outcome.decided_at == decision.decided_at
    with tenant_reads(here.tenant_id):
        assert verify(here.tenant_id).fault == ""


def test_the_journal_tells_what_was_authorized_by_whom_and_under_which_rule(here: World) -> None:  # R-F1
    action_id = question(here, note="twice\u202e")
    decide(here, here.reviewers[0], action_id, reason="seen")
    cast, approved = told(here, action_id, "vote.cast"), told(here, action_id, "action.approved")
    action = row(here, action_id)
    assert approved["parameters"] == json.loads(action.parameters)
    assert approved["fingerprint"] == action.fingerprint
    assert approved["by"] == {"type": "reviewer", "names": [here.reviewers[0].username]}
    assert (approved["rule"], approved["policy_version"]) == ("refunds up to 500", 1)
    assert cast["shown"]["title"] == "Refund 49.00 USD to Dana Fox"
    assert any("U+202E" in warning for warning in cast["shown"]["warnings"])
    with tenant_reads(here.tenant_id):
        assert Vote.objects.get(action_id=action_id).shown == cast["shown"]


def test_what_was_shown_is_byte_for_byte_what_is_handed_over(here: World) -> None:  # K35
    action_id = question(here, currency="USD", note="Zoë")
    shown = page(here, action_id)
    decide(here, here.reviewers[0], action_id)
    operation, action = operation_of(here, action_id), row(here, action_id)
    assert keys.sha256(operation.request.encode()) == keys.sha256(action.parameters.encode())
    sent = json.loads(operation.request)
    assert sent["currency"] == "usd"
    amount = next(one.after for one in shown.rows if one.key == "amount")
    assert (amount.amount, amount.currency) == (sent["amount"], sent["currency"])
    assert next(one.after.text for one in shown.rows if one.key == "payment") == sent["payment"]
    assert next(one.after.text for one in shown.rows if one.key == "note") == sent["note"]


def test_one_rejection_settles_it(here: World) -> None:  # R-B3
    action_id = question(here, amount=LARGE)
    outcome = decide(here, here.reviewers[0], action_id, "reject", "a dispute is open")
    assert outcome.status == "rejected"
    after = stock(here, action_id)
    assert (after.votes, after.decisions, after.operations, after.steps) == (1, 1, 0, ())
    assert decision_of(here, action_id).reason == "a dispute is open"
    assert decision_of(here, action_id).execute_before is None


def test_two_reviewers_where_the_rule_asks_for_two(here: World) -> None:  # R-B3
    rana, omar = here.reviewers
    action_id = question(here, amount=LARGE)
    opened_before = bindings(here, omar, action_id)
    first = decide(here, rana, action_id)
    assert (first.status, first.approvals, first.quorum) == ("pending", 1, 2)
    assert stock(here, action_id).operations == 0
    second = decide(here, omar, action_id, bound=opened_before)  # a colleague's page stays valid
    assert (second.status, second.approvals) == ("approved", 2)
    assert second.by_names == (rana.username, omar.username)
    after = stock(here, action_id)
    assert (after.votes, after.decisions, after.operations) == (2, 1, 1)


def test_the_same_reviewer_twice_is_not_two(here: World) -> None:
    rana = here.reviewers[0]
    action_id = question(here, amount=LARGE)
    decide(here, rana, action_id)
    refusal = refused(here, action_id, ChangedError, lambda: decide(here, rana, action_id))
    assert "somebody else" in refusal.message


def test_a_reviewer_may_think_better_of_an_approval(here: World) -> None:
    rana = here.reviewers[0]
    action_id = question(here, amount=LARGE)
    stale = bindings(here, rana, action_id)
    decide(here, rana, action_id)
    outcome = decide(here, rana, action_id, "reject", "on second thought")
    assert outcome.status == "rejected"
    assert stock(here, action_id).votes == 2
    # and the delayed duplicate of the first click revives nothing
    assert decide(here, rana, action_id, bound=stale).status == "rejected"
    assert stock(here, action_id).votes == 2


def test_votes_of_somebody_who_may_no_longer_decide_do_not_count(here: World) -> None:  # K41
    rana, omar = here.reviewers
    action_id = question(here, amount=LARGE)
    decide(here, rana, action_id)
    tenants.revoke_roles(here.tenant_id, rana)
    outcome = decide(here, omar, action_id)
    assert (outcome.status, outcome.approvals) == ("pending", 1)
    zoe = person("zoe")
    tenants.grant_roles(here.tenant_id, zoe, [Role.REVIEWER])
    assert decide(here, zoe, action_id).by_names == (omar.username, zoe.username)


# --- replays ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("verdict", ["approve", "reject"])
@pytest.mark.parametrize("amount", [4_900, LARGE])
def test_five_equal_posts_are_one_with_five_equal_answers(
    here: World, verdict: str, amount: int
) -> None:  # K46
    rana = here.reviewers[0]
    action_id = question(here, amount=amount)
    bound = bindings(here, rana, action_id)
    first = decide(here, rana, action_id, verdict, bound=bound)
    after = stock(here, action_id)
    again = [decide(here, rana, action_id, verdict, bound=bound) for _ in range(4)]
    assert stock(here, action_id) == after
    assert [replace(one, replayed=False) for one in again] == [first] * 4
    assert {one.replayed for one in again} == {True}
    assert after.votes == 1


def test_a_replay_of_a_vote_that_is_void_says_so(here: World) -> None:
    rana = here.reviewers[0]
    action_id = question(here, amount=LARGE)
    bound = bindings(here, rana, action_id)
    decide(here, rana, action_id, bound=bound)
    policies.publish(here.tenant_id, kind="refund", document=POLICY, by="test")
    with pytest.raises(ChangedError):
        decide(here, here.reviewers[1], action_id)
    refused(here, action_id, ChangedError, lambda: decide(here, rana, action_id, bound=bound))


def test_another_verdict_under_the_same_bindings_is_no_replay(here: World) -> None:  # K32
    rana = here.reviewers[0]
    action_id = question(here)
    bound = bindings(here, rana, action_id)
    decide(here, rana, action_id, bound=bound)
    refused(here, action_id, SettledError, lambda: decide(here, rana, action_id, "reject", bound=bound))
    refused(here, action_id, SettledError, lambda: decide(here, rana, action_id, reason="other", bound=bound))


# --- settled is settled -------------------------------------------------------------------------------------
@pytest.mark.parametrize(("first", "then"), [("approve", "reject"), ("reject", "approve")])
def test_what_is_settled_stays_so_and_says_who_and_when(
    here: World, first: str, then: str
) -> None:  # K29, K32
    rana, omar = here.reviewers
    action_id = question(here)
    late = bindings(here, omar, action_id)
    decide(here, rana, action_id, first)
    refusal = refused(here, action_id, SettledError, lambda: decide(here, omar, action_id, then, bound=late))
    assert refusal.by_names == (rana.username,)
    assert refusal.decided_at == decision_of(here, action_id).decided_at
    assert rana.username in refusal.message
    assert refusal.status == 409


def test_an_approved_action_cannot_be_cancelled(here: World) -> None:  # K32
    action_id = question(here)
    decide(here, here.reviewers[0], action_id)
    refusal = refused(
        here,
        action_id,
        AlreadyDecidedError,
        lambda: decisions.cancel(tenant_id=here.tenant_id, agent_id=here.agent.id, action_id=action_id),
    )
    assert (refusal.status, refusal.code) == (409, "already_decided")


def test_cancelling_twice_is_cancelling_once(here: World) -> None:
    action_id = question(here)

    def cancel() -> Any:
        return decisions.cancel(tenant_id=here.tenant_id, agent_id=here.agent.id, action_id=action_id)

    assert (cancel().status, decision_of(here, action_id).by_type) == ("cancelled", "agent")
    after = stock(here, action_id)
    assert after.steps == ()
    assert cancel().replayed is True
    assert stock(here, action_id) == after
    refusal = refused(here, action_id, SettledError, lambda: decide(here, here.reviewers[0], action_id))
    assert "cancelled by support-bot" in refusal.message


def test_an_agent_cannot_cancel_what_another_agent_asked_for(here: World) -> None:
    action_id = question(here)
    agents.create_agent(here.tenant_id, name="other-bot")
    with tenant_reads(here.tenant_id):
        other = Agent.objects.get(name="other-bot").id
    for one in (other, uuid4()):
        refused(
            here,
            action_id,
            ActionNotFoundError,
            lambda one=one: decisions.cancel(tenant_id=here.tenant_id, agent_id=one, action_id=action_id),
        )


# --- who may ------------------------------------------------------------------------------------------------
def test_the_owner_of_the_agent_may_not_decide(here: World) -> None:  # K38
    tenants.grant_roles(here.tenant_id, here.admin, [Role.REVIEWER])
    action_id = question(here)
    for verdict in ("approve", "reject"):
        refusal = refused(
            here,
            action_id,
            NotEntitledError,
            lambda verdict=verdict: decide(here, here.admin, action_id, verdict),
        )
        assert (refusal.status, refusal.code) == (403, "own_agent")


def test_revoked_between_page_and_click(here: World) -> None:  # K41
    rana, omar = here.reviewers
    action_id = question(here)
    opened = bindings(here, rana, action_id)
    tenants.revoke_roles(here.tenant_id, rana)
    refused(here, action_id, NotEntitledError, lambda: decide(here, rana, action_id, bound=opened))
    opened = bindings(here, omar, action_id)
    get_user_model().objects.filter(pk=omar.pk).update(is_active=False)
    refusal = refused(here, action_id, NotEntitledError, lambda: decide(here, omar, action_id, bound=opened))
    assert refusal.code == "inactive"


def test_a_member_without_the_role_may_not_decide(here: World) -> None:
    auditor = person("aud")
    tenants.grant_roles(here.tenant_id, auditor, [Role.AUDITOR])
    action_id = question(here)
    refusal = refused(here, action_id, NotEntitledError, lambda: decide(here, auditor, action_id))
    assert refusal.code == "role_missing"


def test_another_tenants_reviewer_finds_nothing(here: World) -> None:  # K43
    action_id = question(here)
    there = world()
    stranger = there.reviewers[0]
    bound = bindings(here, stranger, action_id)
    words = set()
    for wanted in (action_id, uuid4()):
        with pytest.raises(ActionNotFoundError) as caught:
            decisions.decide(
                tenant_id=there.tenant_id,
                user=stranger,
                action_id=wanted,
                verdict="approve",
                reason="",
                bindings=bound,
            )
        words.add((caught.value.status, caught.value.message))
    assert len(words) == 1
    # nor does claiming the other tenant help
    refused(here, action_id, NotEntitledError, lambda: decide(here, stranger, action_id, bound=bound))


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
