"""Read and write times, durations and rates in the notation of people."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime, time, timedelta, timezone, tzinfo

#: A hundred years in seconds; every clock and database can add this to the current time.
LONGEST_S = 36_500 * 86_400.0

#: The most letters per hour that a rate may say.
MOST_HOURLY = 1_000_000_000

_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])", re.IGNORECASE)
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:/\s*([smh]))?", re.IGNORECASE)
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}

#: The days by the number of :meth:`datetime.weekday`.
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


class ScreenClock:
    """The clock of the screens: this machine's clock, corrected by the store's clock once that is known.
    Reading it never waits for a database, so Flower's event loop may do it."""

    def __init__(
        self, machine_now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)
    ) -> None:
        self._machine_now, self._ahead = machine_now, timedelta()

    def now(self) -> datetime:
        """The current time."""
        return self._machine_now() + self._ahead

    def set_ahead(self, ahead: timedelta) -> None:
        """Set how far the store's clock is ahead of this machine's."""
        self._ahead = ahead


#: One per process, because a screen shows one store.
CLOCK = ScreenClock()


def utc_now() -> datetime:
    """The current time; screens use no other clock."""
    return CLOCK.now()


def is_span(text: str) -> bool:
    """Whether ``text`` is a duration with a unit, such as ``2h``."""
    return _SPAN.fullmatch(text.strip()) is not None


def parse_moment(text: str, now: datetime) -> datetime:
    """The moment that ``text`` stands for, in UTC: ``2h`` (before ``now``), or an ISO 8601 date or time,
    local unless it has an offset.

    :raises ValueError: the text is neither, or is out of range.
    """
    ago = _SPAN.fullmatch(text.strip())
    try:
        if ago:
            return now - timedelta(seconds=float(ago[1]) * _SECONDS[ago[2].lower()])
        return _iso(text)
    except (ValueError, OverflowError, OSError) as error:
        raise ValueError(
            f"{text!r} is not a time; write 90m, 2h, 3d or 1w for a time ago, "
            "or ISO 8601 such as 2026-05-31 or 2026-05-31T08:00:00Z."
        ) from error


def parse_ahead(text: str, now: datetime, zone: tzinfo | None = None) -> datetime:
    """The moment that ``text`` stands for, in UTC: ``2h`` (after ``now``), ``tomorrow`` or ``monday`` (the
    beginning of that day), or an ISO 8601 date or time without an offset or with one.

    :param zone: the time zone of days, and of times without an offset; None for that of this machine.
    :raises ValueError: the text is none of these, is in the past, or is too far ahead.
    """
    ahead = _SPAN.fullmatch(text.strip())
    try:
        moment = now + timedelta(seconds=parse_span(text)) if ahead else _on_a_day(text, now, zone)
    except (OverflowError, OSError, ValueError) as error:
        if ahead:
            raise
        raise ValueError(
            f"{text!r} is not a time; write 2h, 3d or 1w for a time ahead, tomorrow, monday, "
            "or ISO 8601 such as 2026-05-31 or 2026-05-31T08:00:00Z."
        ) from error
    if moment <= now:
        raise ValueError(f"{text!r} is in the past; write 2h, 3d or 1w, or a later time.")
    return moment


def _on_a_day(text: str, now: datetime, zone: tzinfo | None) -> datetime:
    word, today = text.strip().lower(), now.astimezone(zone)
    if word in _DAYS:
        # On a Monday, "monday" is the next one.
        days = (_DAYS.index(word) - today.weekday() - 1) % 7 + 1
    elif word == "tomorrow":
        days = 1
    else:
        return _iso(text, zone)
    begin = datetime.combine(today.date() + timedelta(days=days), time(), zone)
    return begin.astimezone(timezone.utc)


def parse_point(text: str) -> datetime:
    """The moment of an ISO 8601 text, in UTC; local unless it has an offset.

    :raises ValueError: the text is not ISO 8601, or is out of range.
    """
    try:
        return _iso(text)
    except (ValueError, OverflowError, OSError) as error:
        raise ValueError(
            f"{text!r} is not a time; write ISO 8601 such as 2026-05-31T08:00:00Z."
        ) from error


def _iso(text: str, zone: tzinfo | None = None) -> datetime:
    # Before Python 3.11, fromisoformat() does not accept Z.
    read = datetime.fromisoformat(re.sub("[zZ]$", "+00:00", text.strip()))
    return (read if read.tzinfo else read.replace(tzinfo=zone)).astimezone(timezone.utc)


def parse_span(text: str) -> float:
    """The seconds in ``90s``, ``2m``, ``1.5h``, ``7d`` or ``1w``; a plain number is seconds.

    :raises ValueError: the text is not a duration, or the duration is zero or too long.
    """
    bare = text.strip()
    match = _SPAN.fullmatch(bare if bare[-1:].isalpha() else f"{bare}s")
    seconds = float(match[1]) * _SECONDS[match[2].lower()] if match else 0.0
    if not seconds > 0:
        raise ValueError(f"{text!r} is not a duration; write 30s, 2m, 1h or 7d.")
    if seconds > LONGEST_S:
        raise ValueError(f"{text!r} is too long; write {duration(LONGEST_S)} or less.")
    return seconds


def parse_rate(text: str) -> float:
    """Messages per second of ``50``, ``50/s``, ``300/m`` or ``1000/h``.

    :raises ValueError: the text is not a rate, or the rate is zero.
    """
    match = _RATE.fullmatch(text.strip())
    rate = float(match[1]) / _SECONDS[(match[2] or "s").lower()] if match else 0.0
    if not 0 < rate < math.inf:
        raise ValueError(
            f"{text!r} is not a rate; write 50/s, 300/m, 1000/h, or 50 for 50 per second."
        )
    return rate


def parse_hourly(text: str) -> int:
    """Letters per hour at a rate such as ``100/h`` or ``5/m``, rounded up.

    :raises ValueError: the text is not a rate, or the rate is too high to be counted.
    """
    in_hour = math.ceil(parse_rate(text) * 3_600 - 1e-6)
    if in_hour > MOST_HOURLY:
        raise ValueError(
            f"{text!r} is more than {MOST_HOURLY:,} letters per hour; write 100/h or 5/m."
        )
    return in_hour


def rate(per_second: float) -> str:
    """``per_second`` as ``50/s``, ``20/m`` or ``3.6/h``: in the shortest unit in which it is at least 1."""
    units = ("s", "m", "h") if per_second else ("s",)
    unit = next((unit for unit in units if per_second * _SECONDS[unit] >= 1), units[-1])
    count = per_second * _SECONDS[unit]
    return f"{count:,.0f}/{unit}" if count >= 100 else f"{count:.3g}/{unit}"


def duration(seconds: float) -> str:
    """``seconds`` as ``0.5s``, ``45s``, ``3m`` or ``2d``: in the largest unit of which there are at least
    two, or exactly one."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * size or seconds == size:
            return f"{int(seconds // size)}{unit}"
    return f"{round(seconds, 3):.2g}s" if seconds < 10 else f"{seconds:.0f}s"


def age_names(ages: Mapping[float, int]) -> dict[str, int]:
    """Counts by upper bound, in seconds, as counts by ``under 1h`` and ``over 7d``."""
    names, lower = {}, 0.0
    for bound, count in ages.items():
        name = f"under {duration(bound)}" if math.isfinite(bound) else f"over {duration(lower)}"
        names[name], lower = count, bound
    return names


def age(moment: datetime, now: datetime) -> str:
    """How long ago ``moment`` was, or how far in the future it is."""
    seconds = (now - moment).total_seconds()
    # The clocks of two machines differ; less than a second counts as now.
    if abs(seconds) < 1:
        return "now"
    return f"in {duration(-seconds)}" if seconds < 0 else f"{duration(int(seconds))} ago"


def local(moment: datetime) -> str:
    """``moment`` in the local time of this machine."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def utc(moment: datetime) -> str:
    """A moment for people, in UTC: ``2026-11-21 12:00:00 UTC``."""
    return iso(moment)[:19].replace("T", " ") + " UTC"


def iso(moment: datetime) -> str:
    """``moment`` in ISO 8601, UTC."""
    return moment.astimezone(timezone.utc).isoformat()
