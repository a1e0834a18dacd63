"""The slow, careful reading of a JSON text that was refused: what is wrong first, and where (RFC 6901).

It runs only for texts that `strictjson` has already refused, keeps its own stack instead of recursing, and never
quotes what was sent: details go into answers and logs. No value is built here.
"""

import math
import re
from dataclasses import dataclass, field
from json.decoder import JSONDecodeError, JSONDecoder
from typing import Final

SAFE_INTEGER: Final = 2**53 - 1
"""The largest integer that every JSON parser agrees on (RFC 7493, 2.2)."""

_NUMBER = re.compile(r"(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORD = re.compile(r"[-A-Za-z]+")
_SPACE = re.compile(r"[ \t\n\r]*")
_LITERALS = frozenset({"true", "false", "null"})
_CONSTANTS = frozenset({"NaN", "Infinity", "-Infinity"})
_decoder = JSONDecoder()


class StrictJSONError(ValueError):
    """Not JSON that can be read in one way only. `pointer` is a JSON Pointer; empty where it is the whole text."""

    def __init__(self, detail: str, pointer: str) -> None:
        super().__init__(f"{detail} ({pointer})" if pointer else detail)
        self.detail = detail
        self.pointer = pointer


@dataclass
class _Frame:
    """One open container: where we are in it, and the names it has had (None for an array)."""

    names: set[str] | None
    place: str | int = 0

    @property
    def closing(self) -> str:
        """The bracket that ends it."""
        return "]" if self.names is None else "}"


def first_fault(text: str, *, max_depth: int, allow_floats: bool) -> StrictJSONError:
    """The first thing wrong in the order of the text."""
    try:
        _Reading(text, max_depth, allow_floats).run()
    except StrictJSONError as fault:
        return fault
    return StrictJSONError("The text cannot be read.", "")


def escaped(name: str) -> str:
    """A reference token; what no UTF-8 answer could carry is written as an escape."""
    token = name.replace("~", "~0").replace("/", "~1")
    return token.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\u0000")


@dataclass
class _Reading:
    text: str
    max_depth: int
    allow_floats: bool
    at: int = 0
    stack: list[_Frame] = field(default_factory=list)

    def run(self) -> None:
        """Read everything once. Raises StrictJSONError at the first fault."""
        self.space()
        wants_value = self.value()
        while wants_value or self.stack:
            wants_value = self.value() if wants_value else self.after_value()
        self.space()
        if self.at < len(self.text):
            raise self.fault(f"Something follows the end of the JSON text, at {self.position()}.")

    def value(self) -> bool:
        """A scalar, or the opening of a container up to its first value; whether a value must follow."""
        first = self.text[self.at : self.at + 1]
        if first in ("{", "["):
            return self.open(first)
        if first == '"':
            self.check_text(self.string())
        elif first == "-" or first.isdigit():
            self.number()
        else:
            self.word()
        return False

    def open(self, bracket: str) -> bool:
        """A container: its first value follows, or it ends at once."""
        if len(self.stack) >= self.max_depth:
            raise self.fault(f"More than {self.max_depth} arrays and objects stand inside each other.")
        self.at += 1
        frame = _Frame(names=set() if bracket == "{" else None)
        self.space()
        if self.text[self.at : self.at + 1] == frame.closing:
            self.at += 1
            return False
        if frame.names is not None:
            self.name(frame)
        self.stack.append(frame)
        return True

    def after_value(self) -> bool:
        """A comma and the next member, or the end of the container."""
        frame = self.stack[-1]
        self.space()
        character = self.text[self.at : self.at + 1]
        if character == frame.closing:
            self.at += 1
            self.stack.pop()
            return False
        if character != ",":
            raise self.fault(f"A comma or {frame.closing} is missing at {self.position()}.", inside=False)
        self.at += 1
        self.space()
        if frame.names is None:
            frame.place = int(frame.place) + 1
        else:
            self.stack.pop()
            self.name(frame)
            self.stack.append(frame)
        return True

    def name(self, frame: _Frame) -> None:
        """A member's name and its colon; the frame is not on the stack while its name is read."""
        if self.text[self.at : self.at + 1] != '"':
            raise self.fault(f"A name in double quotes is missing at {self.position()}.")
        name = self.string()
        assert frame.names is not None
        twice = name in frame.names
        frame.names.add(name)
        frame.place = name
        self.stack.append(frame)
        self.check_text(name, what="name")
        if twice:
            raise self.fault("The name stands more than once in the same object.")
        self.stack.pop()
        self.space()
        if self.text[self.at : self.at + 1] != ":":
            raise self.fault(f"A colon is missing at {self.position()}.")
        self.at += 1
        self.space()

    def string(self) -> str:
        """The string that begins here."""
        try:
            text, self.at = _decoder.raw_decode(self.text, self.at)
        except JSONDecodeError as error:
            self.at = min(error.pos, len(self.text))
            raise self.fault(f"A string is malformed at {self.position()}.") from None
        return str(text)

    def check_text(self, text: str, *, what: str = "text") -> None:
        """No character that cannot be stored, hashed or sent on."""
        if "\x00" in text:
            raise self.fault(f"The {what} holds the character U+0000.")
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise self.fault(f"The {what} holds half of a surrogate pair.")

    def number(self) -> None:
        """A number that a double holds exactly, or at all."""
        found = _NUMBER.match(self.text, self.at)
        if found is None:
            self.word()
            return
        whole, fraction, exponent = found.groups()
        if fraction is None and exponent is None:
            if len(whole) > 17 or abs(int(whole)) > SAFE_INTEGER:
                raise self.fault(f"The integer is outside ±{SAFE_INTEGER}.")
        elif not self.allow_floats:
            raise self.fault("A number with a fraction or an exponent is not taken; send an integer.")
        elif not math.isfinite(float(found.group())):
            raise self.fault("The number is too large.")
        self.at = found.end()

    def word(self) -> None:
        """`true`, `false` or `null`; everything else is a fault."""
        found = _WORD.match(self.text, self.at)
        word = found.group() if found else ""
        if word in _CONSTANTS:
            raise self.fault("NaN and Infinity are no JSON.")
        literal = next((one for one in _LITERALS if self.text.startswith(one, self.at)), None)
        if literal is None:
            raise self.fault(f"A value is missing or malformed at {self.position()}.")
        self.at += len(literal)

    def space(self) -> None:
        """Past white space."""
        found = _SPACE.match(self.text, self.at)
        if found:
            self.at = found.end()

    def position(self) -> str:
        """Line and column, both from 1."""
        before = self.text[: self.at]
        return f"line {before.count(chr(10)) + 1} column {self.at - before.rfind(chr(10))}"

    def fault(self, detail: str, *, inside: bool = True) -> StrictJSONError:
        """A fault at the member where we are, or (not `inside`) at the container that holds it."""
        frames = self.stack if inside else self.stack[:-1]
        return StrictJSONError(detail, "".join("/" + escaped(str(frame.place)) for frame in frames))
