"""Arrivals over time as a chart: its columns, and the choice of its range."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from celery_dlq.errors import FilterError
from celery_dlq.flower import charts
from celery_dlq.flower.http.request import Given, single_value
from celery_dlq.flower.http.site import Site
from celery_dlq.model.group import hour_of
from celery_dlq.view.times import duration

if TYPE_CHECKING:
    from celery_dlq.store import Store
    from celery_dlq.upkeep.retention import Retention

_HOUR = timedelta(hours=1)

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


#: The ranges of a group, whose arrivals are counted by the hour.
OF_GROUPS = ("24h", "7d", "30d")


def read_range(given: Given, usual: str, allowed: Collection[str] = tuple(RANGES)) -> Range:
    """The range that is asked for, or the one with the name ``usual``.

    :raises FilterError: it is not ``allowed``, or is given more than once.
    """
    name = single_value(given, "range") or usual
    if name not in allowed:
        raise FilterError(f"range must be one of {', '.join(allowed)}, not {name[:40]!r}.")
    return RANGES[name]


@dataclass(frozen=True, kw_only=True)
class Arrivals:
    """The arrivals in a range."""

    range: Range
    #: The columns of their chart.
    bins: Sequence[charts.Bin]
    #: The choice of ranges: name, and address.
    ranges: Sequence[tuple[str, str]]
    #: The limit of the counts, as a sentence; empty if they have all columns.
    note: str


def arrivals_of(
    store: Store, site: Site, range_: Range, now: datetime, *, group: str = ""
) -> Arrivals:
    """Read the arrivals of a group, or of all letters.

    :param group: its fingerprint; empty for all letters.
    """
    edges = range_.edges(now)
    counts = [0] * range_.columns
    for moment, count in _counts_of(store, group, range_, edges[0], now).items():
        place = int((moment - edges[0]) / range_.step)
        # Failures of a worker whose clock is ahead count in the last column.
        counts[min(range_.columns - 1, max(0, place))] += count
    page = site.links.group(group) if group else site.links.page()
    names = OF_GROUPS if group else RANGES
    return Arrivals(
        range=range_,
        bins=charts.bins_of(edges, counts),
        ranges=[(name, f"{page}?range={name}") for name in names],
        note=_limit_of(range_, site.settings.retention),
    )


def _limit_of(range_: Range, retention: Retention | None) -> str:
    kept = None if retention is None else retention.arrivals
    if kept is None or range_.columns * range_.step <= kept:
        return ""
    return (
        f"Counts of arrivals are kept for {duration(kept.total_seconds())} (dlq_retention): earlier "
        "columns may lack letters."
    )


def _counts_of(
    store: Store, group: str, range_: Range, since: datetime, now: datetime
) -> Mapping[datetime, int]:
    if not group:
        by_minute = range_.step < _HOUR
        return (store.over_time.by_minute if by_minute else store.over_time.by_hour)(since=since)
    hours = int((hour_of(now) - since) / _HOUR) + 1
    trend = store.groups.trends([group], now=now, hours=hours)[group]
    return {since + place * _HOUR: count for place, count in enumerate(trend)}
