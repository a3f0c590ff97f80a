"""Times and rates as people write them on a command line, and read them on a screen."""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta, timezone

_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])", re.IGNORECASE)
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:/\s*([smh]))?", re.IGNORECASE)
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def utc_now() -> datetime:
    """The present moment; the only clock of the command line."""
    return datetime.now(timezone.utc)


def parse_moment(text: str, now: datetime) -> datetime:
    """The moment that ``text`` names: ``2h`` (so long before ``now``), or an ISO-8601 date or time,
    local unless it carries an offset. In UTC.

    :raises ValueError: it is neither, or no calendar holds it.
    """
    ago = _AGO.fullmatch(text.strip())
    try:
        if ago:
            return now - timedelta(seconds=float(ago[1]) * _SECONDS[ago[2].lower()])
        return _iso(text.strip()).astimezone(timezone.utc)
    except (ValueError, OverflowError, OSError) as error:
        raise ValueError(
            f"{text!r} is no time; write 90m, 2h, 3d or 1w for so long ago, "
            "or ISO 8601 such as 2026-05-31 or 2026-05-31T08:00:00Z."
        ) from error


def _iso(text: str) -> datetime:
    # Before Python 3.11 fromisoformat() does not know Z.
    return datetime.fromisoformat(re.sub("[zZ]$", "+00:00", text))


def parse_rate(text: str) -> float:
    """Messages per second of ``50``, ``50/s``, ``300/m`` or ``1000/h``.

    :raises ValueError: it is no rate, or zero.
    """
    match = _RATE.fullmatch(text.strip())
    rate = float(match[1]) / _SECONDS[(match[2] or "s").lower()] if match else 0.0
    if not 0 < rate < math.inf:
        raise ValueError(f"{text!r} is no rate; write 50/s, 300/m, 1000/h, or 50 for 50 a second.")
    return rate


def duration(seconds: float) -> str:
    """``seconds`` as ``0.5s``, ``45s``, ``3m`` or ``2d``: the largest unit that does not
    round much away."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * size or seconds == size:
            return f"{int(seconds // size)}{unit}"
    return f"{seconds:.2g}s" if seconds < 10 else f"{seconds:.0f}s"


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
