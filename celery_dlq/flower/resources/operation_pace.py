"""How a redrive went over time: the letters that were sent, succeeded and failed again, as three charts on
one scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

from celery_dlq.flower.html import charts
from celery_dlq.model.operation import SendingState
from celery_dlq.store.base import Operation

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: Columns of a chart, and the shortest time of one.
_COLUMNS, _SHORTEST = 40, timedelta(seconds=1)

#: The most letters of an operation whose times of sending are read; no index has them.
_MOST_READ = 20_000


@dataclass(frozen=True, kw_only=True)
class Row:
    """One of the charts."""

    kind: str
    label: str
    bins: Sequence[charts.Bin]
    #: The most letters in a column of any of the charts.
    most: int

    @property
    def total(self) -> int:
        """Its letters."""
        return sum(found.count for found in self.bins)

    @property
    def chart(self) -> str:
        """Its columns."""
        return charts.columns(self.bins, self.label, most=self.most)

    @property
    def scale(self) -> Sequence[int]:
        """The numbers beside the chart, from the top."""
        return [charts.scale(self.most)[1], 0]


@dataclass(frozen=True, kw_only=True)
class Pace:
    """The numbers of letters by time."""

    #: The beginning of each column, and the end of the last one.
    edges: Sequence[datetime]
    ended: Mapping[SendingState, Sequence[int]]
    #: None if they are too many to be read.
    sent: Sequence[int] | None

    @property
    def rows(self) -> list[Row]:
        """The charts."""
        found = [
            ("succeeded", "succeeded", self.ended[SendingState.SUCCEEDED]),
            ("failed", "failed again", self.ended[SendingState.FAILED]),
        ]
        if self.sent is not None:
            found = [("sent", "sent", self.sent), *found]
        most = max(max(counts) for _, _, counts in found)
        return [
            Row(kind=kind, label=label, bins=self._bins(counts), most=most)
            for kind, label, counts in found
        ]

    @property
    def labels(self) -> Sequence[datetime]:
        """The moments under the charts."""
        return [self.edges[0], self.edges[-1]]

    def _bins(self, counts: Sequence[int]) -> list[charts.Bin]:
        spans = pairwise(self.edges)
        return [charts.Bin(*span, count) for span, count in zip(spans, counts, strict=True)]


def pace_of(store: Store, operation: Operation, now: datetime) -> Pace | None:
    """Read how an operation went; None before it has begun.

    :param now: by the store's clock.
    """
    if operation.started_at is None:
        return None
    edges = _edges(operation.started_at, _end(store, operation, now))
    is_read = operation.counts.planned <= _MOST_READ
    return Pace(
        edges=edges,
        ended=store.sendings.endings_by_time(operation.id, edges),
        sent=store.sendings.sent_by_time(operation.id, edges) if is_read else None,
    )


def _end(store: Store, operation: Operation, now: datetime) -> datetime:
    """The end of the charts: now, or the last outcome if no more are awaited."""
    if operation.ended_at is None or operation.counts.sent:
        return now
    latest = store.sendings.recent_endings(operation.id, 1)
    return max([operation.ended_at, *(one.ended_at for one in latest if one.ended_at)])


def _edges(since: datetime, until: datetime) -> list[datetime]:
    # The clock of Flower may be behind that of the worker.
    until = max(since, until)
    step = max(_SHORTEST, (until - since) / _COLUMNS)
    # The end itself belongs to the last column.
    count = int((until - since) / step) + 1
    return [since + place * step for place in range(count + 1)]
