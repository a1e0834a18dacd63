"""What a journal entry says, in one plain sentence. Pure; its own payload stands beside it on the page."""

from collections.abc import Callable, Mapping
from typing import Any

from approvals.review.words import ALLOWANCE_SENTENCES, by_whom, humanize
from ledger.money import UnknownCurrencyError, format_amount

type Payload = Mapping[str, Any]


def money(payload: Payload) -> str:
    """The payload's amount with its currency; empty where it has none."""
    amount, currency = payload.get("amount"), payload.get("currency")
    if not isinstance(amount, int) or not isinstance(currency, str):
        return ""
    try:
        return format_amount(amount, currency)
    except UnknownCurrencyError:
        return f"{amount} minor units of {currency}"


def _settled(payload: Payload) -> str:
    by = payload.get("by") or {}
    who = by_whom(str(by.get("type", "")), [str(name) for name in by.get("names", [])])
    rule = f" under rule “{payload['rule']}”" if payload.get("rule") else ""
    version = f", policy version {payload['policy_version']}" if payload.get("policy_version") else ""
    reason = f". Reason: {payload['reason']}" if payload.get("reason") else ""
    verdict = {
        "approved": "Approved",
        "rejected": "Rejected",
        "expired": "Expired",
        "cancelled": "Taken back",
    }
    return f"{verdict.get(str(payload.get('verdict')), 'Settled')} by {who}{rule}{version}{reason}"


def _vote(payload: Payload) -> str:
    verb = {"approve": "approves", "reject": "rejects", "withdraw": "withdraws"}.get(
        str(payload.get("event")), "votes"
    )
    reason = f". Reason: {payload['reason']}" if payload.get("reason") else ""
    return f"{payload.get('reviewer', 'A reviewer')} {verb} what the page showed{reason}"


def _dispatched(payload: Payload) -> str:
    why = ALLOWANCE_SENTENCES.get(str(payload.get("allowed_by")), "")
    return f"Attempt {payload.get('attempt', '?')} begins. {why}".strip()


def _receipt(payload: Payload) -> str:
    return ", ".join(part for part in (str(payload.get("reference", "")), money(payload)) if part)


def _looked_up(payload: Payload) -> str:
    if not payload.get("complete"):
        return f"The provider was asked by our key and could not be read whole ({payload.get('reason', '')})"
    found = ", ".join(str(one) for one in payload.get("references", []))
    return f"The provider was asked by our key: {f'it has {found}' if found else 'it has nothing'}"


def _permitted(payload: Payload) -> str:
    ground = ALLOWANCE_SENTENCES.get(str(payload.get("ground")), str(payload.get("ground", "")))
    return f"Attempt {payload.get('attempt', '?')} is permitted. {ground}"


def _refused(payload: Payload) -> str:
    message = (payload.get("detail") or {}).get("message") or payload.get("reason", "")
    return f"{message}".rstrip(".")


SENTENCES: Mapping[str, Callable[[Payload], str]] = {
    "action.submitted": lambda _: "The agent asks for it",
    "action.repeated": lambda p: f"The agent asks for the same again, attempt {p.get('attempt', '?')}",
    "action.observed": lambda _: "The provider's record was read",
    "action.policy_changed": lambda p: (
        f"The policy changed to version {p.get('policy_version', '?')}, and the action was weighed again"
    ),
    "action.approved": _settled,
    "action.rejected": _settled,
    "action.expired": _settled,
    "action.cancelled": _settled,
    "action.superseded": lambda _: "A newer revision replaced it",
    "vote.cast": _vote,
    "operation.prepared": lambda p: (
        f"The effect “{p.get('effect', '')}” was written down under its key, before anything was sent"
    ),
    "operation.dispatched": _dispatched,
    "operation.backed_off": lambda p: f"Not taken in ({p.get('reason', '')}); to be tried again later",
    "operation.succeeded": lambda p: f"The provider accepted it: {_receipt(p)}",
    "operation.failed": lambda p: f"Refused. {_refused(p)}",
    "operation.blocked": lambda p: f"Nothing was sent. {_refused(p)}",
    "operation.cancelled": lambda p: f"Withdrawn before anything was sent ({p.get('reason', '')})",
    "operation.outcome_unknown": lambda p: (
        f"No clear answer ({p.get('reason', '')}): the outcome is unknown, and writing stops"
    ),
    "operation.looked_up": _looked_up,
    "operation.recovery_permitted": _permitted,
    "operation.reconciled_succeeded": lambda p: f"The provider's books show that it happened: {_receipt(p)}",
    "operation.reconciled_not_executed": lambda _: "The provider's books prove that it did not happen",
    "operation.late_answer": lambda p: (
        f"A late answer to attempt {p.get('attempt', '?')} arrived ({p.get('outcome', '')}) and was kept"
    ),
    "case.opened": lambda p: (
        f"A question for people: {humanize(str(p.get('reason', ''))).lower()}; owner: {p.get('owner', '')}"
    ),
}


def sentence(event: str, payload: Payload | None) -> str:
    """One sentence for an entry; the event's name where there is none, or where the payload was erased."""
    if payload is None:
        return f"{humanize(event.replace('.', ' '))} (its details were erased; the entry stands)"
    say = SENTENCES.get(event)
    return say(payload) if say else humanize(event.replace(".", " "))
