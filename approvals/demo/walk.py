"""One refund from the agent's proposal to the provider's books, over plain HTTP, judged by the books.

Everything is done from outside: the agent's token, a reviewer's session, the provider's own list.
"""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from approvals.demo.browser import AgentProgram, Person, WalkError
from approvals.demo.seed import Cast, at_sandbox
from ledger.money import format_amount

type Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Where the walk takes place."""

    base_url: str
    sandbox_url: str
    cast: Cast
    say: Say


@dataclass(frozen=True, kw_only=True)
class Walked:
    """What a walk left behind."""

    action_id: str
    final: dict[str, Any]
    refunds: list[dict[str, Any]]

    @property
    def once(self) -> bool:
        """Whether the books show the refund exactly once and the ledger says so too."""
        done = (self.final.get("execution") or {}).get("status") in {"succeeded", "reconciled_succeeded"}
        return done and [refund["amount"] for refund in self.refunds] == [AMOUNT]


AMOUNT = 4_900


def sandbox_payment(sandbox_url: str, payment: str) -> dict[str, Any]:
    """A payment as the provider's books have it."""
    answer = httpx.get(f"{sandbox_url}/_sandbox/books", timeout=10, trust_env=False)
    answer.raise_for_status()
    found: dict[str, Any] = next(one for one in answer.json()["payments"] if one["id"] == payment)
    return found


def print_books(stage: Stage, payment: str, when: str) -> list[dict[str, Any]]:
    """Say what the provider's books show, and return the refunds."""
    books = sandbox_payment(stage.sandbox_url, payment)
    refunded = format_amount(books["refunded"], books["currency"])
    stage.say(
        f"  books {when:<7} {payment}  {format_amount(books['amount'], books['currency'])} received,"
        f" {refunded} refunded in {len(books['refunds'])} refund(s)"
    )
    refunds: list[dict[str, Any]] = books["refunds"]
    return refunds


def walk(stage: Stage, title: str, fault: str = "") -> Walked:
    """Submit, look, approve, wait, poll. `fault` is armed at the provider for this payment. Raises WalkError."""
    say = stage.say
    say(f"\n{title}")
    (payment,) = at_sandbox(
        stage.sandbox_url,
        stage.cast.provider_secret,
        [{"amount": 12_000, "currency": "usd", "name": "Dana Fox"}],
    )
    print_books(stage, payment, "before")
    if fault:
        armed = [{"on": "refund.create", "times": 1, "fault": fault, "payment": payment}]
        httpx.post(f"{stage.sandbox_url}/_sandbox/faults", json=armed, trust_env=False).raise_for_status()
        say(f"  provider     armed to do the refund and lose the answer ({fault})")
    run = f"run_{secrets.randbelow(9000) + 1000}"
    body = {
        "kind": "refund",
        "run_id": run,
        "step_id": "refund-order-77",
        "parameters": {
            "payment": payment,
            "amount": AMOUNT,
            "currency": "usd",
            "reason": "requested_by_customer",
        },
        "reasoning": "Customer was charged twice for order 77.",
        "versions": {"workflow": "support@12", "prompt": "refunds@4", "tool_schema": "refund@1"},
    }
    name, token = next(iter(stage.cast.agents.items()))
    reviewer, password = next(iter(stage.cast.reviewers.items()))
    with AgentProgram(stage.base_url, token) as agent, Person(stage.base_url) as person:
        answer = agent.submit(body, key=f"{run}:refund-order-77")
        if answer.status_code != 201:
            raise WalkError(f"the submission was answered {answer.status_code}: {answer.text}")
        action_id = answer.json()["id"]
        asked = format_amount(AMOUNT, "usd")
        say(f"  agent        {name} proposed {asked} back: action {action_id}, {answer.status_code}")
        person.sign_in(reviewer, password)
        say(f"  reviewer     {reviewer} signed in and opened /actions/{action_id}/")
        started = time.monotonic()
        decided = decide_when_observed(person, action_id)
        say(f"  decision     approved on exactly what was shown, answered {decided}")
        final = agent.until_final(action_id)
        execution = final["execution"]
        receipt = execution["receipt"] or {}
        say(
            f"  ledger       {execution['status']} after {time.monotonic() - started:.1f} s, attempts:"
            f" {execution['attempts']}, receipt {receipt.get('reference')}"
        )
        again = agent.submit(body, key=f"{run}:refund-order-77")
        say(f"  agent        asked again under the same key: {again.status_code}, the same action, replayed")
        if again.json()["id"] != action_id:
            raise WalkError("the second submission became another action")
    refunds = print_books(stage, payment, "after")
    return Walked(action_id=action_id, final=final, refunds=refunds)


def decide_when_observed(person: Person, action_id: str) -> int:
    """Approve as soon as the provider's record is on the page; a page from before is answered 409."""
    deadline = time.monotonic() + 30
    while True:
        answer = person.decide(action_id, "approve")
        if answer.status_code == 303:
            return 303
        if answer.status_code != 409 or time.monotonic() > deadline:
            raise WalkError(f"the approval was answered {answer.status_code}")
        time.sleep(0.2)
