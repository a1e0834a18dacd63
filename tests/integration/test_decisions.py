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
    DecisionError,
    NotEntitledError,
    SettledError,
)
from approvals.models import Agent, Role, Vote
from ledger import keys
from ledger.journal import verify
from ledger.transactions import tenant_reads
from tests.actions import (
    bindings,
    decide,
    decision_of,
    operation_of,
    page,
    question,
    row,
    stock,
    told,
)
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
