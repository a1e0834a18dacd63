"""A tenant's rules for one kind of action: parsed strictly, evaluated purely. First match wins; no match denies.

A document: `{"rules": [{"name", "when": {…}, "outcome": "allow"|"deny"|"review", "quorum", "roles", "reason",
"needs_observation"}], "expires_in": seconds, "execute_within": seconds}`. Conditions of `when`: `currency`,
`min_amount`, `max_amount` (minor units, both inclusive) and `max_share` (percent of the payment; needs the
provider's record). A rule that cannot be evaluated asks an admin, and never allows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ledger.money import UnknownCurrencyError, currency_code

CONDITIONS = frozenset({"currency", "min_amount", "max_amount", "max_share"})
RULE_MEMBERS = frozenset({"name", "when", "outcome", "quorum", "roles", "reason", "needs_observation"})
MEMBERS = frozenset({"rules", "expires_in", "execute_within"})
ROLES = frozenset({"reviewer", "operator", "admin"})
DAY = 86_400
MAX_AMOUNT = 10**15


class PolicyError(ValueError):
    """The document is no policy; the message names the place and what may stand there."""


class Outcome(StrEnum):
    """What a rule says."""

    ALLOW = "allow"
    DENY = "deny"
    REVIEW = "review"


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a rule may look at. `payment_amount` is None until the provider's record has been read."""

    amount: int | None
    currency: str
    payment_amount: int | None = None

    @property
    def observed(self) -> bool:
        """Whether the provider's record is there."""
        return self.payment_amount is not None


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One parsed rule."""

    name: str
    when: Mapping[str, Any]
    outcome: Outcome
    quorum: int
    roles: tuple[str, ...]
    reason: str
    needs_observation: bool


@dataclass(frozen=True, kw_only=True)
class Ruleset:
    """A parsed policy; times in seconds."""

    rules: tuple[Rule, ...]
    expires_in: int
    execute_within: int


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the policy says of one action. Times in seconds."""

    outcome: Outcome
    rule: str
    quorum: int
    roles: tuple[str, ...]
    reason: str
    needs_observation: bool
    expires_in: int
    execute_within: int

    def as_json(self) -> dict[str, Any]:
        """As it is stored on the action (`policy_outcome`)."""
        return {
            "outcome": str(self.outcome),
            "rule": self.rule,
            "quorum": self.quorum,
            "roles": list(self.roles),
            "reason": self.reason,
            "needs_observation": self.needs_observation,
            "execute_within": self.execute_within,
        }


def _whole(value: Any, where: str, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise PolicyError(f"{where} must be a whole number from {low} to {high}")
    return value


def _text(value: Any, where: str, *, empty: bool = False) -> str:
    if not isinstance(value, str) or len(value) > 300 or not (value.strip() or empty):
        raise PolicyError(f"{where} must be a text of at most 300 characters")
    return value


def _no_others(value: Any, allowed: frozenset[str], where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise PolicyError(f"{where} must be an object")
    unknown = sorted(str(name) for name in set(value) - allowed)
    if unknown:
        raise PolicyError(
            f"{where} has unknown members: {', '.join(unknown)}; known are {', '.join(sorted(allowed))}"
        )
    return value


def parse(document: Any) -> Ruleset:
    """A policy from its document. Raises PolicyError."""
    body = _no_others(document, MEMBERS, "the policy")
    listed = body.get("rules")
    if not isinstance(listed, list) or len(listed) > 200:
        raise PolicyError("rules must be a list of at most 200 rules")
    parsed = tuple(_rule(rule, f"rules[{number}]") for number, rule in enumerate(listed))
    names = [rule.name for rule in parsed]
    if len(set(names)) != len(names):
        raise PolicyError("two rules have the same name")
    return Ruleset(
        rules=parsed,
        expires_in=_whole(body.get("expires_in", 3600), "expires_in", 60, 30 * DAY),
        execute_within=_whole(body.get("execute_within", 3600), "execute_within", 60, 30 * DAY),
    )


def _rule(value: Any, where: str) -> Rule:
    body = _no_others(value, RULE_MEMBERS, where)
    when = dict(_no_others(body.get("when", {}), CONDITIONS, f"{where}.when"))
    if "currency" in when:
        try:
            when["currency"] = currency_code(when["currency"]).lower()
        except UnknownCurrencyError:
            raise PolicyError(f"{where}.when.currency must be an ISO 4217 code such as usd") from None
    for name in ("min_amount", "max_amount"):
        if name in when:
            _whole(when[name], f"{where}.when.{name}", 0, MAX_AMOUNT)
    if when.get("min_amount", 0) > when.get("max_amount", MAX_AMOUNT):
        raise PolicyError(f"{where}.when.min_amount is above max_amount, so the rule matches nothing")
    if "max_share" in when:
        _whole(when["max_share"], f"{where}.when.max_share", 1, 100)
    try:
        outcome = Outcome(str(body.get("outcome")))
    except ValueError:
        raise PolicyError(f"{where}.outcome must be allow, deny or review") from None
    roles = body.get("roles", ["reviewer"])
    if not isinstance(roles, list) or not roles or any(role not in list(ROLES) for role in roles):
        raise PolicyError(f"{where}.roles must be a list out of {', '.join(sorted(ROLES))}")
    needs = body.get("needs_observation", outcome is not Outcome.DENY)
    if not isinstance(needs, bool):
        raise PolicyError(f"{where}.needs_observation must be true or false")
    if "max_share" in when and not needs and "needs_observation" in body:
        raise PolicyError(f"{where}.needs_observation cannot be false where max_share looks at the record")
    reason = _text(body.get("reason", ""), f"{where}.reason", empty=True)
    if outcome is Outcome.DENY and not reason:
        raise PolicyError(f"{where}.reason must say why the rule denies")
    return Rule(
        name=_text(body.get("name"), f"{where}.name"),
        when=when,
        outcome=outcome,
        quorum=_whole(body.get("quorum", 1), f"{where}.quorum", 1, 20),
        roles=tuple(sorted(set(roles))),
        reason=reason,
        needs_observation=needs,
    )


def evaluate(ruleset: Ruleset, facts: Facts) -> Verdict:
    """What the policy says. A rule that needs the provider's record yields *review* until it is there."""
    for rule in ruleset.rules:
        try:
            matched = _matches(rule, facts)
        except (TypeError, ArithmeticError):
            return _ask_admin(ruleset, rule)
        if matched is None:  # only the provider's record can tell
            return _verdict(ruleset, rule, outcome=Outcome.REVIEW, needs_observation=True)
        if matched:
            early = rule.outcome is Outcome.ALLOW and rule.needs_observation and not facts.observed
            return _verdict(ruleset, rule, outcome=Outcome.REVIEW if early else rule.outcome)
    return Verdict(
        outcome=Outcome.DENY,
        rule="",
        quorum=1,
        roles=(),
        reason="No rule of the policy allows this.",
        needs_observation=False,
        expires_in=ruleset.expires_in,
        execute_within=ruleset.execute_within,
    )


def _matches(rule: Rule, facts: Facts) -> bool | None:
    when = rule.when
    if "currency" in when and facts.currency != when["currency"]:
        return False
    if "min_amount" in when and not (facts.amount is not None and facts.amount >= when["min_amount"]):
        return False
    if "max_amount" in when and not (facts.amount is not None and facts.amount <= when["max_amount"]):
        return False
    if "max_share" in when:
        if facts.payment_amount is None:
            return None
        return facts.amount is not None and facts.amount * 100 <= facts.payment_amount * when["max_share"]
    return True


def _verdict(
    ruleset: Ruleset, rule: Rule, *, outcome: Outcome, needs_observation: bool | None = None
) -> Verdict:
    return Verdict(
        outcome=outcome,
        rule=rule.name,
        quorum=rule.quorum,
        roles=rule.roles,
        reason=rule.reason,
        needs_observation=rule.needs_observation if needs_observation is None else needs_observation,
        expires_in=ruleset.expires_in,
        execute_within=ruleset.execute_within,
    )


def _ask_admin(ruleset: Ruleset, rule: Rule) -> Verdict:
    return Verdict(
        outcome=Outcome.REVIEW,
        rule=rule.name,
        quorum=1,
        roles=("admin",),
        reason="The rule could not be evaluated, so an admin is asked.",
        needs_observation=True,
        expires_in=ruleset.expires_in,
        execute_within=ruleset.execute_within,
    )
