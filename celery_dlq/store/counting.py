"""How many letters a filter finds: taken from the rollups where these know, counted one by one otherwise.

A million letters of one task take seconds to count, and whoever is to confirm an act on them waits.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from sqlalchemy import ColumnElement, Table, func, select
from sqlalchemy.engine import Connection

from celery_dlq.states import OPEN_STATES, State
from celery_dlq.store import tables
from celery_dlq.store.base import Filter
from celery_dlq.store.query import (
    GROUP_FIELDS,
    Conditions,
    conditions,
    group_conditions,
    in_states,
    is_parked,
    places,
)

letter, group, cell, arrival = tables.letter, tables.group, tables.count, tables.arrival

#: The fields of a filter that the cells can answer, too.
_CELL_FIELDS = frozenset({"task", "exception", "queue", "reason", "without_reasons"})

#: Fields that the rollups do not know, and that take away few letters as a rule.
_TAKING_FEW = frozenset({"states", "until"})

#: Letters that have arrived since ``until`` and are counted one by one. An act is about those that were
#: there when it was asked for; in the meantime few come.
LATE_LIMIT = 5_000


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
        totals = Counter()
        for table, found in places(connection, wanted):
            totals += _tasks(connection, table, found)
    return dict(sorted(totals.items(), key=lambda item: (-item[1], item[0])))


def _by_rollups(connection: Connection, wanted: Filter) -> Counter[str] | None:
    """The letters by task; None where the rollups do not know, or not at less cost."""
    states = wanted.wanted_states
    others = OPEN_STATES - states
    if State.DEAD in others or states - OPEN_STATES - {State.PARKED}:
        return None
    rollup = _rollup_for(wanted)
    if rollup is None or _has_many_late(connection, wanted):
        return None
    narrowed = replace(wanted, until=None)
    opened = func.sum(rollup.c.open_count)
    known = _added(connection, rollup, opened, conditions(connection, narrowed, rollup))
    if others:
        known -= _tasks(connection, letter, [in_states(others), *conditions(connection, narrowed)])
    if wanted.until:
        late = [in_states(states & OPEN_STATES), letter.c.last_failed_at >= wanted.until]
        known -= _tasks(connection, letter, [*late, *conditions(connection, narrowed)])
    if State.PARKED in states:
        waiting = conditions(connection, wanted, tables.parked)
        known += _tasks(connection, tables.parked, [is_parked(), *waiting])
    return known


def _rollup_for(wanted: Filter) -> Table | None:
    asked = wanted.given - _TAKING_FEW
    if not asked - _CELL_FIELDS:
        return cell
    return None if asked - GROUP_FIELDS else group


def _without_needless(connection: Connection, wanted: Filter) -> Filter:
    """``wanted``, without reasons to leave out that no letter has: no index has the reason, and groups do not
    know it."""
    if not wanted.without_reasons or wanted.wanted_states - OPEN_STATES:
        return wanted
    tasks = select(group.c.task).where(*group_conditions(connection, group, wanted))
    first = select(cell.c.id).where(
        cell.c.reason.in_(sorted(wanted.without_reasons)),
        cell.c.open_count > 0,
        cell.c.task.in_(tasks),
    )
    if connection.execute(first.limit(1)).first() is not None:
        return wanted
    return replace(wanted, without_reasons=frozenset())


def _has_many_late(connection: Connection, wanted: Filter) -> bool:
    if wanted.until is None:
        return False
    late = select(func.coalesce(func.sum(arrival.c.count), 0)).where(
        arrival.c.minute >= wanted.until.replace(second=0, microsecond=0)
    )
    return int(connection.execute(late).scalar_one()) > LATE_LIMIT


def _tasks(connection: Connection, table: Table, found: Conditions) -> Counter[str]:
    return _added(connection, table, func.count(), found)


def _added(
    connection: Connection, table: Table, number: ColumnElement[int], found: Conditions
) -> Counter[str]:
    totals = select(table.c.task, number).where(*found).group_by(table.c.task)
    # Sums are decimals on some databases.
    return Counter({task: int(total) for task, total in connection.execute(totals)})
