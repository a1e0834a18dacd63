"""The tags that turn values into HTML: whole, isolated, and never markup by somebody else (K51, K52, K58)."""

import re
from datetime import UTC, datetime, timedelta
from html import unescape
from zoneinfo import ZoneInfo

import pytest
from django.template import Context, Engine
from django.utils.safestring import SafeString
from hypothesis import given
from hypothesis import strategies as st

from approvals.kinds.base import Value

NOW = datetime(2026, 12, 1, 11, 0, tzinfo=UTC)
ESCAPE = re.compile(r"\u27e6U\+([0-9A-F]{4,6})\u27e7")

engine = Engine(builtins=["approvals.templatetags.second_key"])


def render(source: str, **context: object) -> str:
    return engine.from_string(source).render(Context(context))


def test_hostile_text_is_isolated_and_its_characters_marked() -> None:  # K51
    html = render("{% hostile it %}", it="a\u202eb p\u0430y\n<b>")
    assert html == (
        '<bdi class="hostile">a<span class="escape" title="RIGHT-TO-LEFT OVERRIDE">⟦U+202E⟧</span>b '
        '<mark class="lookalike" title="mixes Latin and Cyrillic letters: U+0430 CYRILLIC SMALL LETTER A">'
        "p\u0430y</mark>"
        "<br>&lt;b&gt;</bdi>"
    )


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        SafeString("<script>alert(1)</script>"),
        '"><img src=x onerror=alert(1)>',
        "' hx-on:click='x' hx-get=/x ",
        "</bdi><form action=//evil>",
        "{{ 7|add:7 }}{% include 'x' %}",
        "&lt;b&gt; &amp;",
        "{0} {} {a.b} %s",
        "<\u0430b>\u202e<c>",
    ],
)
def test_no_text_ever_becomes_markup(text: str) -> None:
    plain = Value(kind="text", text=text)
    for source in (
        "{% hostile it %}",
        "{% value plain %}",
        "{% value hostile_ %}",
        "{% value code %}",
        "{% value words %}",
        "{% money 5 it %}",
        "{{ it|hostile_text }}",
    ):
        html = render(
            source,
            it=text,
            plain=plain,
            hostile_=Value(kind="text", text=text, hostile=True),
            code=Value(kind="code", text=text, hostile=True),
            words=Value(kind="words", text=text),
        )
        bare = re.sub(r'</?(?:bdi|code|span|mark|br)(?: (?:class|title|dir)="[^"<>]*")*>', "", html)
        assert not re.search("[<>\"']", bare), html
        assert not re.search(r"&(?!amp;|lt;|gt;|quot;|#x27;)", bare), html


@given(st.text(st.one_of(st.characters(), st.sampled_from("<>&\"'\u202e\u0430a\n \u27e6")), max_size=60))
def test_the_page_holds_the_whole_text(text: str) -> None:  # K52
    html = render("{% hostile it %}", it=text)
    inner = html.removeprefix('<bdi class="hostile">').removesuffix("</bdi>").replace("<br>", "\n")
    shown = unescape(re.sub(r"<[^<>]*>", "", inner))
    assert ESCAPE.sub(lambda found: chr(int(found.group(1), 16)), shown) == text


def test_a_long_text_is_whole_on_the_page() -> None:  # K52
    text = "word " * 999 + "tail!"
    assert "tail!</bdi>" in render("{% hostile it %}", it=text)
    assert len(render("{{ it|hostile_text }}", it=text)) == 5000


@pytest.mark.parametrize(
    ("it", "inner"), [(None, ""), ("", ""), (0, "0"), (7, "7"), (["<"], "[&#x27;&lt;&#x27;]")]
)
def test_what_is_no_text_is_written_as_python_writes_it(it: object, inner: str) -> None:
    assert render("{% hostile it %}", it=it) == f'<bdi class="hostile">{inner}</bdi>'


def test_warnings_and_plain_text_for_titles() -> None:
    assert render("{% for line in it|hostile_warnings:'note' %}{{ line }}.{% endfor %}", it="a\u202e") == (
        "1 hidden character in “note” is shown as ⟦U+202E⟧."
    )
    assert render("{{ it|hostile_text }}", it="a\u202e\nb<") == "a⟦U+202E⟧⟦U+000A⟧b&lt;"


@pytest.mark.parametrize(
    ("amount", "currency", "html"),
    [
        (4900, "usd", '<span class="money" dir="ltr">49.00 USD</span>'),
        (9899, "jpy", '<span class="money" dir="ltr">9,899 JPY</span>'),  # K58
        (None, "usd", ""),
        (5, "x<y", '<bdi class="hostile">5 x&lt;y (smallest units)</bdi>'),
        (True, "usd", '<bdi class="hostile">True usd (smallest units)</bdi>'),
    ],
)
def test_money(amount: int | None, currency: str, html: str) -> None:
    assert render("{% money amount currency %}", amount=amount, currency=currency) == html


@pytest.mark.parametrize("zone", [None, "", UTC])
def test_a_time_is_relative_with_the_exact_one_as_its_title(zone: object) -> None:
    then = NOW + timedelta(minutes=42, seconds=7)
    assert render("{% when it %}", it=then, now=NOW, zone=zone) == (
        '<time datetime="2026-12-01T11:42:07+00:00" title="1 Dec 2026, 11:42:07 UTC">in 42 min</time>'
    )


@pytest.mark.parametrize("zone", ["Europe/Berlin", ZoneInfo("Europe/Berlin")])
def test_a_time_is_in_the_readers_zone(zone: object) -> None:
    assert 'title="1 Dec 2026, 12:00:00 UTC+01:00 (Europe/Berlin)">now<' in render(
        "{% when it %}", it=NOW, now=NOW, zone=zone
    )


def test_without_a_now_the_clock_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django.utils.timezone.now", lambda: NOW)
    assert ">10 min ago</time>" in render("{% when it %}", it=NOW - timedelta(minutes=10))
    assert render("{% when it %}", it=None) == ""


@pytest.mark.parametrize(
    ("shown", "html"),
    [
        (Value(kind="money", amount=4900, currency="usd"), '<span class="money" dir="ltr">49.00 USD</span>'),
        (Value(kind="code", text="pi_3Q"), '<code class="ltr"><bdi>pi_3Q</bdi></code>'),
        (
            Value(kind="code", text="pi_\u200b3Q", hostile=True),
            '<code class="ltr"><bdi>pi_<span class="escape" title="ZERO WIDTH SPACE">⟦U+200B⟧</span>3Q</bdi></code>',
        ),
        (Value(kind="text", text="Dana <Fox>", hostile=True), '<bdi class="hostile">Dana &lt;Fox&gt;</bdi>'),
        (Value(kind="text", text="Visa <4242>"), "<bdi>Visa &lt;4242&gt;</bdi>"),
        (Value(kind="words", text="cannot be undone"), "cannot be undone"),
        (Value(kind="words", text="\u202e", hostile=True),
         '<bdi class="hostile"><span class="escape" title="RIGHT-TO-LEFT OVERRIDE">⟦U+202E⟧</span></bdi>'),
        (Value(kind="time", at=NOW),
         '<time datetime="2026-12-01T11:00:00+00:00" title="1 Dec 2026, 11:00:00 UTC">now</time>'),
        (Value(kind="time"), ""),
        (None, ""),
    ],
)  # fmt: skip
def test_a_value_of_a_diff_by_its_kind(shown: Value | None, html: str) -> None:
    assert render("{% value it %}", it=shown, now=NOW) == html
