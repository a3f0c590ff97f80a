"""The store in numbers, for people and for monitoring. No query here scans all letters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import Enum
from itertools import pairwise
from typing import Any, TypeVar

from sqlalchemy import Column, ColumnElement, func, select
from sqlalchemy.engine import Connection

from celery_dlq.model.automation import AutoState
from celery_dlq.model.group import hour_of
from celery_dlq.model.handling import LIVE, HandlingState, TicketKind
from celery_dlq.model.operation import OperationState, SendingState
from celery_dlq.model.states import OPEN_STATES, Reason, State
from celery_dlq.model.worker import CircuitState
from celery_dlq.store.base import Cell, Measures, Stats
from celery_dlq.store.candidates import BY_ITSELF, count_held
from celery_dlq.store.database import clock, tables
from celery_dlq.store.database.namespaces import is_ours
from celery_dlq.store.database.tables import arrival, cell, group, handling, letter, sending, trend
from celery_dlq.store.database.transactions import StoreRole, reads
from celery_dlq.store.letters import parked
from celery_dlq.store.rows.query import IS_PARKED, count_rows, in_states, sum_of, sums_by
from celery_dlq.store.rows.rows import read_row

#: Upper bounds, in seconds, of the ages that open letters are counted by.
AGE_BOUNDS: tuple[float, ...] = (60.0, 3_600.0, 86_400.0, 604_800.0, math.inf)

HOURS = 24
_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)

#: The columns of a group. Each letter is counted in one of them.
COUNTS = ("open_count", "resolved_count", "discarded_count")


K = TypeVar("K", bound=Enum)

_ABORTED_AT = select(func.max(tables.operation.c.ended_at)).where(
    tables.operation.c.state == OperationState.ABORTED.value
)
_IS_LIMITED = tables.breaker.c.state != CircuitState.CLOSED.value
# Those that are done are many, and nothing has to be done about them.
_IS_UNDONE = handling.c.state.in_(sorted(one.value for one in LIVE | {HandlingState.FAILED}))
_OPEN = select(group.c.fingerprint).where(group.c.open_count > 0)
_AUTOMATIONS = select(tables.automation.c.name, tables.automation.c.state)


class Monitoring(StoreRole):
    """The store in numbers, from the rollups and from few other rows."""

    @reads
    def stats(self, now: datetime) -> Stats:
        """Depth, arrivals, ages."""
        by_state = _count_states(self.connection)
        depth = sum(by_state[state] for state in OPEN_STATES)
        hours = _last_week(self.connection, now)
        return Stats(
            depth=depth,
            by_state=by_state,
            by_task=_open_by(self.connection, group.c.task),
            by_exception=_open_by(self.connection, group.c.exception_type),
            by_reason={
                Reason(name): number
                for name, number in _open_by(self.connection, cell.c.reason).items()
            },
            arrivals=_arrivals(self.connection, now),
            oldest_open_at=_oldest_open(self.connection),
            ages=_ages(self.connection, now, hours, depth),
            usual=_usual(hours, now),
            held=sum(count_held(self.connection).values()),
        )

    @reads
    def measures(self) -> Measures:
        """The numbers that the metrics of a store show."""
        states = _count_states(self.connection)
        automations = _AUTOMATIONS.where(self.ours(tables.automation))
        return Measures(
            cells=_cells(self.connection),
            open={state: states[state] for state in State if state in OPEN_STATES},
            oldest_open_at=_oldest_open(self.connection),
            parked=states[State.PARKED],
            overdue=parked.count_overdue(self.connection),
            unsent=parked.unsent_by_place(self.connection),
            operations=_by_kind(self.connection, OperationState, tables.operation.c.state),
            aborted_at=self.connection.scalar(_ABORTED_AT.where(self.ours(tables.operation))),
            deaths=count_rows(self.connection, tables.delivery, tables.delivery.c.death != ""),
            circuits=_by_name(
                self.connection, CircuitState, tables.breaker.c.task, tables.breaker.c.state, _IS_LIMITED
            ),
            handlings=_by_name(
                self.connection, HandlingState, handling.c.name, handling.c.state, _IS_UNDONE
            ),
            tickets=_by_kind(
                self.connection, TicketKind, tables.ticket.c.kind, tables.ticket.c.fingerprint.in_(_OPEN)
            ),
            auto_redrives={
                name: AutoState(state) for name, state in self.connection.execute(automations)
            },
            auto_letters=_by_name(
                self.connection, SendingState, handling.c.name, sending.c.state,
                sending.c.operation == handling.c.operation,
                sending.c.task_id == handling.c.task_id,
                BY_ITSELF, handling.c.ended_at > clock.now(self.connection) - _DAY,
            ),
            held=count_held(self.connection),
            routes={
                name: number for name, number in _open_by(self.connection, cell.c.route).items() if name
            },
        )  # fmt: skip


def _count_states(connection: Connection) -> dict[State, int]:
    """How many letters are in each state."""
    sums = [func.coalesce(func.sum(group.c[name]), 0) for name in COUNTS]
    ours = select(*sums).where(is_ours(connection, group))
    opened, resolved, discarded = (int(number) for number in connection.execute(ours).one())
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
        State.PARKED: count_rows(connection, tables.parked, IS_PARKED),
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
    ours = is_ours(connection, letter)
    moments = [connection.scalar(first.where(ours)) for first in firsts]
    return min((at for at in moments if at is not None), default=None)


def _last_week(connection: Connection, now: datetime) -> Sequence[Any]:
    """The whole hours of the last week in which something arrived, from a rollup. Each has the open letters
    that last failed in it, and the letters that arrived in it."""
    summed = select(
        trend.c.hour.label("begin"),
        func.sum(trend.c.open_count).label("open"),
        func.sum(trend.c.count).label("arrived"),
    )
    since = now - timedelta(seconds=AGE_BOUNDS[-2])
    lately = summed.where(is_ours(connection, trend), trend.c.hour > since)
    return connection.execute(lately.group_by(trend.c.hour)).all()


def _usual(hours: Sequence[Any], now: datetime) -> float | None:
    """See :attr:`~celery_dlq.store.base.Stats.usual`."""
    before = [hour for hour in hours if hour.begin < now - _DAY]
    if not before:
        return None
    # A store may be younger than a week.
    first = min(hour.begin for hour in before)
    arrived = int(sum(hour.arrived for hour in before))
    return arrived / float(max(1.0, (now - _DAY - first) / _HOUR))


def _ages(
    connection: Connection, now: datetime, hours: Sequence[Any], total: int
) -> dict[float, int]:
    """Open letters by age. Letters are counted only in the hours that a bound falls into.

    :param hours: the last week.
    :param total: the number of open letters.
    """
    at = letter.c.last_failed_at
    edges = [now - timedelta(seconds=bound) for bound in AGE_BOUNDS[:-1]]
    younger = [
        int(sum(hour.open for hour in hours if hour.begin > edge))
        + count_rows(
            connection, letter, in_states(OPEN_STATES), at > edge, at < hour_of(edge) + _HOUR
        )
        for edge in edges
    ]
    # Letters may have failed again between two of these statements.
    counts = [max(0, more - fewer) for fewer, more in pairwise([0, *younger, total])]
    return dict(zip(AGE_BOUNDS, counts, strict=True))


def _arrivals(connection: Connection, now: datetime) -> tuple[int, ...]:
    """Arrivals by hour, counted back from ``now``, oldest hour first."""
    hours = [0] * HOURS
    lately = [arrival.c.minute > now - timedelta(hours=HOURS)]
    found = sums_by(connection, func.sum(arrival.c.count), arrival.c.minute, where=lately)
    for minute, number in found.items():
        # Failures of a worker whose clock is ahead count for the current hour.
        ago = max(0, (now - minute) // timedelta(hours=1))
        hours[HOURS - 1 - ago] += number
    return tuple(hours)


def _cells(connection: Connection) -> tuple[Cell, ...]:
    names = cell.c.task, cell.c.queue, cell.c.exception_type, cell.c.reason
    added = select(
        *names,
        func.sum(cell.c.open_count).label("open"),
        func.sum(cell.c.arrived_count).label("arrived"),
        func.sum(cell.c.succeeded_count).label("succeeded"),
        func.sum(cell.c.failed_count).label("failed"),
        func.min(cell.c.first_seen_at).label("first_seen_at"),
    ).group_by(*names)
    sums = "open", "arrived", "succeeded", "failed"
    return tuple(
        # Sums are decimals on some databases.
        read_row(Cell, row, **{name: int(row[name]) for name in sums})
        for row in connection.execute(added.where(is_ours(connection, cell))).mappings()
    )


def _by_kind(
    connection: Connection, kind: type[K], column: Column[str], *where: ColumnElement[bool]
) -> dict[K, int]:
    """How many rows have each value of ``column``."""
    found = sums_by(connection, func.count(), column, where=where)
    return {one: found.get(one.value, 0) for one in kind}


def _by_name(
    connection: Connection,
    kind: type[K],
    name: Column[str],
    column: Column[str],
    *where: ColumnElement[bool],
) -> dict[tuple[str, K], int]:
    """How many rows have each name and value of ``column``."""
    found = sums_by(connection, func.count(), name, column, where=where)
    return {(one, kind(value)): number for (one, value), number in found.items()}
