"""Letters over time, for charts: how many died in each minute or hour, and since when each release has been
among them. The rollups have the counts, except those of one group by the minute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from sqlalchemy import Column, ColumnElement, Select, Table, case, func, select, union_all
from sqlalchemy.engine import Connection

from celery_dlq.model.group import hour_of
from celery_dlq.model.states import State
from celery_dlq.store.database import tables
from celery_dlq.store.database.transactions import StoreRole, reads
from celery_dlq.store.rows.query import Conditions, one_of, sum_of

letter, arrival, trend = tables.letter, tables.arrival, tables.trend

#: The most letters of a group that are counted one by one.
MOST_COUNTED = 100_000

#: The most letters in each state that are read to find releases, and those of them that are older than the
#: chart.
MOST_READ, READ_BEFORE = 1_200, 200

_MINUTE = timedelta(minutes=1)

#: The states that are stored. The index is in the order of time only within one of them.
_STORED = tuple(
    state.value for state in (State.DEAD, State.REDRIVEN, State.RESOLVED, State.DISCARDED)
)


@dataclass(frozen=True)
class FirstSeen:
    """A release, and the earliest failure in it among the letters that were read."""

    release: str
    at: datetime


class OverTime(StoreRole):
    """How many letters died over time, and in which releases."""

    @reads
    def by_minute(self, connection: Connection, *, since: datetime) -> Mapping[datetime, int]:
        """Arrivals in each minute from ``since`` on that has some."""
        return _summed(connection, arrival, arrival.c.minute, since)

    @reads
    def by_hour(self, connection: Connection, *, since: datetime) -> Mapping[datetime, int]:
        """Arrivals in each hour from ``since`` on that has some."""
        return _summed(connection, trend, trend.c.hour, since)

    @reads
    def group_by_minute(
        self, connection: Connection, fingerprint: str, *, since: datetime, minutes: int
    ) -> Mapping[datetime, int] | None:
        """The letters of a group by the minute of their last failure, for this many minutes from ``since``
        on. Later ones count in the last minute. None if more than :data:`MOST_COUNTED` may have to be
        counted."""
        hours = [trend.c.fingerprint == fingerprint, trend.c.hour >= hour_of(since)]
        if sum_of(connection, trend.c.count, *hours) > MOST_COUNTED:
            return None
        starts = [since + place * _MINUTE for place in range(minutes)]
        at = letter.c.last_failed_at
        newest_first = reversed([*enumerate(starts)])
        place = case(*((at >= start, number) for number, start in newest_first))
        # In a subquery, because PostgreSQL compares no parameters of what is selected and grouped by.
        placed = select(place.label("place")).where(
            letter.c.fingerprint == fingerprint, letter.c.state.in_(_STORED), at >= since
        )
        places = placed.subquery().c.place
        counted = connection.execute(select(places, func.count()).group_by(places))
        return {starts[number]: int(count) for number, count in counted}

    @reads
    def releases(
        self, connection: Connection, edges: Sequence[datetime], *, fingerprint: str | None = None
    ) -> list[FirstSeen]:
        """The releases that were first seen between the first and the last of ``edges``, the earliest first.
        The first letters after each edge are read, and the newest ones before the first edge, whose releases
        are left out: an index has the times, but not the releases.

        :param fingerprint: only those of this group.
        """
        known: Conditions = []
        if fingerprint is not None:
            known = [letter.c.fingerprint == fingerprint]
        each = max(1, MOST_READ // max(1, len(edges) - 1))
        first = [_first(known, state, *span, each) for span in pairwise(edges) for state in _STORED]
        before = [_newest(known, state, edges[0]) for state in _STORED]
        seen = {one.release for one in _releases_of(connection, before)}
        found = _releases_of(connection, first)
        return [one for one in found if one.release not in seen and one.at >= edges[0]]


def _summed(
    connection: Connection, table: Table, column: Column[datetime], since: datetime
) -> dict[datetime, int]:
    summed = select(column, func.sum(table.c.count)).where(column >= since).group_by(column)
    # Sums are decimals on some databases.
    return {moment: int(number) for moment, number in connection.execute(summed)}


def _first(
    known: Conditions, state: str, start: datetime, end: datetime, limit: int
) -> Select[Any]:
    """The ids of the first letters of a span."""
    found = [*known, letter.c.last_failed_at >= start, letter.c.last_failed_at < end]
    return _limited(found, state, [letter.c.last_failed_at, letter.c.id], limit)


def _newest(known: Conditions, state: str, end: datetime) -> Select[Any]:
    """The ids of the newest letters before a moment."""
    order = [letter.c.last_failed_at.desc(), letter.c.id.desc()]
    return _limited([*known, letter.c.last_failed_at < end], state, order, READ_BEFORE)


def _limited(
    found: Conditions, state: str, order: Sequence[ColumnElement[Any]], limit: int
) -> Select[Any]:
    # Only the ids: MariaDB also reads the letters outside the span, which is quick as long as the index has
    # all that it reads.
    ids = select(letter.c.id).where(letter.c.state == state, *found)
    # In a subquery, because SQLite limits no part of a union.
    return select(ids.order_by(*order).limit(limit).subquery())


def _releases_of(connection: Connection, parts: Sequence[Select[Any]]) -> list[FirstSeen]:
    """The releases of the letters that ``parts`` find, each with its earliest failure, the earliest first."""
    ids = connection.execute(union_all(*parts)).scalars().all()
    at, began = letter.c.last_failed_at, dict[str, datetime]()
    first = case((letter.c.last_redrive > 0, letter.c.first_failed_at), else_=at)
    found = select(letter.c.release, first, at).where(
        one_of(connection, letter.c.id, ids), letter.c.release != ""
    )
    latest = dict[str, datetime]()
    for release, first_at, last_at in connection.execute(found.order_by(at)) if ids else ():
        # A letter whose redrive has failed first failed in the same release, unless another one did since.
        others = (moment for name, moment in latest.items() if name != release)
        since = last_at if any(moment >= first_at for moment in others) else first_at
        began[release] = min(since, began.get(release, since))
        latest[release] = last_at
    return sorted((FirstSeen(*one) for one in began.items()), key=lambda one: (one.at, one.release))
