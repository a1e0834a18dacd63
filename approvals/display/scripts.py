"""Which letters could be taken for others: words of mixed scripts, and letters that are drawings of letters.

Pure, from the names and decompositions that Python's own Unicode tables hold. After UTS #39, "highly restrictive":
mixing is odd but for the scripts that Chinese, Japanese and Korean write together. Words wholly in another script
are not looked at, and no table of pairs is kept here: that is `twins`.
"""

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final

# First words of letters' names that name no script.
_SHARED: Final = """
ALEF BET COMBINING DALET DOUBLE FEMININE GIMEL HANGZHOU IDEOGRAPHIC INFORMATION
KATAKANA-HIRAGANA MASCULINE MASU MICRO MODIFIER NUMERIC PLANCK SUBSCRIPT SUPERSCRIPT VERTICAL
"""
_NO_SCRIPT: Final = frozenset(_SHARED.split())
_WRITTEN_TOGETHER: Final = (
    frozenset({"LATIN", "CJK", "HIRAGANA", "KATAKANA"}),
    frozenset({"LATIN", "CJK", "BOPOMOFO"}),
    frozenset({"LATIN", "CJK", "HANGUL"}),
)
_ORDINARY: Final = "ORDINARY"
# Latin letters of their own to Unicode, and in most fonts the same as these.
_IPA: Final = {"\u0251": "a", "\u0261": "g"}
_TITLES: Final = {"CJK": "Chinese", _ORDINARY: "ordinary"}
_NAMED: Final = 4


def oddity(word: Sequence[str]) -> str:
    """What a reader should know about the word, with code points; "" where nothing is odd about it."""
    drawn = [char for char in word if drawn_as(char)]
    if drawn:
        plain = "".join(drawn_as(char) or char for char in dict.fromkeys(drawn))
        return f"has letters that only look like “{short(plain)}”: {named(drawn)}"
    letters = {char: script(char) for char in word}
    found = set(letters.values()) - {""}
    if len(found) > 1 and not any(found <= together for together in _WRITTEN_TOGETHER):
        usual = _usual([letters[char] for char in word if letters[char]])
        others = [char for char in word if letters[char] not in {"", usual}]
        return (
            f"mixes {_listed([usual, *(letters[char] for char in others)], _title)} letters: {named(others)}"
        )
    systems = {char: number_system(char) for char in word}
    if len(set(systems.values()) - {""}) > 1:
        usual = _usual([systems[char] for char in word if systems[char]])
        others = [char for char in word if systems[char] not in {"", usual}]
        return (
            f"mixes {_listed([usual, *(systems[char] for char in others)], _title)} digits: {named(others)}"
        )
    return ""


@lru_cache(maxsize=4096)
def script(char: str) -> str:
    """The script by the character's own name (`CYRILLIC`); "" for ASCII digits, marks and what all scripts share."""
    category = unicodedata.category(char)
    if category[0] != "L" and (category != "Nd" or char.isascii()):
        return ""
    return _first_word(char)


@lru_cache(maxsize=4096)
def number_system(char: str) -> str:
    """Whose decimal digit it is: `ORDINARY` for 0 to 9, `BENGALI`; "" for anything else."""
    if unicodedata.category(char) != "Nd":
        return ""
    return _ORDINARY if char.isascii() else _first_word(char)


@lru_cache(maxsize=4096)
def drawn_as(char: str) -> str:
    """The ASCII letter or digit of which this is only another drawing (ａ, 𝐚, ⅼ, the Kelvin sign); "" if none."""
    if char.isascii():
        return ""
    if char in _IPA:
        return _IPA[char]
    tag, _, rest = unicodedata.decomposition(char).rpartition(" ")
    if tag not in {"", "<wide>", "<font>", "<compat>"} or not rest:
        return ""
    plain = unicodedata.normalize("NFKC", char)
    return plain if len(plain) == 1 and plain.isascii() and plain.isalnum() else ""


def _first_word(char: str) -> str:
    words = unicodedata.name(char, "").split()
    if words and words[0] in {"HALFWIDTH", "FULLWIDTH"}:
        words = words[1:]
    if not words or words[0] in _NO_SCRIPT:
        return ""
    return "ARABIC" if words[0] in {"ARABIC-INDIC", "EXTENDED"} else words[0]


def _usual(scripts: Sequence[str]) -> str:
    """What the others pass for: Latin, or 0 to 9, where there is some; else the one that comes most."""
    expected = [name for name in ("LATIN", _ORDINARY) if name in scripts]
    return expected[0] if expected else max(dict.fromkeys(scripts), key=scripts.count)


def _title(name: str) -> str:
    return _TITLES.get(name, name.title())


def named(chars: Iterable[str]) -> str:
    return _listed(chars, lambda char: f"U+{ord(char):04X} {unicodedata.name(char, '')}".rstrip())


def _listed(items: Iterable[str], write: Callable[[str], str]) -> str:
    different = [write(item) for item in dict.fromkeys(items)]
    if len(different) > _NAMED:
        return f"{', '.join(different[:_NAMED])} and {len(different) - _NAMED:,} more"
    return (
        " and ".join([", ".join(different[:-1]), different[-1]]) if len(different) > 1 else "".join(different)
    )


def short(text: str) -> str:
    return text if len(text) <= 20 else text[:19] + "…"
