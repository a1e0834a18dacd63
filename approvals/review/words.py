"""What a state means, said plainly: who did what, what happens now, and what to do about it.

Pure: values in, words out. Markup, colours and queries live elsewhere, and so does every rule.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ledger.money import UnknownCurrencyError, format_amount
from ledger.states import AttemptOutcome, OperationState

S = OperationState


@dataclass(frozen=True, kw_only=True)
class Word:
    """A state as a mark: an icon's name, a tone (`ok`, `wait`, `warn`, `stop`, `plain`) and a word or two."""

    icon: str
    tone: str
    word: str


ACTION_WORDS: Mapping[str, Word] = {
    "pending": Word(icon="clock", tone="wait", word="Waiting"),
    "approved": Word(icon="check", tone="ok", word="Approved"),
    "rejected": Word(icon="cross", tone="plain", word="Rejected"),
    "expired": Word(icon="clock", tone="plain", word="Expired"),
    "cancelled": Word(icon="cross", tone="plain", word="Taken back"),
    "superseded": Word(icon="send", tone="plain", word="Replaced"),
}
EFFECT_WORDS: Mapping[str, Word] = {
    S.PREPARED: Word(icon="clock", tone="wait", word="Not sent yet"),
    S.DISPATCHED: Word(icon="send", tone="wait", word="Sending"),
    S.SUCCEEDED: Word(icon="check", tone="ok", word="Done"),
    S.FAILED: Word(icon="stop", tone="stop", word="Refused"),
    S.BLOCKED: Word(icon="stop", tone="warn", word="Not sent"),
    S.CANCELLED: Word(icon="cross", tone="plain", word="Withdrawn"),
    S.OUTCOME_UNKNOWN: Word(icon="question", tone="warn", word="Outcome unknown"),
    S.RECONCILED_SUCCEEDED: Word(icon="check", tone="ok", word="Done"),
    S.RECONCILED_NOT_EXECUTED: Word(icon="stop", tone="warn", word="Did not happen"),
}
EFFECT_SENTENCES: Mapping[str, str] = {
    S.PREPARED: "It is written down and goes to the payment provider next.",
    S.DISPATCHED: "Sending to the payment provider…",
    S.SUCCEEDED: "The payment provider accepted it.",
    S.FAILED: "The payment provider refused it. No money moved.",
    S.BLOCKED: "Nothing was sent: something that was true when it was approved no longer holds.",
    S.CANCELLED: "It was withdrawn before anything was sent.",
    S.OUTCOME_UNKNOWN: (
        "We sent it and got no answer. We are asking the provider. Do not send it again by hand."
    ),
    S.RECONCILED_SUCCEEDED: (
        "We had no clear answer at first. The provider's own books show that it happened."
    ),
    S.RECONCILED_NOT_EXECUTED: (
        "We had no clear answer at first. The provider's own books prove that it did not happen."
    ),
}
ALLOWANCE_SENTENCES: Mapping[str, str] = {
    "first": "The first attempt: the decision itself allows it.",
    "not_accepted": (
        "Every earlier attempt was provably not taken in by the provider, so nothing could be doubled."
    ),
    "provider_guarantee": (
        "An earlier attempt may have landed. The provider guarantees that the same key with the same "
        "parameters has one effect only, and that guarantee still held."
    ),
    "confirmed_not_executed": "Evidence showed that no earlier attempt took effect.",
}
ATTEMPT_WORDS: Mapping[str, str] = {
    AttemptOutcome.PENDING: "no answer yet",
    AttemptOutcome.ACCEPTED: "accepted by the provider",
    AttemptOutcome.NOT_ACCEPTED: "provably not taken in",
    AttemptOutcome.REFUSED: "refused by the provider",
    AttemptOutcome.UNKNOWN: "outcome unknown: it may have landed",
    AttemptOutcome.NOT_EXECUTED: "proven not to have happened",
}
CHANGED_WORDS: Mapping[str, str] = {
    "state_version": "the question itself",
    "fingerprint": "the parameters",
    "policy_version": "the policy",
    "view_digest": "the provider's record, or the rule that asks you",
    "seq": "your own vote, in another window",
}
MONEY = frozenset({"amount", "refundable", "refunded"})
NAMES: Mapping[str, str] = {
    "amount": "Amount",
    "currency": "Currency",
    "disputed": "Disputed",
    "execute_before": "Had to start by",
    "known": "Known to the provider",
    "payment": "Payment",
    "refundable": "Refundable",
    "refunded": "Refunded",
    "status": "Status",
    "time": "Time",
}


def humanize(name: str) -> str:
    """A field's name for people: `execute_before` → `Had to start by`."""
    return NAMES.get(name, name.replace("_", " ").capitalize())


def action_word(status: str) -> Word:
    """The mark of an action's status."""
    return ACTION_WORDS.get(status, Word(icon="question", tone="plain", word=humanize(status)))


def effect_word(state: str) -> Word:
    """The mark of an operation's state."""
    return EFFECT_WORDS.get(state, Word(icon="question", tone="plain", word=humanize(state)))


def by_whom(by_type: str, names: Sequence[str]) -> str:
    """Who settled it: names, or the policy, the system, the agent."""
    match by_type:
        case "policy":
            return "the policy"
        case "system":
            return "the system"
        case "agent":
            return f"the agent {', '.join(names)}".strip()
        case _:
            return " and ".join(names) or "somebody"


def verdict_sentence(verdict: str, by_type: str, names: Sequence[str]) -> str:
    """Neutral words for a settled action, without the time: `Rana approved this` (K29)."""
    who = by_whom(by_type, names)
    who = who[:1].upper() + who[1:] if by_type != "reviewer" else who
    match verdict:
        case "approved":
            return f"{who} approved this"
        case "rejected":
            return f"{who} rejected this"
        case "cancelled":
            return f"{who} took this back"
        case "superseded":
            return "A newer revision replaced this"
        case _:
            return "The time for deciding ran out"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One line of *asked · approved · now*; an empty text where a column has nothing to say."""

    name: str
    asked: str
    approved: str
    now: str

    @property
    def differs(self) -> bool:
        """Whether the last column contradicts one before it."""
        return bool(self.now) and any(text and text != self.now for text in (self.asked, self.approved))


def differences(
    detail: Mapping[str, Any], *, currency: str = "", record: Mapping[str, Any] | None = None
) -> tuple[Difference, ...]:
    """The three columns of a refusal's facts (R-C5), one line per fact that speaks for itself.

    `record` is the provider's record as it stood when it was approved; amounts are minor units of `currency`.
    """
    requested, now = detail.get("requested") or {}, dict(detail.get("now") or {})
    approved = approved_facts(record) | dict(detail.get("approved") or {})
    if "time" in now:  # the moment, held against the limit that was approved
        now["execute_before"] = now.pop("time")
    lines = []
    for name in dict.fromkeys([*now, *(detail.get("approved") or {})]):
        asked = requested.get(name)
        texts = [fact(name, value, currency) for value in (asked, approved.get(name), now.get(name))]
        if name == "refundable" and "amount" in requested:
            texts[0] = f"at least {fact('amount', requested['amount'], currency)}"
        lines.append(Difference(name=humanize(name), asked=texts[0], approved=texts[1], now=texts[2]))
    return tuple(line for line in lines if line.name != humanize("currency") or line.differs)


def approved_facts(record: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the provider's record said of itself, by the names that a refusal uses."""
    if not record:
        return {}
    known = {name: record[name] for name in ("currency", "status", "disputed", "refunded") if name in record}
    known["known"] = not record.get("missing", False)
    if "amount" in record and "refunded" in record:
        known["refundable"] = record["amount"] - record["refunded"]
    return known


def fact(name: str, value: Any, currency: str) -> str:
    """One fact as text: amounts with their currency, names and times as they are."""
    if name in MONEY and type(value) is int and currency:
        try:
            return format_amount(value, currency)
        except UnknownCurrencyError:
            return f"{value} minor units of {currency}"
    return say(value)


def say(value: Any) -> str:
    """A plain fact as text."""
    match value:
        case None:
            return ""
        case True:
            return "yes"
        case False:
            return "no"
        case list() | tuple():
            return ", ".join(say(one) for one in value)
        case dict():
            return ", ".join(f"{humanize(str(name))} {say(one)}" for name, one in value.items())
        case _:
            return str(value)
