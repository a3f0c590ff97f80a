"""How many letters a filter finds: taken from the rollups where these know, counted one by one otherwise.

A million letters of one task take seconds to count, and whoever is to confirm an act on them waits. What is
added up and taken away is asked in one statement: letters that arrive between two would be in one of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, func, not_, select, union_all
from sqlalchemy.engine import Connection

from celery_dlq.group import hour_of
from celery_dlq.states import OPEN_STATES, State
from celery_dlq.store import tables
from celery_dlq.store.base import Filter
from celery_dlq.store.query import (
    GROUP_FIELDS,
    Conditions,
    begins_with,
    conditions,
    group_conditions,
    in_states,
    is_parked,
    one_of,
    places,
)

letter, group, cell = tables.letter, tables.group, tables.count
arrival, trend = tables.arrival, tables.trend

#: The fields of a filter that the cells can answer, too.
_CELL_FIELDS = frozenset({"task", "exception", "queue", "reason", "without_reasons"})

_HOUR = timedelta(hours=1)

_TIMES = frozenset({"since", "until"})

#: Letters that have arrived since ``until`` and are counted one by one. An act is about those that were
#: there when it was asked for; in the meantime few come.
LATE_LIMIT = 5_000

#: Letters whose reasons are left out and that are counted one by one. A redrive leaves a few such letters
#: behind each time, and nobody looks at them until they are named.
APART_LIMIT = 5_000

#: Numbers of letters by task, to be added up; what is to be taken away is below zero.
Part = Select[Any]

_EACH: ColumnElement[int] = func.count()


def count(connection: Connection, wanted: Filter) -> int:
    """How many letters and parked retries match."""
    wanted = _without_needless(connection, wanted)
    known = _by_rollups(connection, wanted)
    if known is not None:
        return known.total()
    return sum(
        int(connection.execute(select(func.count()).select_from(table).where(*found)).scalar_one())
        for table, found in places(connection, wanted)
    )


def count_by_task(connection: Connection, wanted: Filter) -> dict[str, int]:
    """How many letters and parked retries of each task match, most first."""
    wanted = _without_needless(connection, wanted)
    totals = _by_rollups(connection, wanted)
    if totals is None:
        totals = _added(connection, [_part(*place) for place in places(connection, wanted)])
    return dict(sorted(totals.items(), key=lambda item: (-item[1], item[0])))


def _by_rollups(connection: Connection, wanted: Filter) -> Counter[str] | None:
    """The letters by task; None where the rollups do not know, or not at less cost."""
    states = wanted.wanted_states
    others = OPEN_STATES - states
    if State.DEAD in others or states - OPEN_STATES - {State.PARKED}:
        return None
    late = wanted.until if _are_few_late(connection, wanted) else None
    narrowed = replace(wanted, until=None) if late else wanted
    apart = _apart(connection, wanted, narrowed)
    if apart:
        narrowed = replace(narrowed, without_reasons=frozenset())
    parts = _opened(connection, narrowed)
    if parts is None:
        return None
    parts += apart
    if others:
        moving = [in_states(others), *conditions(connection, narrowed)]
        parts.append(_part(letter, moving, -_EACH))
    if late:
        came = [in_states(states & OPEN_STATES), letter.c.last_failed_at >= late]
        parts.append(_part(letter, [*came, *conditions(connection, narrowed)], -_EACH))
    if State.PARKED in states:
        waiting = conditions(connection, wanted, tables.parked)
        parts.append(_part(tables.parked, [is_parked(), *waiting]))
    return _added(connection, parts)


def _opened(connection: Connection, wanted: Filter) -> list[Part] | None:
    """The open letters; None where no rollup knows."""
    asked = wanted.given - {"states"}
    if asked & _TIMES:
        return None if asked - _TIMES - GROUP_FIELDS else _by_hours(connection, wanted)
    if not asked - _CELL_FIELDS:
        rollup = cell
    elif not asked - GROUP_FIELDS:
        rollup = group
    else:
        return None
    return [_part(rollup, conditions(connection, wanted, rollup), func.sum(rollup.c.open_count))]


def _by_hours(connection: Connection, wanted: Filter) -> list[Part] | None:
    """The open letters between two moments: whole hours are counted already; letters are counted only in
    the hours that a moment falls into, on that side of it where fewer are."""
    since, until = wanted.since, wanted.until
    if since and until and hour_of(since) == hour_of(until):
        return None  # No hour is whole.
    first = _edge(connection, since) if since else None
    last = _edge(connection, until) if until else None
    shared = _shared(connection, wanted)
    known = [group.c.open_count > 0, *group_conditions(connection, group, wanted)]
    if shared:
        known.append(not_(one_of(connection, group.c.fingerprint, shared)))
    hours = _within(trend.c.hour, first, last)
    parts = [_of_groups(trend, [*known, *hours], func.sum(trend.c.open_count))]
    if since and first:
        parts += _between(since, first, known)
    if until and last:
        parts += _between(last, until, known)
    if shared:
        theirs = [in_states(OPEN_STATES), one_of(connection, letter.c.fingerprint, shared)]
        parts.append(_part(letter, [*theirs, *conditions(connection, wanted)]))
    return parts


def _edge(connection: Connection, moment: datetime) -> datetime:
    """The beginning or the end of the hour of ``moment``: until it, fewer letters are to be read."""
    hour = hour_of(moment)
    before = _arrived(connection, hour, moment)
    return hour if before <= _arrived(connection, moment, hour + _HOUR) else hour + _HOUR


def _shared(connection: Connection, wanted: Filter) -> list[str]:
    """Fingerprints that several groups have, as where people make them: these are not told apart by hour."""
    found = [group.c.open_count > 0]
    if wanted.group:
        found.append(begins_with(group.c.fingerprint, wanted.group))
    several = select(group.c.fingerprint).where(*found).group_by(group.c.fingerprint)
    return list(connection.execute(several.having(func.count() > 1)).scalars())


def _between(first: datetime, last: datetime, known: Conditions) -> Iterator[Part]:
    """The open letters between two moments; those to be taken away, if ``last`` is the earlier one."""
    if first != last:
        sign, (since, until) = (1 if first < last else -1), sorted((first, last))
        found = [in_states(OPEN_STATES), *_within(letter.c.last_failed_at, since, until)]
        yield _of_groups(letter, [*known, *found], sign * _EACH)


def _within(
    column: ColumnElement[datetime], first: datetime | None, last: datetime | None
) -> Conditions:
    found: Conditions = [] if first is None else [column >= first]
    return found if last is None else [*found, column < last]


def _without_needless(connection: Connection, wanted: Filter) -> Filter:
    """``wanted``, without reasons to leave out that no letter has: no index has the reason, and groups do not
    know it."""
    if not wanted.without_reasons or wanted.wanted_states - OPEN_STATES:
        return wanted
    left_out = _left_out(connection, wanted)
    return wanted if left_out else replace(wanted, without_reasons=frozenset())


def _apart(connection: Connection, wanted: Filter, narrowed: Filter) -> list[Part]:
    """The letters whose reasons are left out, to be taken away, where these are few and the cells do not know
    ``narrowed``."""
    reasons, others = narrowed.without_reasons, narrowed.given - {"states"} - _CELL_FIELDS
    left_out = _left_out(connection, wanted) if reasons and others else {}
    if not 0 < sum(left_out.values()) <= APART_LIMIT:
        return []
    found = [
        in_states(wanted.wanted_states & OPEN_STATES),
        letter.c.reason.in_(sorted(reasons)),
        # As a rule these have exceptions of their own, which an index knows.
        letter.c.exception_type.in_(sorted(left_out)),
        *conditions(connection, replace(wanted, without_reasons=frozenset())),
    ]
    return [_part(letter, found, -_EACH)]


def _left_out(connection: Connection, wanted: Filter) -> dict[str, int]:
    """Open letters of the tasks and exceptions of ``wanted`` whose reasons it leaves out, by exception."""
    same = [group.c.task == cell.c.task, group.c.exception_type == cell.c.exception_type]
    of_them = select(group.c.task).where(*same, *group_conditions(connection, group, wanted))
    total = func.sum(cell.c.open_count)
    counted = select(cell.c.exception_type, total).where(
        cell.c.reason.in_(sorted(wanted.without_reasons)), of_them.correlate(cell).exists()
    )
    rows = connection.execute(counted.group_by(cell.c.exception_type).having(total > 0))
    return {kind: int(number) for kind, number in rows}


def _are_few_late(connection: Connection, wanted: Filter) -> bool:
    return wanted.until is not None and _arrived(connection, wanted.until) <= LATE_LIMIT


def _arrived(connection: Connection, since: datetime, until: datetime | None = None) -> int:
    """About how many letters died between two moments, to the minute."""
    first = since.replace(second=0, microsecond=0)
    total = func.coalesce(func.sum(arrival.c.count), 0)
    counted = select(total).where(*_within(arrival.c.minute, first, until))
    return int(connection.execute(counted).scalar_one())


def _part(table: Table, found: Conditions, number: ColumnElement[int] = _EACH) -> Part:
    return select(table.c.task, number.label("number")).where(*found).group_by(table.c.task)


def _of_groups(table: Table, found: Conditions, number: ColumnElement[int]) -> Part:
    """By the tasks of the groups: the index of fingerprints knows all else that is asked of a letter."""
    joined = select(group.c.task, number.label("number")).select_from(group)
    joined = joined.join(table, table.c.fingerprint == group.c.fingerprint)
    return joined.where(*found).group_by(group.c.task)


def _added(connection: Connection, parts: Sequence[Part]) -> Counter[str]:
    every = union_all(*parts).subquery()
    total = func.sum(every.c.number)
    added = select(every.c.task, total).group_by(every.c.task).having(total > 0)
    # Sums are decimals on some databases.
    return Counter({task: int(number) for task, number in connection.execute(added)})
