"""Form-encoded parameters in Stripe's bracket notation, read strictly. Pure: text in, values or ApiError."""

import hashlib
import json
import re
from collections.abc import Mapping
from urllib.parse import parse_qsl

from .errors import ApiError

type Param = str | dict[str, Param]
type Params = dict[str, Param]

MAX_FIELDS = 200
NAME = re.compile(r"([A-Za-z0-9_]{1,100})((?:\[[^\[\]]{0,100}\])*)")
INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,14})", re.ASCII)


def parse_form(text: str) -> Params:
    """`a=1&b[c]=2&d[]=3` as nested dictionaries; a list is a dictionary keyed by index.

    Raises ApiError (400) for bad encoding, a malformed name, and a name given twice: which of two amounts
    was meant must never be guessed.
    """
    try:
        pairs = parse_qsl(
            text,
            keep_blank_values=True,
            strict_parsing=bool(text),
            errors="strict",
            max_num_fields=MAX_FIELDS,
        )
    except ValueError as error:
        raise ApiError(400, f"Invalid request body: {error}") from error
    params: Params = {}
    for name, value in pairs:
        matched = NAME.fullmatch(name)
        if matched is None:
            raise ApiError(400, f"Invalid parameter name: {name[:100]!r}")
        path = [matched[1], *re.findall(r"\[([^\[\]]*)\]", matched[2])]
        _put(params, path, value, name)
    return params


def _put(params: Params, path: list[str], value: str, name: str) -> None:
    here = params
    for step in path[:-1]:
        below = here.setdefault(step, {})
        if isinstance(below, str):
            raise ApiError(400, f"Parameter given twice: {name}", param=name)
        here = below
    last = path[-1] or str(len(here))
    if last in here:
        raise ApiError(400, f"Parameter given twice: {name}", param=name)
    here[last] = value


def fingerprint(params: Params) -> str:
    """SHA-256 over the parameters, whatever their order: how the key layer knows the same request again."""
    return hashlib.sha256(json.dumps(params, sort_keys=True).encode()).hexdigest()


class Reader:
    """Takes parameters one by one; what nobody took is unknown and refused by `done`."""

    def __init__(self, params: Mapping[str, Param]) -> None:
        self._params = dict(params)

    def text(self, name: str, *, max_length: int = 500) -> str | None:
        """A string, or None where it is absent or empty."""
        value = self._params.pop(name, None)
        if isinstance(value, dict):
            raise ApiError(400, f"Invalid string: {name}", param=name)
        if value is not None and len(value) > max_length:
            raise ApiError(400, f"Invalid string: {name} is longer than {max_length}", param=name)
        return value or None

    def required(self, name: str) -> str:
        """A string that must be there."""
        value = self.text(name)
        if value is None:
            raise ApiError(400, f"Missing required param: {name}.", code="parameter_missing", param=name)
        return value

    def integer(self, name: str, *, least: int, most: int) -> int | None:
        """A whole number in plain ASCII digits, or None where it is absent. An empty one is refused."""
        value = self._params.pop(name, None)
        if value is None:
            return None
        return to_integer(value, name, least=least, most=most)

    def choice(self, name: str, allowed: frozenset[str]) -> str | None:
        """One of `allowed`, or None where it is absent."""
        value = self.text(name)
        if value is not None and value not in allowed:
            choices = ", ".join(sorted(allowed))
            raise ApiError(400, f"Invalid {name}: must be one of {choices}", param=name)
        return value

    def flag(self, name: str) -> bool:
        """`true` or `false`; absent is False."""
        return self.choice(name, frozenset({"true", "false"})) == "true"

    def mapping(self, name: str) -> Params:
        """A nested hash such as `metadata[key]`."""
        value = self._params.pop(name, {})
        if isinstance(value, str):
            if value == "":
                return {}
            raise ApiError(400, f"Invalid hash: {name}", param=name)
        return value

    def strings(self, name: str) -> list[str]:
        """A list such as `expand[]`."""
        values = list(self.mapping(name).values())
        found = [value for value in values if isinstance(value, str)]
        if len(found) != len(values):
            raise ApiError(400, f"Invalid array: {name}", param=name)
        return found

    def metadata(self) -> dict[str, str]:
        """`metadata` within Stripe's limits: 50 keys of 40 characters, values of 500. Empty values unset."""
        found: dict[str, str] = {}
        for key, value in self.mapping("metadata").items():
            if not isinstance(value, str):
                raise ApiError(400, "Metadata values must be strings", param="metadata")
            if len(key) > 40 or len(value) > 500:
                raise ApiError(
                    400, "Metadata keys have up to 40, values up to 500 characters", param="metadata"
                )
            if value:
                found[key] = value
        if len(found) > 50:
            raise ApiError(400, "Metadata has up to 50 keys", param="metadata")
        return found

    def ignore(self, *names: str) -> None:
        """Parameters that Stripe knows and that change nothing here."""
        for name in names:
            self._params.pop(name, None)

    def done(self) -> None:
        """Raises ApiError (400 `parameter_unknown`) where something is left over."""
        for name in self._params:
            raise ApiError(400, f"Received unknown parameter: {name}", code="parameter_unknown", param=name)


def to_integer(value: Param, name: str, *, least: int, most: int) -> int:
    """`value` as an integer of the range, or ApiError (400 `parameter_invalid_integer`)."""
    if isinstance(value, dict) or INTEGER.fullmatch(value) is None:
        raise ApiError(400, f"Invalid integer: {value}", code="parameter_invalid_integer", param=name)
    number = int(value)
    if not least <= number <= most:
        word = f"greater than or equal to {least}" if number < least else f"less than or equal to {most}"
        raise ApiError(400, f"Invalid {name}: must be {word}", code="parameter_invalid_integer", param=name)
    return number
