"""Whole words in letters that pass for Latin ones (K51), and marks that strike out what was written."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.display.hostile import visible
from approvals.display.twins import TWINS


def marked(text: str) -> list[str]:
    return [one.text for one in visible(text).segments if one.kind == "lookalike"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("\u0430", ["\u0430"]),  # K51: a Cyrillic a, alone
        ("to \u0410\u0441\u0435 Fox", ["\u0410\u0441\u0435"]),
        ("\u0441\u043e\u0441\u043e", ["\u0441\u043e\u0441\u043e"]),
        ("\u039f'Neil", ["\u039f"]),  # a Greek capital omicron
        ("pay \u0585\u0585 now", ["\u0585\u0585"]),
        ("\u13aa\u13e2\u13b7", ["\u13aa\u13e2\u13b7"]),
        ("\u0441\u043e\u0441\u043e 5 \u0441\u043e\u0441\u043e", ["\u0441\u043e\u0441\u043e"] * 2),
        ("привет Dana, это \u0430", []),  # its neighbour is Russian
        ("привет 5 \u0430", []),
        ("привет to \u0410\u0441\u0435 Fox", ["\u0410\u0441\u0435"]),  # Russian elsewhere excuses nothing
        ("Рост \u0430 потом", []),
        ("Ελλάδα \u03bf", []),
        ("Привет, Δελφοί, Երևան, שלום", []),
    ],
)
def test_a_word_of_twins_is_marked_unless_its_neighbours_are_of_its_script(
    text: str, words: list[str]
) -> None:
    assert marked(text) == words


def test_the_warning_says_what_the_word_passes_for() -> None:
    (warning,) = visible("\u0410\u0441\u0435", name="customer").warnings
    assert warning == (
        "“\u0410\u0441\u0435” in “customer” has only Cyrillic letters that look like “Ace”: "
        "U+0410 CYRILLIC CAPITAL LETTER A, U+0441 CYRILLIC SMALL LETTER ES and U+0435 CYRILLIC SMALL LETTER IE"
    )


@pytest.mark.parametrize("char", sorted(TWINS))
def test_a_twin_is_a_letter_of_another_script_and_passes_for_one_latin_letter(char: str) -> None:
    assert unicodedata.category(char) in {"Ll", "Lu", "Lo"}
    assert not unicodedata.name(char).startswith("LATIN")
    assert TWINS[char].isascii()
    assert len(TWINS[char]) == 1
    assert TWINS[char].isalpha()
    assert marked(char) == [char]


@pytest.mark.parametrize("word", ["\u0251dmin", "\u0261oogle"])
def test_a_latin_letter_of_its_own_that_is_drawn_like_another_is_marked(word: str) -> None:
    assert marked(word) == [word]


@pytest.mark.parametrize("mark", ["\u0335", "\u0336", "\u0338", "\u20d2", "\u20dd", "\u20e0", "\u20e5"])
def test_a_mark_that_strikes_out_is_escaped_even_alone(mark: str) -> None:
    shown = visible(f"pay{mark}")
    assert shown.text == f"pay⟦U+{ord(mark):04X}⟧"
    assert shown.warnings


letters = st.text(alphabet="\u0430\u0441\u0435\u0420\u03bf\u0585 ab5.\n\u200b\u0301\u0436\u0336", max_size=60)


@given(letters)
def test_however_words_are_marked_the_text_is_shown_whole(text: str) -> None:  # K52
    shown = visible(text)
    kept = "".join("" if one.kind == "escape" else one.text for one in shown.segments)
    left = iter(text)
    assert all(char in left for char in kept)
    assert len(kept) + shown.hidden == len(text) == shown.length
