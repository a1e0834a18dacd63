"""Times as people read them: how long from now, and exactly when in a named zone.

Pure: `now` is always handed in, never asked for. Nothing is decided by what is written here; whether something
has expired is for the database's clock.
"""

from datetime import datetime, timedelta, tzinfo
from typing import Final

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def relative(now: datetime, then: datetime) -> str:
    """`in 42 min`, `10 min ago`, `now` within a second. Cut, not rounded: what is left is never overstated.

    ValueError for a time without a zone.
    """
    seconds = _seconds(now, then)
    if abs(seconds) < 1:
        return "now"
    return f"in {_span(seconds)}" if seconds > 0 else f"{_span(-seconds)} ago"


def remaining(now: datetime, expires: datetime) -> str:
    """`42 min left`, or `expired 3 min ago`; at `expires` itself it has expired. ValueError without a zone."""
    seconds = _seconds(now, expires)
    if seconds > 0:
        return f"{_span(seconds)} left" if seconds >= 1 else "less than 1 s left"
    return f"expired {_span(-seconds)} ago" if seconds <= -1 else "expired just now"


def exact(then: datetime, zone: tzinfo) -> str:
    """`1 Dec 2026, 11:42:07 UTC`; elsewhere `1 Dec 2026, 12:42:07 UTC+01:00 (Europe/Berlin)`.

    The offset stands with the name, since the hour a clock is set back comes twice. ValueError without a zone.
    """
    local = _aware(then).astimezone(zone)
    day = f"{local.day} {_MONTHS[local.month - 1]} {local.year}"
    return f"{day}, {local:%H:%M:%S} {_zone_name(local, zone)}"


def _zone_name(local: datetime, zone: tzinfo) -> str:
    key = str(getattr(zone, "key", "") or "")
    offset = local.utcoffset() or timedelta(0)
    if not offset and key in {"", "UTC", "Etc/UTC"}:
        return "UTC"
    minutes = int(abs(offset).total_seconds()) // 60
    sign = "-" if offset < timedelta(0) else "+"
    written = f"UTC{sign}{minutes // 60:02d}:{minutes % 60:02d}"
    return f"{written} ({key})" if key else written


def _seconds(now: datetime, then: datetime) -> float:
    return (_aware(then) - _aware(now)).total_seconds()


def _aware(moment: datetime) -> datetime:
    if moment.utcoffset() is None:
        raise ValueError("a time without a zone says nothing; use an aware datetime")
    return moment


def _span(seconds: float) -> str:
    whole = int(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min"
    if whole < _DAY:
        return _two(whole // _HOUR, "h", whole % _HOUR // _MINUTE, "min")
    if whole < 2 * _DAY:
        return _two(1, "day", whole % _DAY // _HOUR, "h")
    return f"{whole // _DAY} days"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large} {large_unit} {small} {small_unit}" if small else f"{large} {large_unit}"
