"""The store in numbers, for people and for monitoring. No query here scans all letters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from sqlalchemy import Column, func, select
from sqlalchemy.engine import Connection

from celery_dlq.model.automation import AutoState
from celery_dlq.model.group import hour_of
from celery_dlq.model.handling import LIVE, HandlingState, TicketKind
from celery_dlq.model.operation import OperationState, SendingState
from celery_dlq.model.states import OPEN_STATES, Reason, State
from celery_dlq.model.worker import CircuitState
from celery_dlq.store.base import PARKED_OVERDUE_S, Cell, Measures, Stats
from celery_dlq.store.candidates import BY_ITSELF, count_held
from celery_dlq.store.database import clock, tables
from celery_dlq.store.database.tables import arrival, count, group, letter, operation, trend
from celery_dlq.store.database.transactions import StoreRole, reads
from celery_dlq.store.letters import parked
from celery_dlq.store.rows.query import count_rows, in_states, is_parked, sum_of, sums_by
from celery_dlq.store.rows.rows import Row, read_row

#: Upper bounds, in seconds, of the ages that open letters are counted by.
AGE_BOUNDS: tuple[float, ...] = (60.0, 3_600.0, 86_400.0, 604_800.0, math.inf)

HOURS = 24
_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)

#: The columns of a group. Each letter is counted in one of them.
COUNTS = ("open_count", "resolved_count", "discarded_count")


class Monitoring(StoreRole):
    """The store in numbers, from the rollups and from few other rows."""

    @reads
    def stats(self, connection: Connection, now: datetime) -> Stats:
        """Depth, arrivals, ages."""
        by_state = _count_states(connection)
        depth = sum(by_state[state] for state in OPEN_STATES)
        hours = _last_week(connection, now)
        return Stats(
            depth=depth,
            by_state=by_state,
            by_task=_open_by(connection, group.c.task),
            by_exception=_open_by(connection, group.c.exception_type),
            by_reason={
                Reason(name): number
                for name, number in _open_by(connection, count.c.reason).items()
            },
            arrivals=_arrivals(connection, now),
            oldest_open_at=_oldest_open(connection),
            ages=_ages(connection, now, hours, depth),
            usual=_usual(hours, now),
            held=sum(count_held(connection).values()),
        )

    @reads
    def measures(self, connection: Connection) -> Measures:
        """The numbers that the metrics of a store show."""
        states = _count_states(connection)
        return Measures(
            cells=_cells(connection),
            open={state: states[state] for state in State if state in OPEN_STATES},
            oldest_open_at=_oldest_open(connection),
            parked=states[State.PARKED],
            overdue=parked.count_overdue(connection, PARKED_OVERDUE_S),
            operations=_operations(connection),
            aborted_at=_aborted_at(connection),
            deaths=count_rows(connection, tables.delivery, tables.delivery.c.death != ""),
            circuits=_circuits(connection),
            handlings=_handlings(connection),
            tickets=_tickets(connection),
            auto_redrives=_auto_redrives(connection),
            auto_letters=_auto_letters(connection),
            held=count_held(connection),
            routes={
                name: number for name, number in _open_by(connection, count.c.route).items() if name
            },
        )


def _count_states(connection: Connection) -> dict[State, int]:
    """How many letters are in each state."""
    sums = [func.coalesce(func.sum(group.c[name]), 0) for name in COUNTS]
    opened, resolved, discarded = (
        int(number) for number in connection.execute(select(*sums)).one()
    )
    # Few letters are on their way at a time, so these are counted. The many dead ones are the rest.
    moving = count_rows(connection, letter, in_states([State.CLAIMED, State.REDRIVEN]))
    # Letters in claims. It includes a few whose outcome came before their claim ended: to find these, all
    # redriven letters would have to be read.
    claimed = min(moving, sum_of(connection, tables.claim.c.letters))
    return {
        State.DEAD: opened - moving,
        State.CLAIMED: claimed,
        State.REDRIVEN: moving - claimed,
        State.RESOLVED: resolved,
        State.DISCARDED: discarded,
        State.PARKED: count_rows(connection, tables.parked, is_parked()),
    }


def _open_by(connection: Connection, column: Column[str]) -> dict[str, int]:
    open_count = column.table.c.open_count
    found = sums_by(connection, func.sum(open_count), column, where=[open_count > 0])
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _oldest_open(connection: Connection) -> datetime | None:
    """The time of the oldest failure among the open letters."""
    # A query for each stored state, because the index is in the order of time only within one state.
    firsts = [
        select(func.min(letter.c.last_failed_at)).where(letter.c.state == state.value)
        for state in (State.DEAD, State.REDRIVEN)
    ]
    moments = [connection.execute(first).scalar_one() for first in firsts]
    return min((at for at in moments if at is not None), default=None)


@dataclass(frozen=True)
class _Hour:
    """The letters that last failed in an hour and are open, and those that arrived in it."""

    begin: datetime
    open: int
    arrived: int


def _last_week(connection: Connection, now: datetime) -> list[_Hour]:
    """The whole hours of the last week in which something arrived, from a rollup."""
    summed = select(trend.c.hour, func.sum(trend.c.open_count), func.sum(trend.c.count))
    since = now - timedelta(seconds=AGE_BOUNDS[-2])
    rows = connection.execute(summed.where(trend.c.hour > since).group_by(trend.c.hour))
    return [_Hour(begin, int(opened), int(arrived)) for begin, opened, arrived in rows]


def _usual(hours: Sequence[_Hour], now: datetime) -> float | None:
    """See :attr:`~celery_dlq.store.base.Stats.usual`."""
    before = [hour for hour in hours if hour.begin < now - _DAY]
    if not before:
        return None
    # A store may be younger than a week.
    first = min(hour.begin for hour in before)
    return sum(hour.arrived for hour in before) / max(1.0, (now - _DAY - first) / _HOUR)


def _ages(
    connection: Connection, now: datetime, hours: Sequence[_Hour], total: int
) -> dict[float, int]:
    """Open letters by age. Letters are counted only in the hours that a bound falls into.

    :param hours: the last week.
    :param total: the number of open letters.
    """
    edges = [now - timedelta(seconds=bound) for bound in AGE_BOUNDS[:-1]]
    younger = [
        sum(hour.open for hour in hours if hour.begin > edge)
        + _failed_between(connection, edge, hour_of(edge) + _HOUR)
        for edge in edges
    ]
    # Letters may have failed again between two of these statements.
    counts = [max(0, more - fewer) for fewer, more in pairwise([0, *younger, total])]
    return dict(zip(AGE_BOUNDS, counts, strict=True))


def _failed_between(connection: Connection, after: datetime, until: datetime) -> int:
    at = letter.c.last_failed_at
    return count_rows(connection, letter, in_states(OPEN_STATES), at > after, at < until)


def _arrivals(connection: Connection, now: datetime) -> tuple[int, ...]:
    """Arrivals by hour, counted back from ``now``, oldest hour first."""
    hours = [0] * HOURS
    per_minute = (
        select(arrival.c.minute, func.sum(arrival.c.count))
        .where(arrival.c.minute > now - timedelta(hours=HOURS))
        .group_by(arrival.c.minute)
    )
    for minute, number in connection.execute(per_minute):
        # Failures of a worker whose clock is ahead count for the current hour.
        ago = max(0, (now - minute) // timedelta(hours=1))
        hours[HOURS - 1 - ago] += int(number)
    return tuple(hours)


def _cells(connection: Connection) -> tuple[Cell, ...]:
    names = count.c.task, count.c.queue, count.c.exception_type, count.c.reason
    added = select(
        *names,
        func.sum(count.c.open_count).label("open"),
        func.sum(count.c.arrived_count).label("arrived"),
        func.sum(count.c.succeeded_count).label("succeeded"),
        func.sum(count.c.failed_count).label("failed"),
        func.min(count.c.first_seen_at).label("first_seen_at"),
    ).group_by(*names)
    return tuple(_cell(row) for row in connection.execute(added).mappings())


def _cell(row: Row) -> Cell:
    # Sums are decimals on some databases.
    numbers = {name: int(row[name]) for name in ("open", "arrived", "succeeded", "failed")}
    return read_row(Cell, row, **numbers)


def _operations(connection: Connection) -> dict[OperationState, int]:
    found = sums_by(connection, func.count(), operation.c.state, where=[])
    return {state: found.get(state.value, 0) for state in OperationState}


def _aborted_at(connection: Connection) -> datetime | None:
    last = select(func.max(operation.c.ended_at)).where(
        operation.c.state == OperationState.ABORTED.value
    )
    moment: datetime | None = connection.execute(last).scalar_one()
    return moment


def _circuits(connection: Connection) -> dict[tuple[str, CircuitState], int]:
    state = tables.breaker.c.state
    where = [state != CircuitState.CLOSED.value]
    found = sums_by(connection, func.count(), tables.breaker.c.task, state, where=where)
    return {(task, CircuitState(name)): number for (task, name), number in found.items()}


def _handlings(connection: Connection) -> dict[tuple[str, HandlingState], int]:
    state = tables.handling.c.state
    # Those that are done are many, and nothing has to be done about them.
    where = [state.in_(sorted(one.value for one in LIVE | {HandlingState.FAILED}))]
    found = sums_by(connection, func.count(), tables.handling.c.name, state, where=where)
    return {(handler, HandlingState(name)): number for (handler, name), number in found.items()}


def _tickets(connection: Connection) -> dict[TicketKind, int]:
    is_open = select(group.c.fingerprint).where(group.c.open_count > 0)
    where = [tables.ticket.c.fingerprint.in_(is_open)]
    found = sums_by(connection, func.count(), tables.ticket.c.kind, where=where)
    return {kind: found.get(kind.value, 0) for kind in TicketKind}


def _auto_redrives(connection: Connection) -> dict[str, AutoState]:
    states = select(tables.automation.c.name, tables.automation.c.state)
    return {name: AutoState(state) for name, state in connection.execute(states)}


def _auto_letters(connection: Connection) -> dict[tuple[str, SendingState], int]:
    handling, sending = tables.handling, tables.sending
    same = sending.c.operation == handling.c.operation, sending.c.task_id == handling.c.task_id
    where = [*same, BY_ITSELF, handling.c.ended_at > clock.now(connection) - _DAY]
    found = sums_by(connection, func.count(), handling.c.name, sending.c.state, where=where)
    return {(name, SendingState(state)): number for (name, state), number in found.items()}
