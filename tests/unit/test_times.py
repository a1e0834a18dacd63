"""Times for people: never overstated, never without a zone."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.display import times

NOW = datetime(2026, 12, 1, 11, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "written", "left"),
    [
        (42 * 60, "in 42 min", "42 min left"),
        (42 * 60 + 59, "in 42 min", "42 min left"),
        (59, "in 59 s", "59 s left"),
        (60, "in 1 min", "1 min left"),
        (1, "in 1 s", "1 s left"),
        (0.5, "now", "less than 1 s left"),
        (0, "now", "expired just now"),
        (-0.5, "now", "expired just now"),
        (-1, "1 s ago", "expired 1 s ago"),
        (-600, "10 min ago", "expired 10 min ago"),
        (3600, "in 1 h", "1 h left"),
        (3 * 3600 + 59 * 60 + 59, "in 3 h 59 min", "3 h 59 min left"),
        (24 * 3600 - 1, "in 23 h 59 min", "23 h 59 min left"),
        (24 * 3600, "in 1 day", "1 day left"),
        (-27 * 3600, "1 day 3 h ago", "expired 1 day 3 h ago"),
        (48 * 3600, "in 2 days", "2 days left"),
        (-90 * 86400, "90 days ago", "expired 90 days ago"),
    ],
)
def test_how_long_from_now(seconds: float, written: str, left: str) -> None:
    then = NOW + timedelta(seconds=seconds)
    assert times.relative(NOW, then) == written
    assert times.remaining(NOW, then) == left
    assert times.relative(NOW.astimezone(ZoneInfo("Asia/Tokyo")), then) == written


@pytest.mark.parametrize(
    ("zone", "written"),
    [
        (UTC, "1 Dec 2026, 11:42:07 UTC"),
        (ZoneInfo("UTC"), "1 Dec 2026, 11:42:07 UTC"),
        (ZoneInfo("Europe/Berlin"), "1 Dec 2026, 12:42:07 UTC+01:00 (Europe/Berlin)"),
        (ZoneInfo("Europe/London"), "1 Dec 2026, 11:42:07 UTC+00:00 (Europe/London)"),
        (ZoneInfo("Asia/Kolkata"), "1 Dec 2026, 17:12:07 UTC+05:30 (Asia/Kolkata)"),
        (ZoneInfo("Pacific/Auckland"), "2 Dec 2026, 00:42:07 UTC+13:00 (Pacific/Auckland)"),
        (timezone(-timedelta(hours=3, minutes=30)), "1 Dec 2026, 08:12:07 UTC-03:30"),
    ],
)
def test_exactly_when_in_a_named_zone(zone: tzinfo, written: str) -> None:
    assert times.exact(datetime(2026, 12, 1, 11, 42, 7, 999_999, tzinfo=UTC), zone) == written


def test_the_hour_that_comes_twice_is_told_apart() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    first = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert times.exact(first, berlin) == "25 Oct 2026, 02:30:00 UTC+02:00 (Europe/Berlin)"
    assert (
        times.exact(first + timedelta(hours=1), berlin) == "25 Oct 2026, 02:30:00 UTC+01:00 (Europe/Berlin)"
    )


@pytest.mark.parametrize("call", [times.relative, times.remaining])
def test_a_time_without_a_zone_is_refused(call: Callable[[datetime, datetime], str]) -> None:
    naive = datetime(2026, 12, 1)  # noqa: DTZ001 - what must not pass
    for pair in ((NOW, naive), (naive, NOW)):
        with pytest.raises(ValueError, match="without a zone"):
            call(*pair)
    with pytest.raises(ValueError, match="without a zone"):
        times.exact(naive, UTC)


@given(st.datetimes(timezones=st.just(UTC)), st.integers(0, 10**9))
def test_what_is_left_is_never_overstated(now: datetime, micros: int) -> None:
    try:
        then = now + timedelta(microseconds=micros)
    except OverflowError:
        return
    units = {"s": 1, "min": 60, "h": 3600, "day": 86400, "days": 86400}
    words = times.relative(now, then).removeprefix("in ").split()
    stated = sum(int(number) * units[unit] for number, unit in zip(words[::2], words[1::2], strict=False))
    assert stated <= micros / 1_000_000 < stated + max(60, stated)
