"""JSON that can be read in one way only (RFC 8259 within I-JSON, RFC 7493), or a refusal that says where.

The standard library's scanner reads; what it lets through and other parsers read differently is refused here:
duplicate names, NaN, numbers that a double cannot hold, lone surrogates, U+0000, nesting without end.
Pure: no HTTP, no schema, nothing about what the members mean.
"""

import json
import math
import re
from collections.abc import Callable
from json.decoder import JSONDecodeError
from typing import Final, NoReturn

from approvals.jsonfaults import SAFE_INTEGER, StrictJSONError, first_fault
from ledger.providers.base import Json

__all__ = ["MAX_BYTES", "MAX_DEPTH", "SAFE_INTEGER", "StrictJSONError", "loads", "raw_member"]

MAX_BYTES: Final = 65_536
MAX_DEPTH: Final = 32

# possessive: a body of backslashes must not be tried in every way it could be cut
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_NO_BRACKET = re.compile(r"[^\[\]{}]+")
_LONG_DIGITS = re.compile(r"[0-9]{16}")
# What can only come in by an escape: raw control characters are refused by the scanner, raw surrogates by UTF-8.
_FORBIDDEN_ESCAPE = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
_FORBIDDEN_TEXT = re.compile("[\x00\ud800-\udfff]")
_SPACE = re.compile(r"[ \t\n\r]*")
_plain_decoder = json.JSONDecoder()


class _RefusedError(ValueError):
    """Something is there that must not be; where, the slow reading tells."""


def loads(
    data: bytes, *, max_depth: int = MAX_DEPTH, max_bytes: int = MAX_BYTES, allow_floats: bool = True
) -> Json:
    """The value of one JSON text in UTF-8. Raises StrictJSONError, and nothing else, for anything else.

    `max_depth` counts open arrays and objects; a scalar has depth 0. Integers lie within ±(2^53 - 1), where every
    parser agrees on them. Without `allow_floats` a number with a fraction or an exponent is refused too.
    """
    text = _decode(data, max_bytes)
    try:
        if _too_deep(text, max_depth):
            raise _RefusedError
        value: Json = _decoder(text, allow_floats=allow_floats).decode(text)
        if _FORBIDDEN_ESCAPE.search(text) and _has_forbidden_text(value):
            raise _RefusedError
    except (ValueError, RecursionError):
        raise first_fault(text, max_depth=max_depth, allow_floats=allow_floats) from None
    return value


def raw_member(data: bytes, name: str) -> str | None:
    """The source text of a top-level member's value, exactly as it was sent; None where there is none.

    For a body that `loads` has taken; StrictJSONError where it is no JSON object.
    """
    try:
        text = data.decode()
        at = _after(text, 0)
        if text[at : at + 1] != "{":
            raise StrictJSONError("The JSON text is not an object.", "")
        at = _after(text, at + 1)
        while text[at : at + 1] == '"':
            member, at = _plain_decoder.raw_decode(text, at)
            at = _after(text, at)
            if text[at : at + 1] != ":":
                break
            start = _after(text, at + 1)
            _, end = _plain_decoder.raw_decode(text, start)
            if member == name:
                return text[start:end]
            at = _after(text, end)
            if text[at : at + 1] != ",":
                break
            at = _after(text, at + 1)
    except (UnicodeDecodeError, JSONDecodeError, RecursionError) as error:
        raise StrictJSONError("The body is not JSON.", "") from error
    return None


def _after(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _decode(data: bytes, max_bytes: int) -> str:
    if len(data) > max_bytes:
        raise StrictJSONError(f"The body is larger than {max_bytes} bytes.", "")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise StrictJSONError(f"The body is not UTF-8 at byte {error.start}.", "") from None
    if text.startswith("\ufeff"):
        raise StrictJSONError("The body begins with a byte order mark; send UTF-8 without one.", "")
    if not text.strip(" \t\n\r"):
        raise StrictJSONError("The body is empty.", "")
    return text


def _too_deep(text: str, max_depth: int) -> bool:
    """Counted before anything recurses. Up to the first syntax error the strings are those of the scanner."""
    if text.count("[") + text.count("{") <= max_depth:
        return False
    depth = 0
    for bracket in _NO_BRACKET.sub("", _STRING.sub("", text)):
        if bracket in "[{":
            depth += 1
            if depth > max_depth:
                return True
        else:
            depth -= 1
    return False


def _decoder(text: str, *, allow_floats: bool) -> json.JSONDecoder:
    """The library's C scanner; `parse_int` costs a call a number, so only where a long one may be."""
    long_integers: Callable[[str], int] | None = _integer if _LONG_DIGITS.search(text) else None
    return json.JSONDecoder(
        object_pairs_hook=_object,
        parse_int=long_integers,
        parse_float=_float if allow_floats else _refuse,
        parse_constant=_refuse,
    )


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _RefusedError
    return made


def _integer(digits: str) -> int:
    if len(digits) > 17 or abs(int(digits)) > SAFE_INTEGER:
        raise _RefusedError
    return int(digits)


def _float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise _RefusedError
    return number


def _refuse(_: str) -> NoReturn:
    raise _RefusedError


def _has_forbidden_text(value: Json) -> bool:
    waiting: list[Json] = [value]
    while waiting:
        match waiting.pop():
            case str() as one:
                if _FORBIDDEN_TEXT.search(one):
                    return True
            case dict() as members:
                waiting.extend(members)
                waiting.extend(members.values())
            case list() as items:
                waiting.extend(items)
            case _:
                pass
    return False
