"""Arrivals over time as a chart: its columns, the releases and operations that began, and the choice of its
range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

from celery_dlq.flower.html import charts
from celery_dlq.flower.html.links import Links
from celery_dlq.flower.html.words import line
from celery_dlq.flower.ranges import RANGES, Range
from celery_dlq.model.group import hour_of
from celery_dlq.store.base import Operation
from celery_dlq.view.text import counted
from celery_dlq.view.times import duration

if TYPE_CHECKING:
    from celery_dlq.store import Store
    from celery_dlq.store.letters.counting import FirstSeen

#: Releases, and operations, that are marked.
_MARKED = 10

#: Stretches of a chart whose first letters are looked at for releases. Each makes the query longer.
_STRETCHES = 12

_HOUR = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class KnownArrivals:
    """The store's data about arrivals."""

    #: The beginning of each column, and the end of the last one.
    edges: Sequence[datetime]
    #: The arrivals by minute or hour; None if they are too many to be counted.
    counts: Mapping[datetime, int] | None
    releases: Sequence[FirstSeen]
    operations: Sequence[Operation]


@dataclass(frozen=True, kw_only=True)
class MarkRow:
    """A mark of the chart in the list below it."""

    at: datetime
    kind: str
    name: str
    address: str
    #: What happened at that moment.
    event: str
    remark: str = ""

    @property
    def label(self) -> str:
        """The mark in words, without its time."""
        return " ".join(filter(None, (self.name, self.event, self.remark)))


@dataclass(frozen=True, kw_only=True)
class Arrivals:
    """The chart and its texts."""

    known: KnownArrivals
    range: Range
    links: Links
    #: The address of the page, without a query.
    address: str
    #: The fingerprint of the group; empty for all letters.
    group: str = ""
    #: How long counts of arrivals are kept; None for ever.
    kept: timedelta | None = None

    @property
    def bins(self) -> list[charts.Bin]:
        """The columns."""
        spans, found = list(pairwise(self.known.edges)), self.known.counts or {}
        counts = [0] * len(spans)
        for moment, count in found.items():
            place = int((moment - self.known.edges[0]) / self.range.step)
            # Failures of a worker whose clock is ahead count in the last column.
            counts[min(len(spans) - 1, max(0, place))] += count
        return [charts.Bin(*span, count) for span, count in zip(spans, counts, strict=True)]

    @property
    def chart(self) -> str:
        """The columns and marks."""
        marks = [charts.Mark(row.at, row.label, row.kind) for row in reversed(self.marks)]
        return charts.columns(self.bins, f"Arrivals in the last {self.range.label}", marks)

    @property
    def is_counted(self) -> bool:
        """Whether the letters were counted."""
        return self.known.counts is not None

    @property
    def total(self) -> int:
        """The arrivals in the whole range."""
        return sum(found.count for found in self.bins)

    @property
    def busiest(self) -> int:
        """The most arrivals in a column."""
        return max(found.count for found in self.bins)

    @property
    def scale(self) -> list[int]:
        """The numbers beside the chart, from the top."""
        middle, end = charts.scale(self.busiest)
        return [end, middle, 0]

    @property
    def labels(self) -> list[datetime]:
        """The moments under the chart, before "now"."""
        edges = self.known.edges
        return [edges[0], edges[len(edges) // 2]]

    @property
    def rows(self) -> list[charts.Bin]:
        """The columns with letters, the newest first."""
        return [found for found in reversed(self.bins) if found.count]

    @property
    def ranges(self) -> list[tuple[str, str, bool]]:
        """The choice of ranges: name, address, and whether it is shown."""
        return [(name, f"{self.address}?range={name}", name == self.range.name) for name in RANGES]

    @property
    def marks(self) -> list[MarkRow]:
        """The releases and operations that began, the newest first."""
        found = [*map(self._release, self._newest_releases), *map(self._operation, self._newest)]
        return sorted(found, key=lambda row: row.at, reverse=True)

    @property
    def more(self) -> list[str]:
        """Notes about releases and redrives that are not marked."""
        found = []
        releases = len(self.known.releases) - _MARKED
        if releases > 0:
            are = "is" if releases == 1 else "are"
            found.append(f"{counted(releases, 'earlier release')} {are} not marked.")
        # More than these were not read.
        if len(self.known.operations) > _MARKED:
            found.append("Earlier redrives are not marked.")
        return found

    @property
    def notes(self) -> list[str]:
        """The limits of the counts, as sentences."""
        found = []
        if self.group and self.range.step < _HOUR:
            found.append("Each letter counts once, in the minute of its last failure.")
        if self.kept is not None and self.range.columns * self.range.step > self.kept:
            kept = duration(self.kept.total_seconds())
            found.append(
                f"Counts of arrivals are kept for {kept} (dlq_retention): earlier columns may lack letters."
            )
        if any(row.kind == "release" for row in self.marks):
            found.append(
                "A release counts as first seen with the earliest of its letters that were looked at: the "
                "first ones of each part of the chart."
            )
        return found

    @property
    def _newest_releases(self) -> Sequence[FirstSeen]:
        return self.known.releases[-_MARKED:]

    @property
    def _newest(self) -> Sequence[Operation]:
        return self.known.operations[:_MARKED]

    def _release(self, found: FirstSeen) -> MarkRow:
        wanted = {"group": self.group} if self.group else {}
        return MarkRow(
            at=found.at, kind="release", name=f"release {line(found.release, 60)}",
            address=self.links.letters(**wanted, release=found.release), event="first seen",
        )  # fmt: skip

    def _operation(self, found: Operation) -> MarkRow:
        return MarkRow(
            at=found.created_at, kind="operation", name=f"redrive {found.id}",
            address=self.links.operation(found.id), event="begun",
            remark=f"by {line(found.who, 60)}",
        )  # fmt: skip


def all_arrivals(store: Store, range_: Range, now: datetime) -> KnownArrivals:
    """Read the arrivals of all letters."""
    edges = range_.edges(now)
    by_minute = range_.step < _HOUR
    count = store.over_time.by_minute if by_minute else store.over_time.by_hour
    return KnownArrivals(
        edges=edges,
        counts=count(since=edges[0]),
        releases=store.over_time.releases(_stretches(edges)),
        operations=store.operations.find(since=edges[0], limit=_MARKED + 1),
    )


def arrivals_of(
    store: Store, fingerprint: str, range_: Range, now: datetime, operations: Sequence[Operation]
) -> KnownArrivals:
    """Read the arrivals of a group.

    :param operations: those that concern the group, newest first.
    """
    edges = range_.edges(now)
    return KnownArrivals(
        edges=edges,
        counts=_counts_of(store, fingerprint, range_, now),
        releases=store.over_time.releases(_stretches(edges), fingerprint=fingerprint),
        operations=[one for one in operations if one.created_at >= edges[0]],
    )


def _counts_of(
    store: Store, fingerprint: str, range_: Range, now: datetime
) -> Mapping[datetime, int] | None:
    since = range_.edges(now)[0]
    if range_.step < _HOUR:
        return store.over_time.group_by_minute(fingerprint, since=since, minutes=range_.columns)
    hours = int((hour_of(now) - since) / _HOUR) + 1
    trend = store.groups.trends([fingerprint], now=now, hours=hours)[fingerprint]
    return {since + place * _HOUR: count for place, count in enumerate(trend)}


def _stretches(edges: Sequence[datetime]) -> list[datetime]:
    """``edges``, or some of them if they are many."""
    each = -(-(len(edges) - 1) // _STRETCHES)
    return [*edges[:-1:each], edges[-1]]
