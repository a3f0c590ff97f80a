"""Counts letters: all that a filter finds, and for charts, those that died in each minute or hour.

The number is read from the rollups if they have it: they know the open letters by task, exception, group,
queue, reason and route. Otherwise the letters are counted one by one, all of them for an act, and some for a
screen. A single statement adds and subtracts all parts, because a letter that arrived between two statements
would count in only one of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, case, func, select, union_all
from sqlalchemy.engine import Connection

from celery_dlq.errors import FilterError
from celery_dlq.model.states import OPEN_STATES, State
from celery_dlq.store.base import Filter, Number, TypeCount
from celery_dlq.store.database import tables
from celery_dlq.store.database.tables import arrival, cell, group, letter, trend
from celery_dlq.store.database.transactions import StoreRole, reads
from celery_dlq.store.rows.query import (
    GROUP_FIELDS,
    IS_PARKED,
    Conditions,
    conditions,
    count_rows,
    group_conditions,
    in_states,
    places,
    sum_of,
    sums_by,
)
from celery_dlq.store.rows.rows import read_row

#: The fields of a filter that arrivals know.
_ARRIVAL_FIELDS = frozenset({"task", "exception", "namespace"})

#: The fields of a filter that the cells know, as letters do.
_CELL_FIELDS = _ARRIVAL_FIELDS | {"queue", "reason", "without_reasons", "route"}

#: The most letters since ``until`` that are counted one by one and subtracted. ``until`` is often the moment
#: when a person asked for an act, and few letters have arrived since then.
LATE_LIMIT = 5_000

#: The most letters that are counted one by one for a screen.
SHOWN_LIMIT = 10_000

#: The most names that are read to find one that may be meant.
NAMES_LIMIT = 5_000

#: Numbers of letters by task, to be added up; a part that is subtracted has negative numbers.
Part = Select[Any]

_EACH: ColumnElement[int] = func.count()


class Counts(StoreRole):
    """How many letters there are."""

    @reads
    def letters(self, wanted: Filter) -> int:
        """How many letters and parked retries match."""
        known = _by_rollups(self.connection, wanted)
        if known is not None:
            return known.total()
        return sum(
            count_rows(self.connection, table, *found)
            for table, found in places(self.connection, wanted)
        )

    @reads
    def for_screen(self, wanted: Filter) -> Number:
        """How many letters and parked retries match. What no rollup knows is counted up to
        :data:`SHOWN_LIMIT`."""
        known = _by_rollups(self.connection, wanted)
        if known is not None:
            return Number(known.total())
        some = [
            select(table.c.task_id).where(*found).limit(SHOWN_LIMIT + 1).subquery()
            for table, found in places(self.connection, wanted)
        ]
        number = sum(count_rows(self.connection, one) for one in some)
        return Number(min(number, SHOWN_LIMIT), more=number > SHOWN_LIMIT)

    @reads
    def by_task(self, wanted: Filter) -> Mapping[str, int]:
        """How many letters and parked retries of each task match, the largest number first."""
        totals = _by_rollups(self.connection, wanted)
        if totals is None:
            totals = _added(
                self.connection, [_part(*place) for place in places(self.connection, wanted)]
            )
        return dict(sorted(totals.items(), key=lambda item: (-item[1], item[0])))

    @reads
    def names(self, field: str) -> Sequence[str]:
        """The values of ``field``, such as ``exception`` or ``release``, that stored letters have."""
        name = "exception_type" if field == "exception" else field
        column = cell.c[name] if name in cell.c else letter.c[name]
        ours = select(column).where(self.ours(column.table))
        found = self.connection.scalars(ours.distinct().limit(NAMES_LIMIT))
        return sorted(filter(None, found))

    @reads
    def arrivals(self, wanted: Filter, *, since: datetime, until: datetime) -> int:
        """How many letters died, for the first time or again, in the minutes from ``since`` to ``until``.

        :param wanted: may narrow by task and exception.
        :raises FilterError: ``wanted`` narrows by something else.
        """
        others = sorted(wanted.given - _ARRIVAL_FIELDS)
        if others:
            raise FilterError(
                f"Arrivals are not kept by {' or '.join(others)}; narrow them by task or exception."
            )
        within = arrival.c.minute >= since, arrival.c.minute < until
        known = group_conditions(self.connection, arrival, wanted)
        return sum_of(self.connection, arrival.c.count, *within, *known)

    @reads
    def by_type(self, rules: Collection[str], *, limit: int) -> tuple[TypeCount, ...]:
        """The exception types of letters about which one of ``rules`` decided, the most letters first. Reads
        all letters, without their contents."""
        newest = (
            select(
                letter.c.rule,
                _EACH.label("letters"),
                func.sum(case((in_states(OPEN_STATES), 1), else_=0)).label("open"),
                func.max(letter.c.id).label("id"),
            )
            .where(letter.c.rule.in_(sorted(rules)), self.ours(letter))
            .group_by(letter.c.exception_type, letter.c.rule)
            .order_by(_EACH.desc(), letter.c.exception_type, letter.c.rule)
            .limit(limit)
            .subquery()
        )
        names = "exception_type", "task_id", "evidence", "last_failed_at"
        shown = [letter.c[name] for name in names]
        joined = select(newest, *shown).join(letter, letter.c.id == newest.c.id)
        found = self.connection.execute(joined).mappings()
        # The redrives that ended, by exception type.
        ended = {
            name: sums_by(self.connection, func.sum(column), cell.c.exception_type, where=[])
            for name, column in (
                ("succeeded", cell.c.succeeded_count),
                ("failed", cell.c.failed_count),
            )
        }
        types = [
            read_row(
                TypeCount, row, open=int(row["open"]),
                **{name: of_type.get(row["exception_type"], 0) for name, of_type in ended.items()},
            )
            for row in found
        ]  # fmt: skip
        return tuple(sorted(types, key=lambda one: (-one.letters, one.exception_type, one.rule)))


def _by_rollups(connection: Connection, wanted: Filter) -> Counter[str] | None:
    """How many letters each task has; None if the rollups do not have the numbers."""
    states, late = wanted.wanted_states, wanted.until
    moving = OPEN_STATES - states
    if State.DEAD in moving or states - OPEN_STATES - {State.PARKED}:
        return None
    if late is not None:
        # By the minute, so that these are about as many.
        later = arrival.c.minute >= late.replace(second=0, microsecond=0)
        if sum_of(connection, arrival.c.count, later) > LATE_LIMIT:
            return None
    narrowed = replace(wanted, until=None)
    asked, parts, rollup = narrowed.given - {"states"}, [], cell
    if asked - _CELL_FIELDS:
        if asked - GROUP_FIELDS - {"without_reasons"}:
            return None
        rollup, parts = group, _apart(connection, wanted)
        narrowed = replace(narrowed, without_reasons=frozenset())
    opened = func.sum(rollup.c.open_count)
    parts.append(_part(rollup, conditions(connection, narrowed, rollup), opened))
    others = conditions(connection, narrowed)
    if moving:
        parts.append(_part(letter, [in_states(moving), *others], -_EACH))
    if late is not None:
        newer = [in_states(states & OPEN_STATES), letter.c.last_failed_at >= late]
        parts.append(_part(letter, [*newer, *others], -_EACH))
    if State.PARKED in states:
        waiting = conditions(connection, wanted, tables.parked)
        parts.append(_part(tables.parked, [IS_PARKED, *waiting]))
    return _added(connection, parts)


def _apart(connection: Connection, wanted: Filter) -> list[Part]:
    """The letters to subtract because their reasons are left out, which groups do not know. Few letters have
    such reasons: each redrive leaves some, until a person names the reasons."""
    reasons = sorted(wanted.without_reasons)
    same = [group.c.task == cell.c.task, group.c.exception_type == cell.c.exception_type]
    theirs = select(group.c.task).where(*same, *group_conditions(connection, group, wanted))
    kinds = select(cell.c.exception_type).where(
        cell.c.reason.in_(reasons), cell.c.open_count > 0, theirs.correlate(cell).exists()
    )
    # An index has the exception type, and most of these letters have types of their own.
    types = sorted(connection.scalars(kinds.distinct())) if reasons else []
    found = [
        in_states(wanted.wanted_states & OPEN_STATES),
        letter.c.reason.in_(reasons),
        letter.c.exception_type.in_(types),
        *conditions(connection, replace(wanted, without_reasons=frozenset())),
    ]
    return [_part(letter, found, -_EACH)] if types else []


def _part(table: Table, found: Conditions, number: ColumnElement[int] = _EACH) -> Part:
    return select(table.c.task, number.label("number")).where(*found).group_by(table.c.task)


def _added(connection: Connection, parts: Sequence[Part]) -> Counter[str]:
    every = union_all(*parts).subquery()
    total = func.sum(every.c.number)
    added = select(every.c.task, total).group_by(every.c.task).having(total > 0)
    # Sums are decimals on some databases.
    return Counter({task: int(number) for task, number in connection.execute(added)})


#: The most letters of a group that are counted from their rows.
MOST_READ = 20_000


@dataclass(frozen=True)
class ReleaseCount:
    """A release, its letters, and when the first of them failed last."""

    release: str
    letters: int
    since: datetime


class OverTime(StoreRole):
    """How many letters died over time, and in which releases."""

    @reads
    def by_minute(self, *, since: datetime) -> Mapping[datetime, int]:
        """Arrivals in each minute from ``since`` on that has some."""
        at = arrival.c.minute
        return sums_by(self.connection, func.sum(arrival.c.count), at, where=[at >= since])

    @reads
    def by_hour(self, *, since: datetime) -> Mapping[datetime, int]:
        """Arrivals in each hour from ``since`` on that has some."""
        at = trend.c.hour
        return sums_by(self.connection, func.sum(trend.c.count), at, where=[at >= since])

    @reads
    def releases(self, fingerprint: str) -> list[ReleaseCount] | None:
        """The open letters of a group by the release that failed last, the newest release first; letters
        without a release are left out. None if more than :data:`MOST_READ` would have to be read: no index
        has the release."""
        known = sum_of(self.connection, group.c.open_count, group.c.fingerprint == fingerprint)
        if known > MOST_READ:
            return None
        release, began = letter.c.release, func.min(letter.c.last_failed_at)
        of_group = [letter.c.fingerprint == fingerprint, self.ours(letter)]
        of_group += [in_states(OPEN_STATES), release != ""]
        counted = select(release, _EACH, began).where(*of_group).group_by(release)
        newest_first = counted.order_by(began.desc(), release.desc())
        return [ReleaseCount(*row) for row in self.connection.execute(newest_first)]
