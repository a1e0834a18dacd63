"""What a kind of action is: a schema, a normalizer, a diff, its effects and how it can be undone. Pure values.

A kind never reads the database or the clock, and never reinterprets parameters of an older version.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, Literal, cast

import jsonschema_rs

from ledger.money import UnknownCurrencyError, format_amount
from ledger.providers.base import PaymentRecord

AMOUNTS = frozenset({"amount", "refundable", "refunded"})
"""Facts that are amounts in minor units."""


@dataclass(frozen=True, kw_only=True)
class FieldError:
    """What is wrong with one member; `pointer` is a JSON Pointer (RFC 6901) into the parameters."""

    detail: str
    pointer: str


@dataclass(frozen=True, kw_only=True)
class Value:
    """A value to show. `hostile` marks text that an agent or a payer wrote; it is raw here.

    `code` stands for our own words in digests, which must not change with the language of the page.
    """

    kind: Literal["text", "money", "code", "time", "words"]
    text: str = ""
    amount: int | None = None
    currency: str = ""
    at: datetime | None = None
    hostile: bool = False
    code: str = ""

    def identity(self) -> dict[str, Any]:
        """What it says, without language: for the view digest."""
        return self.as_json() | {"text": self.code or self.text}

    def as_json(self) -> dict[str, Any]:
        """What stands on the page, for snapshots."""
        return {
            "kind": self.kind,
            "text": self.text,
            "amount": self.amount,
            "currency": self.currency,
            "at": self.at.isoformat() if self.at else None,
        }


@dataclass(frozen=True, kw_only=True)
class DiffRow:
    """One line of the normalized diff: what it is, and before → after where it changes."""

    key: str
    label: str
    after: Value
    before: Value | None = None
    detail: tuple[Value, ...] = ()
    source: Literal["agent", "provider", "system"] = "system"

    def identity(self) -> dict[str, Any]:
        """What the row says, without language: for the view digest."""
        return {
            "key": self.key,
            "before": self.before.identity() if self.before else None,
            "after": self.after.identity(),
            "detail": [value.identity() for value in self.detail],
            "source": self.source,
        }

    def as_json(self) -> dict[str, Any]:
        """What stands on the page, for snapshots."""
        return {
            "key": self.key,
            "label": self.label,
            "before": self.before.as_json() if self.before else None,
            "after": self.after.as_json(),
            "detail": [value.as_json() for value in self.detail],
            "source": self.source,
        }


@dataclass(frozen=True, kw_only=True)
class Title:
    """What will happen to whom: "Refund", 49.00 USD, "Dana Fox". `to` is empty until the record is read."""

    verb: str
    amount: int
    currency: str
    to: str = ""


@dataclass(frozen=True, kw_only=True)
class KindVersion:
    """One version of a kind. The functions are pure; parameters handed to them have passed `validate`."""

    version: int
    schema: Mapping[str, Any]
    effects: tuple[str, ...]
    reversibility: str
    check: Callable[[Mapping[str, Any]], list[FieldError]]
    normalize: Callable[[Mapping[str, Any]], dict[str, Any]]
    resource: Callable[[Mapping[str, Any]], str]
    money: Callable[[Mapping[str, Any]], tuple[int, str]]
    customer: Callable[[Mapping[str, Any]], str]
    title: Callable[[Mapping[str, Any], PaymentRecord | None], Title]
    diff: Callable[[Mapping[str, Any], PaymentRecord | None], tuple[DiffRow, ...]]
    cautions: Callable[[Mapping[str, Any]], tuple[str, ...]]

    def validate(self, parameters: Any) -> list[FieldError]:
        """What is wrong with submitted parameters, by member; empty where nothing is."""
        errors = text_errors(parameters) or schema_errors(self.schema, parameters)
        return errors or self.check(parameters)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of action by its name."""

    name: str
    summary: str
    provider: str
    versions: Mapping[int, KindVersion]

    @property
    def latest(self) -> int:
        """The version that a submission without one means."""
        return max(self.versions)


def pointer(path: Sequence[str | int]) -> str:
    """A JSON Pointer."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def text_errors(value: Any, *path: str | int) -> list[FieldError]:
    """Text that can be neither stored nor sent on, wherever it stands; the API's parser refuses it before."""
    match value:
        case str() if "\x00" in value or any("\ud800" <= one <= "\udfff" for one in value):
            return [FieldError(detail="holds a character that no text may hold", pointer=pointer(path))]
        case dict() if any(text_errors(str(name)) for name in value):  # no pointer can carry such a name
            return [FieldError(detail="has a name that no member may have", pointer=pointer(path))]
        case dict():
            return [error for name, one in value.items() for error in text_errors(one, *path, name)]
        case list():
            return [error for number, one in enumerate(value) for error in text_errors(one, *path, number)]
        case _:
            return []


@lru_cache(maxsize=64)
def _validator(schema: str) -> jsonschema_rs.Draft202012Validator:
    """Built once a schema: building costs more than all checking with it."""
    return jsonschema_rs.Draft202012Validator(json.loads(schema))


def schema_errors(schema: Mapping[str, Any], instance: Any) -> list[FieldError]:
    """Violations in words for whoever wrote the request, at most twenty, one a member."""
    validator = _validator(json.dumps(schema))
    found: dict[str, str] = {}
    for error in validator.iter_errors(instance):
        for where, detail in _explain(schema, list(error.instance_path), error):
            found.setdefault(where, detail)
        if len(found) >= 20:
            break
    return [FieldError(detail=detail, pointer=where) for where, detail in [*found.items()][:20]]


def _explain(
    schema: Mapping[str, Any], path: list[str | int], error: jsonschema_rs.ValidationError
) -> list[tuple[str, str]]:
    name, instance = error.kind.name, cast("Any", error.instance)
    properties: Mapping[str, Any] = schema.get("properties", {})
    if name == "additionalProperties":
        known = ", ".join(properties)
        extra = [key for key in instance if key not in properties]
        return [(pointer([*path, key]), f"is not a parameter; known are {known}") for key in extra]
    if name == "required":
        missing = [key for key in schema.get("required", []) if key not in instance]
        return [(pointer([*path, key]), "is required") for key in missing]
    if not path:  # the library's own words would repeat everything that was sent
        return [("", "must be an object with the members " + ", ".join(properties))]
    hint = properties.get(str(path[0]), {}).get("description", "")
    return [(pointer(path), f"must be {hint}" if hint else f"does not fit the schema ({name})")]


@dataclass(frozen=True, kw_only=True)
class ThreeWay:
    """A fact as it was asked, as it was approved, and as it is now."""

    label: str
    requested: str
    approved: str
    now: str
    differs: bool = field(default=False)


def three_way(
    requested: Mapping[str, Any], approved: Mapping[str, Any], now: Mapping[str, Any]
) -> tuple[ThreeWay, ...]:
    """The rows of a blocked execution: every fact that any of the three names, amounts with their currency."""
    rows = []
    sides = (requested, approved, now)
    for key in dict.fromkeys([*requested, *approved, *now]):
        texts = [_fact(key, side, sides) for side in sides]
        known = {text for text in texts if text}
        rows.append(
            ThreeWay(
                label=key.replace("_", " "),
                requested=texts[0],
                approved=texts[1],
                now=texts[2],
                differs=len(known) > 1,
            )
        )
    return tuple(rows)


def _fact(key: str, side: Mapping[str, Any], sides: Sequence[Mapping[str, Any]]) -> str:
    value = side.get(key)
    currencies = [str(one["currency"]) for one in (side, *sides) if one.get("currency")]
    if key in AMOUNTS and type(value) is int and currencies:
        try:
            return format_amount(value, currencies[0])
        except UnknownCurrencyError:
            return f"{value} {currencies[0]}"
    return "" if value is None else str(value)
