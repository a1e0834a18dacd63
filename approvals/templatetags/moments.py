"""Moments that are facts and not distances: when something was decided, received or written down.

Only writing; `{% when %}` says how far away a moment is, these say which one it was, in the reader's zone.
"""

from datetime import UTC, datetime, tzinfo

from django import template
from django.template import Context
from django.utils.html import format_html
from django.utils.safestring import SafeString

from approvals.display import times

register = template.Library()


def zone_of(context: Context) -> tzinfo:
    """The reader's zone, as `people.page` put it into the context; UTC elsewhere."""
    zone = context.get("zone")
    return zone if isinstance(zone, tzinfo) else UTC


@register.simple_tag(takes_context=True)
def at(context: Context, moment: datetime | None) -> SafeString:
    """`{% at moment %}`: `at 11:43 UTC`, on another day than today's `on 30 Nov 2026 at 11:43 UTC`."""
    if moment is None:
        return SafeString("")
    zone, now = zone_of(context), context.get("now")
    local = moment.astimezone(zone)
    today = isinstance(now, datetime) and now.astimezone(zone).date() == local.date()
    day = "" if today else f"on {local.day} {local:%b %Y} "
    return format_html(
        '{}at <time datetime="{}" title="{}">{}</time>',
        day,
        moment.isoformat(),
        times.exact(moment, zone),
        f"{local:%H:%M %Z}",
    )


@register.simple_tag(takes_context=True)
def exact(context: Context, moment: datetime | None) -> SafeString:
    """`{% exact moment %}`: day, second and zone, for documents."""
    if moment is None:
        return SafeString("")
    return format_html(
        '<time datetime="{}">{}</time>', moment.isoformat(), times.exact(moment, zone_of(context))
    )
