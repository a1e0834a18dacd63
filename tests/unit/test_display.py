"""Text that somebody else wrote, made visible and kept whole (K51, K52)."""

import re
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.display import scripts
from approvals.display.hostile import Shown, escape, name_of, visible

ESCAPE = re.compile(r"\u27e6U\+([0-9A-F]{4,6})\u27e7")

# Everything that trojan-source, invisible-text and blank-letter attacks are made of.
TROUBLE = (
    "\u202e\u2066\u200b\u2060\ufeff\u00ad\u2028\U000e0041\u3164\u2800\u034f\ufe0f\t\r\x1b\x00\ud800\u00a0\u3000"
    "\u27e6\u27e7"
)
LIKELY = TROUBLE + "\n\u0301\u0430a1\u09ea. "
texts = st.text(st.one_of(st.characters(), st.sampled_from(LIKELY)), max_size=60)


def read_back(shown: Shown) -> str:
    """The raw text, from nothing but what is shown."""
    pieces = []
    for segment in shown.segments:
        if segment.kind == "escape":
            found = ESCAPE.fullmatch(segment.text)
            assert found, segment
            pieces.append(chr(int(found.group(1), 16)))
        else:
            pieces.append(segment.text)
    return "".join(pieces)


def kinds(text: str) -> list[tuple[str, str]]:
    return [(segment.kind, segment.text) for segment in visible(text).segments]


# --- what cannot be seen -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("char", "shown", "name"),
    [
        ("\u202e", "⟦U+202E⟧", "RIGHT-TO-LEFT OVERRIDE"),
        ("\u202a", "⟦U+202A⟧", "LEFT-TO-RIGHT EMBEDDING"),
        ("\u2066", "⟦U+2066⟧", "LEFT-TO-RIGHT ISOLATE"),
        ("\u2069", "⟦U+2069⟧", "POP DIRECTIONAL ISOLATE"),
        ("\u200b", "⟦U+200B⟧", "ZERO WIDTH SPACE"),
        ("\u200d", "⟦U+200D⟧", "ZERO WIDTH JOINER"),
        ("\u200f", "⟦U+200F⟧", "RIGHT-TO-LEFT MARK"),
        ("\u2060", "⟦U+2060⟧", "WORD JOINER"),
        ("\ufeff", "⟦U+FEFF⟧", "ZERO WIDTH NO-BREAK SPACE"),
        ("\u00ad", "⟦U+00AD⟧", "SOFT HYPHEN"),
        ("\U000e0041", "⟦U+E0041⟧", "TAG LATIN CAPITAL LETTER A"),
        ("\u2028", "⟦U+2028⟧", "LINE SEPARATOR"),
        ("\u2029", "⟦U+2029⟧", "PARAGRAPH SEPARATOR"),
        ("\u00a0", "⟦U+00A0⟧", "NO-BREAK SPACE"),
        ("\u2003", "⟦U+2003⟧", "EM SPACE"),
        ("\u3000", "⟦U+3000⟧", "IDEOGRAPHIC SPACE"),
        ("\u1680", "⟦U+1680⟧", "OGHAM SPACE MARK"),
        ("\t", "⟦U+0009⟧", "CHARACTER TABULATION"),
        ("\r", "⟦U+000D⟧", "CARRIAGE RETURN"),
        ("\x00", "⟦U+0000⟧", "NULL"),
        ("\x1b", "⟦U+001B⟧", "ESCAPE"),
        ("\x7f", "⟦U+007F⟧", "DELETE"),
        ("\x01", "⟦U+0001⟧", "CONTROL CHARACTER"),
        ("\ue000", "⟦U+E000⟧", "PRIVATE USE CHARACTER"),
        ("\U0010fffd", "⟦U+10FFFD⟧", "PRIVATE USE CHARACTER"),
        ("\ud800", "⟦U+D800⟧", "LONE SURROGATE"),
        ("\uffff", "⟦U+FFFF⟧", "UNASSIGNED CHARACTER"),
        ("\u0378", "⟦U+0378⟧", "UNASSIGNED CHARACTER"),
        # blank, and no category says so
        ("\u3164", "⟦U+3164⟧", "HANGUL FILLER"),
        ("\u115f", "⟦U+115F⟧", "HANGUL CHOSEONG FILLER"),
        ("\u1160", "⟦U+1160⟧", "HANGUL JUNGSEONG FILLER"),
        ("\uffa0", "⟦U+FFA0⟧", "HALFWIDTH HANGUL FILLER"),
        ("\u2800", "⟦U+2800⟧", "BRAILLE PATTERN BLANK"),
        ("\u034f", "⟦U+034F⟧", "COMBINING GRAPHEME JOINER"),
        ("\u180e", "⟦U+180E⟧", "MONGOLIAN VOWEL SEPARATOR"),
        ("\u180b", "⟦U+180B⟧", "MONGOLIAN FREE VARIATION SELECTOR ONE"),
        ("\ufe0f", "⟦U+FE0F⟧", "VARIATION SELECTOR-16"),
        ("\ufe00", "⟦U+FE00⟧", "VARIATION SELECTOR-1"),
        ("\U000e0100", "⟦U+E0100⟧", "VARIATION SELECTOR-17"),
        ("\U000e01ef", "⟦U+E01EF⟧", "VARIATION SELECTOR-256"),
        ("\u17b4", "⟦U+17B4⟧", "KHMER VOWEL INHERENT AQ"),
        ("\u17b5", "⟦U+17B5⟧", "KHMER VOWEL INHERENT AA"),
        # an escape cannot be forged
        ("\u27e6", "⟦U+27E6⟧", "MATHEMATICAL LEFT WHITE SQUARE BRACKET"),
        ("\u27e7", "⟦U+27E7⟧", "MATHEMATICAL RIGHT WHITE SQUARE BRACKET"),
        ("\u301a", "⟦U+301A⟧", "LEFT WHITE SQUARE BRACKET"),
    ],
)
def test_what_cannot_be_seen_is_shown_by_its_number(char: str, shown: str, name: str) -> None:  # K51
    seen = visible(f"a{char}b")
    assert [(one.kind, one.text, one.note) for one in seen.segments] == [
        ("plain", "a", ""),
        ("escape", shown, name),
        ("plain", "b", ""),
    ]
    assert (seen.hidden, seen.length) == (1, 3)
    assert len(seen.warnings) == 1
    assert shown in seen.warnings[0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "charged twice for order 77",
        "Dana Fox <dana@example.com>, 49.00 USD (pi_3Q…) {a} [b] \\ | ~ # $ % & ' \" `",
        "Señor Núñez, Łódź, Zürich, naïve café",
        "cafe\u0301",
        "Việt Nam, Tiếng Việt",
        "الحساب رقم ٧٧ ورقم 77",
        "Привет, Δελφοί, Երևան, שלום",
        "東京のTシャツ 한국어 ABC株式会社 A股",
        "अनुच्छेद ১২৩ สวัสดี",
        "m² ½ ₂ ª 5 µm, 20 € – “quoted” … 🙂",
        "IT-компания",
        "α is a letter",
    ],
)
def test_honest_text_is_left_alone(text: str) -> None:
    shown = visible(text)
    assert "".join(one.text for one in shown.segments) == text
    assert {one.kind for one in shown.segments} <= {"plain"}
    assert (shown.warnings, shown.hidden, shown.length) == ((), 0, len(text))


def test_a_newline_is_a_segment_and_no_warning() -> None:
    assert kinds("a\n\nb") == [("plain", "a"), ("newline", "\n"), ("newline", "\n"), ("plain", "b")]
    assert visible("a\nb").warnings == ()
    assert visible("a\nb").hidden == 0
    assert kinds("a\r\nb")[1:3] == [("escape", "⟦U+000D⟧"), ("newline", "\n")]


def test_a_written_escape_is_told_from_a_real_one() -> None:  # K51
    written, real = visible("⟦U+202E⟧"), visible("\u202e")
    assert written.text == "⟦U+27E6⟧U+202E⟦U+27E7⟧"
    assert real.text == "⟦U+202E⟧"
    assert written.warnings == ("2 brackets that could pass for ours are shown as ⟦U+27E6⟧, ⟦U+27E7⟧",)


def test_no_format_character_control_or_space_is_let_through() -> None:  # K51
    for char in map(chr, range(0x110000)):
        if unicodedata.category(char) in {"Cf", "Zs", "Zl", "Zp", "Cc"} and char not in {" ", "\n"}:
            assert visible(char).text == escape(char), ascii(char)


# --- piled marks ---------------------------------------------------------------------------------------------


def test_three_marks_in_a_row_stand_and_the_fourth_is_escaped() -> None:
    assert kinds("a\u0301\u0302\u0303b") == [("plain", "a\u0301\u0302\u0303b")]
    assert kinds("a\u0301\u0302\u0303\u0304b") == [
        ("plain", "a\u0301\u0302\u0303"),
        ("escape", "⟦U+0304⟧"),
        ("plain", "b"),
    ]
    assert visible("a" + "\u0301" * 9).warnings == (
        "6 marks piled on other characters are shown as ⟦U+0301⟧",
    )
    assert visible("a" + "\u0301" * 4).warnings == ("1 mark piled on other characters is shown as ⟦U+0301⟧",)


@pytest.mark.parametrize("before", ["", "\n", "\u202e", "⟧"])
def test_a_mark_on_nothing_does_not_stand_on_our_brackets(before: str) -> None:
    assert visible(f"{before}\u0338").segments[-1].text == "⟦U+0338⟧"


# --- look-alikes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "note"),
    [
        ("p\u0430ypal", "mixes Latin and Cyrillic letters: U+0430 CYRILLIC SMALL LETTER A"),
        ("\u0420\u0430ypal", ("mixes Latin and Cyrillic letters: "
         "U+0420 CYRILLIC CAPITAL LETTER ER and U+0430 CYRILLIC SMALL LETTER A")),
        ("g\u03bfogle", "mixes Latin and Greek letters: U+03BF GREEK SMALL LETTER OMICRON"),
        ("\u0570ello", "mixes Latin and Armenian letters: U+0570 ARMENIAN SMALL LETTER HO"),
        ("\u13aapple", "mixes Latin and Cherokee letters: U+13AA CHEROKEE LETTER GO"),
        ("\u2c9fk", "mixes Latin and Coptic letters: U+2C9F COPTIC SMALL LETTER O"),
        ("\u0430\u03b1", "mixes Cyrillic and Greek letters: U+03B1 GREEK SMALL LETTER ALPHA"),
        ("4\u09ea", "mixes ordinary and Bengali digits: U+09EA BENGALI DIGIT FOUR"),
        ("10.\u09ea0", "mixes ordinary and Bengali digits: U+09EA BENGALI DIGIT FOUR"),
        ("1,\u0660\u0660\u0660", "mixes ordinary and Arabic digits: U+0660 ARABIC-INDIC DIGIT ZERO"),
        ("x\u09ea", "mixes Latin and Bengali letters: U+09EA BENGALI DIGIT FOUR"),
        ("\uff41\uff42", ("has letters that only look like “ab”: "
         "U+FF41 FULLWIDTH LATIN SMALL LETTER A and U+FF42 FULLWIDTH LATIN SMALL LETTER B")),
        ("\U0001d41adm", "has letters that only look like “a”: U+1D41A MATHEMATICAL BOLD SMALL A"),
        ("\u217cong", "has letters that only look like “l”: U+217C SMALL ROMAN NUMERAL FIFTY"),
        ("\u212aelvin", "has letters that only look like “K”: U+212A KELVIN SIGN"),
        ("\uff11\uff12", ("has letters that only look like “12”: "
         "U+FF11 FULLWIDTH DIGIT ONE and U+FF12 FULLWIDTH DIGIT TWO")),
    ],
)  # fmt: skip
def test_a_word_that_is_not_what_it_looks_like_is_marked(word: str, note: str) -> None:  # K51
    shown = visible(f"to {word} now")
    assert [(one.kind, one.text, one.note) for one in shown.segments] == [
        ("plain", "to ", ""),
        ("lookalike", word, note),
        ("plain", " now", ""),
    ]
    assert shown.warnings == (f"“{word}” {note}",)
    assert shown.hidden == 0


def test_a_hidden_character_does_not_split_a_mixed_word() -> None:
    shown = visible("p\u200b\u0430y")
    assert [(one.kind, one.text) for one in shown.segments] == [
        ("lookalike", "p"),
        ("escape", "⟦U+200B⟧"),
        ("lookalike", "\u0430y"),
    ]
    assert shown.warnings[1].startswith("“p⟦U+200B⟧\u0430y” mixes Latin and Cyrillic letters")


def test_an_underscore_does_not_split_a_mixed_word() -> None:
    assert [kind for kind, _ in kinds("refund_\u0430ll")] == ["lookalike"]


# --- warnings ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "warning"),
    [
        ("\u202ea\u202e", "note", "2 hidden characters in “note” are shown as ⟦U+202E⟧"),
        ("\u202ea\u202e", "", "2 hidden characters are shown as ⟦U+202E⟧"),
        ("\u202e", "", "1 hidden character is shown as ⟦U+202E⟧"),
        ("\u202e\u200b", "", "2 hidden characters are shown as ⟦U+202E⟧, ⟦U+200B⟧"),
        ("\u200b" * 1200, "", "1,200 hidden characters are shown as ⟦U+200B⟧"),
        ("\u202a\u202b\u202c\u202d\u202e\u200b", "",
         "6 hidden characters are shown as ⟦U+202A⟧, ⟦U+202B⟧, ⟦U+202C⟧, ⟦U+202D⟧ and 2 more"),
        ("\u202e", "no\u202ete", "1 hidden character in “no⟦U+202E⟧te” is shown as ⟦U+202E⟧"),
    ],
)  # fmt: skip
def test_a_warning_counts_and_names(text: str, name: str, warning: str) -> None:
    assert visible(text, name=name).warnings == (warning,)


def test_warnings_stay_few_and_short_however_many_words_are_odd() -> None:
    shown = visible(" ".join(f"p{'b' * n}\u0430" for n in range(60)))
    assert len(shown.warnings) == 5
    assert shown.warnings[-1] == "56 more words may not be what they look like; each is marked"
    assert sum(one.kind == "lookalike" for one in shown.segments) == 60
    assert max(map(len, visible("a" * 3000 + "\u0430").warnings)) < 200


# --- nothing is lost -----------------------------------------------------------------------------------------


@given(texts)
def test_the_whole_text_can_be_read_back(text: str) -> None:  # K52
    shown = visible(text)
    assert read_back(shown) == text
    assert shown.length == len(text)
    assert shown.hidden == sum(one.kind == "escape" for one in shown.segments)


@given(texts)
def test_nothing_unseen_is_left_in_what_is_shown(text: str) -> None:  # K51
    shown = visible(text, name=text)
    for piece in (shown.text, *shown.warnings, *(one.note for one in shown.segments)):
        assert not {unicodedata.category(char) for char in piece} & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
        assert not set(piece) & set("\u3164\u2800\u034f\ufe0f\u00a0\u3000")
    assert "".join(ESCAPE.split(shown.text)[::2]).count("\u27e6") == 0


@given(texts, texts)
def test_different_texts_are_never_shown_alike(one: str, other: str) -> None:
    shown_alike = visible(one).segments == visible(other).segments
    assert shown_alike == (one == other)


@given(texts)
def test_an_escape_a_mark_and_a_newline_never_say_nothing(text: str) -> None:
    for segment in visible(text).segments:
        assert segment.text
        assert bool(segment.note) == (segment.kind in {"escape", "lookalike"})


@pytest.mark.parametrize(
    "text",
    [
        "\u200b" * 65_536,
        "a\u0430" * 32_768,
        "\u0301" * 65_536,
        "1.\u09ea," * 16_384,
        "1." * 32_768,
        "\u09ea\u200b " * 20_000,
    ],
)
def test_the_longest_text_costs_no_more_than_its_length(text: str) -> None:
    began = time.process_time()
    assert read_back(visible(text)) == text
    assert time.process_time() - began < 5


def test_a_character_has_a_name_whatever_it_is() -> None:
    assert all(name_of(chr(code)) for code in range(0x0, 0x110000, 7))


@given(st.characters())
def test_a_drawing_is_of_one_ascii_letter_or_digit(char: str) -> None:
    plain = scripts.drawn_as(char)
    assert plain == "" or (plain.isascii() and plain.isalnum() and len(plain) == 1 and plain != char)
