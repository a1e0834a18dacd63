"""Text that somebody else wrote, made visible: nothing in it is hidden, turned around or taken for something else.

Pure: text in, segments and warnings out. No HTML is written here, the text is never shortened or normalized, and
nothing here changes what is stored, hashed or sent.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from approvals.display import scripts, twins

type SegmentKind = Literal["plain", "escape", "lookalike", "newline"]

# Unicode general categories without a shape of their own (or with a private one): U+0020 and \n are let through.
_UNSEEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Zs", "Zl", "Zp", "Co", "Cs", "Cn"})
_SEPARATING: Final = frozenset({"Cc", "Zs", "Zl", "Zp"})
# Letters, marks and symbols that are blank all the same; a category says nothing about them.
_BLANK: Final = frozenset(
    map(
        chr,
        (
            *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0),
            *range(0x180B, 0x1810),
            *range(0xFE00, 0xFE10),
            *(0x13441, 0x13442, 0x16FE4, 0x1D159),
            *range(0xE0100, 0xE01F0),
        ),
    )
)
# What an escape is written with, and the brackets that look the same: or an escape could be forged.
_BRACKETS: Final = frozenset("\u27e6\u27e7\u301a\u301b")
# Marks drawn across a character or around it: struck out is not what was written.
_OVERLAYS: Final = frozenset(
    map(chr, (*range(0x0334, 0x0339), 0x20D2, 0x20D3, *range(0x20D8, 0x20DB), *range(0x20DD, 0x20E1)))
) | frozenset(map(chr, (*range(0x20E2, 0x20E7), 0x20EA, 0x20EB)))
_MARKS_IN_A_ROW: Final = 3
_NAMED_IN_WARNING: Final = 4
_WORD_IN_WARNING: Final = 40

_CONTROL_NAMES: Final = {
    "\x00": "NULL",
    "\x07": "BELL",
    "\x08": "BACKSPACE",
    "\t": "CHARACTER TABULATION",
    "\x0b": "LINE TABULATION",
    "\x0c": "FORM FEED",
    "\r": "CARRIAGE RETURN",
    "\x1b": "ESCAPE",
    "\x7f": "DELETE",
    "\x85": "NEXT LINE",
}

# One letter a character: (p)lain, (w)ord, (d)igit, (t) point or comma, (n)ewline, and what is escaped:
# (h)idden within a word, (s)eparating, (b)racket, (m)ark too many.
_WORD: Final = re.compile(r"(?:[wdhm]|(?<=d)t(?=d))++")
_RUN: Final = re.compile(r"n|[hsbm]|[pwdt]+")
_ESCAPED: Final = frozenset("hsbm")


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of what is shown. `note` names the character of an escape, or says what a look-alike mixes."""

    text: str
    kind: SegmentKind = "plain"
    note: str = ""


@dataclass(frozen=True, slots=True)
class Shown:
    """A whole text made visible. `length` counts its characters (code points), `hidden` the escaped ones."""

    segments: tuple[Segment, ...]
    warnings: tuple[str, ...]
    length: int
    hidden: int

    @property
    def text(self) -> str:
        """The same as one line of plain text, where no markup can stand (a title, a log): newlines escaped too."""
        return "".join(escape("\n") if part.kind == "newline" else part.text for part in self.segments)


def visible(text: str, *, name: str = "") -> Shown:
    """`text` with everything unseen as ⟦U+202E⟧, and warnings in plain words; `name` says what it is the text of.

    Escaped (Unicode categories and UTS #39; CVE-2021-42574, CVE-2021-42694): Cc but for the newline, Cf, Zl, Zp,
    Co, Cs, Cn, spaces other than U+0020, blank letters, more than three marks in a row or marks on nothing, and the
    brackets of an escape itself. Words that mix scripts or number systems, or use letters drawn as others
    (fullwidth, mathematical), are look-alikes, and so is a word of another script whose every letter is drawn
    like a Latin one, unless its neighbours are of that script too. The text is kept whole: reading the escapes
    back gives it again.
    """
    classes = _classify(text)
    segments: list[Segment] = []
    odd_words: dict[str, str] = {}
    for part, kinds, note in _parts(text, classes):
        segments.extend(_segments(part, kinds, note))
        if note:
            odd_words.setdefault("".join(_shown(part, kinds)), note)
    escaped = [(char, kind) for char, kind in zip(text, classes, strict=True) if kind in _ESCAPED]
    return Shown(
        segments=tuple(segments),
        warnings=(*_escape_warnings(escaped, name), *_word_warnings(odd_words, name)),
        length=len(text),
        hidden=len(escaped),
    )


def escape(char: str) -> str:
    """How a character is shown that cannot be seen: `⟦U+202E⟧`, with at least four hex digits."""
    return f"\u27e6U+{ord(char):04X}\u27e7"


def name_of(char: str) -> str:
    """What Unicode calls the character, `RIGHT-TO-LEFT OVERRIDE`; some words for those without a name."""
    named = _CONTROL_NAMES.get(char) or unicodedata.name(char, "")
    if named:
        return named
    match unicodedata.category(char):
        case "Cc":
            return "CONTROL CHARACTER"
        case "Co":
            return "PRIVATE USE CHARACTER"
        case "Cs":
            return "LONE SURROGATE"
        case _:
            return "UNASSIGNED CHARACTER"


def _classify(text: str) -> str:
    """One letter for each character; see `_WORD`."""
    classes: list[str] = []
    marks = _MARKS_IN_A_ROW  # a mark on nothing would stand on our own brackets
    for char in text:
        kind = _class(char)
        if kind == "m":
            marks += 1
            kind = "w" if marks <= _MARKS_IN_A_ROW and char not in _OVERLAYS else "m"
        else:
            marks = _MARKS_IN_A_ROW if kind in _ESCAPED or kind == "n" else 0
        classes.append(kind)
    return "".join(classes)


def _class(char: str) -> str:
    if char == "\n":
        return "n"
    if " " <= char <= "~":
        return _ascii_class(char)
    if char in _BRACKETS:
        return "b"
    category = unicodedata.category(char)
    if char in _BLANK or category in _UNSEEN_CATEGORIES:
        return "s" if category in _SEPARATING else "h"
    if category in {"Mn", "Me"}:
        return "m"
    return "d" if category == "Nd" else "w" if category[0] in "LMN" else "p"


def _ascii_class(char: str) -> str:
    if char.isdigit():
        return "d"
    if char.isalpha() or char == "_":
        return "w"
    return "t" if char in ".," else "p"


def _parts(text: str, classes: str) -> Iterator[tuple[str, str, str]]:
    """The text cut at its odd words: each piece with its classes, and what is odd about it."""
    done = 0
    if not text.isascii():
        words = [(found, _letters(text, found)) for found in _WORD.finditer(classes)]
        disguised = twins.passing_for_latin([letters for _, letters in words])
        for place, (found, letters) in enumerate(words):
            note = twins.disguise(letters) if place in disguised else scripts.oddity(letters)
            if note:
                start, end = found.span()
                yield text[done:start], classes[done:start], ""
                yield text[start:end], found.group(), note
                done = end
    yield text[done:], classes[done:], ""


def _letters(text: str, word: re.Match[str]) -> list[str]:
    piece = text[word.start() : word.end()]
    return [char for char, kind in zip(piece, word.group(), strict=True) if kind in "wd"]


def _segments(text: str, classes: str, note: str) -> Iterator[Segment]:
    for run in _RUN.finditer(classes):
        piece = text[run.start() : run.end()]
        if run.group() == "n":
            yield Segment(piece, "newline")
        elif run.group() in _ESCAPED:
            yield Segment(escape(piece), "escape", name_of(piece))
        elif note:
            yield Segment(piece, "lookalike", note)
        else:
            yield Segment(piece)


def _shown(text: str, classes: str) -> Iterator[str]:
    return (escape(char) if kind in _ESCAPED else char for char, kind in zip(text, classes, strict=True))


def _escape_warnings(escaped: Iterable[tuple[str, str]], name: str) -> Iterator[str]:
    where = _where(name)
    chars: dict[str, list[str]] = {"hidden": [], "m": [], "b": []}
    for char, kind in escaped:
        chars[kind if kind in "mb" else "hidden"].append(char)
    for group, one, many in (
        ("hidden", "hidden character", "hidden characters"),
        ("m", "mark piled on other characters", "marks piled on other characters"),
        ("b", "bracket that could pass for ours", "brackets that could pass for ours"),
    ):
        if chars[group]:
            count = len(chars[group])
            counted = f"1 {one}{where} is" if count == 1 else f"{count:,} {many}{where} are"
            yield f"{counted} shown as {_listed(chars[group], escape)}"


def _word_warnings(words: dict[str, str], name: str) -> Iterator[str]:
    where = _where(name)
    for word, note in list(words.items())[:_NAMED_IN_WARNING]:
        yield f"“{_short(word)}”{where} {note}"
    more = len(words) - _NAMED_IN_WARNING
    if more > 0:
        yield f"{more:,} more {'word' if more == 1 else 'words'}{where} may not be what they look like; each is marked"


def _listed(chars: Iterable[str], write: Callable[[str], str]) -> str:
    different = list(dict.fromkeys(chars))
    listed = ", ".join(map(write, different[:_NAMED_IN_WARNING]))
    more = len(different) - _NAMED_IN_WARNING
    return f"{listed} and {more:,} more" if more > 0 else listed


def _where(name: str) -> str:
    return f" in “{_short(visible(name).text)}”" if name else ""


def _short(word: str) -> str:
    """For a warning only: the text itself is shown whole."""
    return word if len(word) <= _WORD_IN_WARNING else word[: _WORD_IN_WARNING - 1] + "…"
