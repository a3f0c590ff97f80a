"""Times and rates as people write them on a command line, and read them on a screen."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone

_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])", re.IGNORECASE)
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:/\s*([smh]))?", re.IGNORECASE)
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def utc_now() -> datetime:
    """The present moment; the only clock of the screens."""
    return datetime.now(timezone.utc)


def parse_moment(text: str, now: datetime) -> datetime:
    """The moment that ``text`` names: ``2h`` (so long before ``now``), or an ISO-8601 date or time,
    local unless it carries an offset. In UTC.

    :raises ValueError: it is neither, or no calendar holds it.
    """
    ago = _SPAN.fullmatch(text.strip())
    try:
        if ago:
            return now - timedelta(seconds=float(ago[1]) * _SECONDS[ago[2].lower()])
        return _iso(text)
    except (ValueError, OverflowError, OSError) as error:
        raise ValueError(
            f"{text!r} is no time; write 90m, 2h, 3d or 1w for so long ago, "
            "or ISO 8601 such as 2026-05-31 or 2026-05-31T08:00:00Z."
        ) from error


def parse_ahead(text: str, now: datetime) -> datetime:
    """The moment that ``text`` names: ``2h`` (so long after ``now``), or an ISO-8601 date or time, local
    unless it carries an offset. In UTC.

    :raises ValueError: it is neither, or is over already.
    """
    ahead = _SPAN.fullmatch(text.strip())
    moment = now + timedelta(seconds=parse_span(text)) if ahead else parse_point(text)
    if moment <= now:
        raise ValueError(f"{text!r} is over already; write 2h, 3d or 1w, or a later time.")
    return moment


def parse_point(text: str) -> datetime:
    """The moment that ``text`` names in ISO 8601, local unless it carries an offset. In UTC.

    :raises ValueError: it names none, or no calendar holds it.
    """
    try:
        return _iso(text)
    except (ValueError, OverflowError, OSError) as error:
        raise ValueError(
            f"{text!r} is no point in time; write ISO 8601 such as 2026-05-31T08:00:00Z."
        ) from error


def _iso(text: str) -> datetime:
    # Before Python 3.11 fromisoformat() does not know Z.
    read = datetime.fromisoformat(re.sub("[zZ]$", "+00:00", text.strip()))
    return read.astimezone(timezone.utc)


def parse_span(text: str) -> float:
    """Seconds of ``90s``, ``2m``, ``1.5h``, ``7d`` or ``1w``; a plain number is seconds.

    :raises ValueError: it is no length of time, or none at all.
    """
    bare = text.strip()
    match = _SPAN.fullmatch(bare if bare[-1:].isalpha() else f"{bare}s")
    seconds = float(match[1]) * _SECONDS[match[2].lower()] if match else 0.0
    if not 0 < seconds <= timedelta.max.total_seconds():
        raise ValueError(f"{text!r} is no length of time; write 30s, 2m, 1h or 7d.")
    return seconds


def parse_rate(text: str) -> float:
    """Messages per second of ``50``, ``50/s``, ``300/m`` or ``1000/h``.

    :raises ValueError: it is no rate, or zero.
    """
    match = _RATE.fullmatch(text.strip())
    rate = float(match[1]) / _SECONDS[(match[2] or "s").lower()] if match else 0.0
    if not 0 < rate < math.inf:
        raise ValueError(f"{text!r} is no rate; write 50/s, 300/m, 1000/h, or 50 for 50 a second.")
    return rate


def rate(per_second: float) -> str:
    """``per_second`` as ``50/s``, ``20/m`` or ``3.6/h``: by the shortest unit that has a whole one."""
    units = ("s", "m", "h") if per_second else ("s",)
    unit = next((unit for unit in units if per_second * _SECONDS[unit] >= 1), units[-1])
    count = per_second * _SECONDS[unit]
    return f"{count:,.0f}/{unit}" if count >= 100 else f"{count:.3g}/{unit}"


def duration(seconds: float) -> str:
    """``seconds`` as ``0.5s``, ``45s``, ``3m`` or ``2d``: the largest unit that does not
    round much away."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * size or seconds == size:
            return f"{int(seconds // size)}{unit}"
    return f"{seconds:.2g}s" if seconds < 10 else f"{seconds:.0f}s"


def age_names(ages: Mapping[float, int]) -> dict[str, int]:
    """Counts by upper bound, in seconds, as counts by ``under 1h`` and ``over 7d``."""
    names, lower = {}, 0.0
    for bound, count in ages.items():
        name = f"under {duration(bound)}" if math.isfinite(bound) else f"over {duration(lower)}"
        names[name], lower = count, bound
    return names


def age(moment: datetime, now: datetime) -> str:
    """How long ago ``moment`` was, or how far ahead it is."""
    seconds = (now - moment).total_seconds()
    # Clocks of two machines differ; a second ahead is now.
    if abs(seconds) < 1:
        return "now"
    return f"in {duration(-seconds)}" if seconds < 0 else f"{duration(int(seconds))} ago"


def local(moment: datetime) -> str:
    """``moment`` on the clock of this machine."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def iso(moment: datetime) -> str:
    """``moment`` in ISO 8601, UTC."""
    return moment.astimezone(timezone.utc).isoformat()
