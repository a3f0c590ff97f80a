"""The times that a chart may show, by the name in an address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from celery_dlq.errors import FilterError
from celery_dlq.flower.filters import Given

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, kw_only=True)
class Range:
    """A time until now, in columns of one width."""

    #: The name in an address.
    name: str
    #: The name on a page, after "last".
    label: str
    columns: int
    step: timedelta
    #: The name of a step.
    unit: str

    def edges(self, now: datetime) -> list[datetime]:
        """The beginning of each column, and the end of the last one. A column begins at a whole minute, hour,
        quarter of a day, or day of UTC."""
        first = now - (now - _EPOCH) % self.step - (self.columns - 1) * self.step
        return [first + place * self.step for place in range(self.columns + 1)]


#: The ranges by their names, the shortest first.
RANGES: Mapping[str, Range] = {
    found.name: found
    for found in (
        Range(name="1h", label="hour", columns=60, step=timedelta(minutes=1), unit="minute"),
        Range(name="24h", label="24 hours", columns=24, step=timedelta(hours=1), unit="hour"),
        Range(name="7d", label="7 days", columns=28, step=timedelta(hours=6), unit="6 hours"),
        Range(name="30d", label="30 days", columns=30, step=timedelta(days=1), unit="day"),
    )
}


def read_range(given: Given, usual: str) -> Range:
    """The range that is asked for, or the one with the name ``usual``.

    :raises FilterError: it is not one of :data:`RANGES`, or is given more than once.
    """
    names = [name for name in given.get("range", ()) if name] or [usual]
    if len(names) > 1:
        raise FilterError("range is given more than once; give it once.")
    if names[0] not in RANGES:
        raise FilterError(f"range must be one of {', '.join(RANGES)}, not {names[0][:40]!r}.")
    return RANGES[names[0]]
