"""Letters of other scripts that are drawn like Latin ones, for words that are written in nothing else.

A small table from UTS #39 (confusables.txt), of letters that most fonts draw alike; the reader decides, so what is
missing here is only not pointed out. Pure data and one question; words of mixed scripts are `scripts`' business.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final

from approvals.display import scripts

_CYRILLIC: Final = dict(
    zip("аеорсухѕіјһԁԛԝӏАВЕЅІЈКМНОРСТУХԌԚԜҮ", "aeopcyxsijhdqwlABESIJKMHOPCTYXGQWY", strict=True)
)
_GREEK: Final = dict(zip("ονρΑΒΕΖΗΙΚΜΝΟΡΤΥΧϳϹϲ", "ovpABEZHIKMNOPTYXjCc", strict=True))
_ARMENIAN: Final = dict(zip("օսոհցՕՍՏԼ", "ounhgOUSL", strict=True))
_CHEROKEE: Final = dict(zip("ᎪᎬᎻᎫᎷᏢᏟᎢᏙᎳᏃᏴ", "AEHJMPCTVWZB", strict=True))

TWINS: Final[Mapping[str, str]] = _CYRILLIC | _GREEK | _ARMENIAN | _CHEROKEE
"""The other letter → the Latin one."""


def passing_for_latin(words: Sequence[Sequence[str]]) -> frozenset[int]:
    """Which of a text's words, by their place, consist of twins only, with no neighbour that gives them away.

    `сосо` between Latin words or alone is read as Latin; next to other Russian words it is Russian.
    """
    found: set[int] = set()
    lettered = [(place, word) for place, word in enumerate(words) if any(map(scripts.script, word))]
    for script, run in groupby(lettered, key=lambda one: _script(one[1])):
        places = list(run)
        letters = {char for _, word in places for char in word if scripts.script(char)}
        if script not in {"", "LATIN"} and letters <= TWINS.keys():
            found.update(place for place, _ in places)
    return frozenset(found)


def disguise(word: Sequence[str]) -> str:
    """What a reader should know about such a word, with code points."""
    passes_for = "".join(TWINS.get(char, char) for char in word)
    script = _script(word).title()
    return f"has only {script} letters that look like “{scripts.short(passes_for)}”: {scripts.named(word)}"


def _script(word: Sequence[str]) -> str:
    """The word's one script; "" where it has none or several."""
    several = {script for char in word if (script := scripts.script(char))}
    return several.pop() if len(several) == 1 else ""
