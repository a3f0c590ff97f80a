"""Reading the rollups: groups by cause, and the store at a glance."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import fields
from datetime import datetime, timedelta

from sqlalchemy import Column, case, func, select, text
from sqlalchemy.engine import Connection

from celery_dlq.errors import FilterError
from celery_dlq.states import OPEN_STATES, Reason, State
from celery_dlq.store import tables
from celery_dlq.store.base import Filter, Group, Stats
from celery_dlq.store.query import GROUP_FIELDS, group_conditions, in_states

letter, group, arrival = tables.letter, tables.group, tables.arrival

#: Upper bounds, in seconds, of the ages that open letters are counted by.
AGE_BOUNDS: tuple[float, ...] = (60.0, 3_600.0, 86_400.0, 604_800.0, math.inf)

HOURS = 24

#: The columns of a group that every letter is counted in one of.
COUNTS = ("open_count", "resolved_count", "discarded_count")


def find_groups(connection: Connection, wanted: Filter, limit: int) -> list[Group]:
    """Groups with open letters, most open letters first."""
    _refuse_others(wanted)
    found = [group.c.open_count > 0, *group_conditions(connection, group, wanted)]
    if wanted.since:
        found.append(group.c.last_seen_at >= wanted.since)
    if wanted.until:
        found.append(group.c.last_seen_at < wanted.until)
    columns = [group.c[item.name] for item in fields(Group)]
    largest = group.c.open_count.desc(), group.c.last_seen_at.desc(), *group.primary_key.columns
    chosen = select(*columns).where(*found).order_by(*largest).limit(limit)
    return [Group(**row) for row in connection.execute(chosen).mappings()]


def read_stats(connection: Connection, now: datetime) -> Stats:
    """Depth, arrivals, ages."""
    by_state = _by_state(connection)
    oldest = [_oldest(connection, state) for state in OPEN_STATES]
    return Stats(
        depth=sum(by_state[state] for state in OPEN_STATES),
        by_state=by_state,
        by_task=_open_by(connection, group.c.task),
        by_exception=_open_by(connection, group.c.exception_type),
        by_reason=_by_reason(connection),
        arrivals=_arrivals(connection, now),
        oldest_open_at=min((at for at in oldest if at is not None), default=None),
        ages=_ages(connection, now),
    )


def _refuse_others(wanted: Filter) -> None:
    given = {item.name for item in fields(wanted) if getattr(wanted, item.name)}
    others = sorted(given - GROUP_FIELDS - {"since", "until"})
    if others:
        raise FilterError(
            f"Groups are not kept by {' or '.join(others)}; narrow them by task, exception, group, "
            "since or until, or use: celery -A <app> dlq list"
        )


def _by_state(connection: Connection) -> dict[State, int]:
    sums = [func.coalesce(func.sum(group.c[name]), 0) for name in COUNTS]
    opened, resolved, discarded = (
        int(number) for number in connection.execute(select(*sums)).one()
    )
    # Few letters are on their way at a time; the many that wait are what is left.
    moving = dict(_counted(connection, letter.c.state, [State.CLAIMED, State.REDRIVEN]))
    claimed, redriven = (moving.get(state.value, 0) for state in (State.CLAIMED, State.REDRIVEN))
    return {
        State.DEAD: opened - claimed - redriven,
        State.CLAIMED: claimed,
        State.REDRIVEN: redriven,
        State.RESOLVED: resolved,
        State.DISCARDED: discarded,
    }


def _open_by(connection: Connection, column: Column[str]) -> dict[str, int]:
    total = func.sum(group.c.open_count)
    counted = select(column, total).where(group.c.open_count > 0).group_by(column)
    rows = connection.execute(counted.order_by(total.desc(), column))
    return {name: int(number) for name, number in rows}


def _by_reason(connection: Connection) -> dict[Reason, int]:
    rows = _counted(connection, letter.c.reason, OPEN_STATES)
    return {Reason(name): number for name, number in sorted(rows, key=lambda row: -row[1])}


def _counted(
    connection: Connection, column: Column[str], states: Iterable[State]
) -> list[tuple[str, int]]:
    counted = select(column, func.count()).where(in_states(states)).group_by(column)
    return [(name, number) for name, number in connection.execute(counted)]


def _oldest(connection: Connection, state: State) -> datetime | None:
    first = select(func.min(letter.c.last_failed_at)).where(in_states([state]))
    oldest: datetime | None = connection.execute(first).scalar_one()
    return oldest


def _ages(connection: Connection, now: datetime) -> dict[float, int]:
    younger = [
        (letter.c.last_failed_at > now - timedelta(seconds=bound), bound)
        for bound in AGE_BOUNDS[:-1]
    ]
    # No number of SQL is infinite everywhere.
    age = case(*younger, else_=-1.0).label("age")
    counted = select(age, func.count()).where(in_states(OPEN_STATES)).group_by(text("age"))
    found = {float(bound): int(number) for bound, number in connection.execute(counted)}
    ages = {bound: found.get(bound, 0) for bound in AGE_BOUNDS[:-1]}
    return {**ages, math.inf: found.get(-1.0, 0)}


def _arrivals(connection: Connection, now: datetime) -> tuple[int, ...]:
    """Arrivals by hour, counted back from ``now``, oldest hour first."""
    hours = [0] * HOURS
    per_minute = (
        select(arrival.c.minute, func.sum(arrival.c.count))
        .where(arrival.c.minute > now - timedelta(hours=HOURS))
        .group_by(arrival.c.minute)
    )
    for minute, number in connection.execute(per_minute):
        # A worker whose clock is ahead belongs to the hour that is passing.
        ago = max(0, (now - minute) // timedelta(hours=1))
        hours[HOURS - 1 - ago] += int(number)
    return tuple(hours)
