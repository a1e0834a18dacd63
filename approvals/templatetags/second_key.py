"""What every page writes values with: hostile text, money, times, and the values of a diff.

The one place where such values become HTML, always by `format_html`: no text is ever marked as safe here, and
nothing is looked up or decided.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from django import template
from django.template import Context
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from approvals.display import times
from approvals.display.hostile import Segment, Shown, visible
from approvals.kinds.base import Value
from ledger.money import UnknownCurrencyError, format_amount

register = template.Library()

_BREAK = SafeString("<br>")


@register.simple_tag
def hostile(value: object) -> SafeString:
    """`{% hostile text %}`: text by an agent, a payer or a provider, whole, isolated and made visible."""
    return format_html('<bdi class="hostile">{}</bdi>', _segments(_shown(value)))


@register.filter
def hostile_warnings(value: object, name: str = "") -> tuple[str, ...]:
    """`{{ text|hostile_warnings:"note" }}`: plain sentences about what was made visible; written by us."""
    return visible(_text(value), name=name).warnings


@register.filter
def hostile_text(value: object) -> str:
    """`{{ text|hostile_text }}`: the same without markup, on one line, for `<title>` and attributes."""
    return _shown(value).text


@register.simple_tag
def money(amount: int | None, currency: str) -> SafeString:
    """`{% money amount currency %}`, in minor units: `49.00 USD`. What is no amount of money is shown as it is."""
    if amount is None:
        return SafeString("")
    try:
        written = format_amount(amount, currency)
    except (TypeError, UnknownCurrencyError):
        return hostile(f"{amount} {currency} (smallest units)")
    return format_html('<span class="money" dir="ltr">{}</span>', written)


@register.simple_tag(takes_context=True)
def when(context: Context, moment: datetime | None) -> SafeString:
    """`{% when moment %}`: how long from `now`, with the exact time in the reader's `zone` as its title."""
    if moment is None:
        return SafeString("")
    now = context.get("now")
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        moment.isoformat(),
        times.exact(moment, _zone(context)),
        times.relative(now if isinstance(now, datetime) else timezone.now(), moment),
    )


@register.simple_tag(takes_context=True)
def value(context: Context, shown: Value | None) -> SafeString:
    """`{% value row.after %}`: one value of a normalized diff (`approvals.kinds.base.Value`), by its kind."""
    if shown is None:
        return SafeString("")
    match shown.kind:
        case "money":
            return money(shown.amount, shown.currency)
        case "time":
            return when(context, shown.at)
        case "code":
            return format_html('<code class="ltr"><bdi>{}</bdi></code>', _segments(_shown(shown.text)))
        case _ if shown.hostile:
            return hostile(shown.text)
        case "words":
            return format_html("{}", _text(shown.text))
        case _:
            return format_html("<bdi>{}</bdi>", _text(shown.text))


def _zone(context: Context) -> tzinfo:
    match context.get("zone"):
        case tzinfo() as zone:
            return zone
        case str() as key if key:
            return ZoneInfo(key)
        case _:
            return UTC


def _text(value: object) -> str:
    # A SafeString would pass `format_html` unescaped: whoever marked it, here it is text.
    return "" if value is None else str.__str__(str(value))


def _shown(value: object) -> Shown:
    return visible(_text(value))


def _segments(shown: Shown) -> SafeString:
    return format_html_join("", "{}", _rendered(shown.segments))


def _rendered(segments: tuple[Segment, ...]) -> Iterator[tuple[str]]:
    for segment in segments:
        match segment.kind:
            case "newline":
                yield (_BREAK,)
            case "escape":
                yield (format_html('<span class="escape" title="{}">{}</span>', segment.note, segment.text),)
            case "lookalike":
                yield (
                    format_html('<mark class="lookalike" title="{}">{}</mark>', segment.note, segment.text),
                )
            case "plain":
                yield (segment.text,)
