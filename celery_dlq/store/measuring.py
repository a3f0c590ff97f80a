"""Reads what monitoring is told, never by a scan of letters."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.engine import Connection

from celery_dlq.circuit import CircuitState
from celery_dlq.errors import FilterError
from celery_dlq.operation import OperationState
from celery_dlq.states import OPEN_STATES, Reason, State
from celery_dlq.store import parked, tables
from celery_dlq.store.base import Filter
from celery_dlq.store.measures import Cell, Measures
from celery_dlq.store.query import group_conditions, places
from celery_dlq.store.rollups import count_states, oldest_open
from celery_dlq.store.rows import Row

count, arrival, operation = tables.count, tables.arrival, tables.operation

#: Seconds after which a parked retry that is not released counts as overdue. Releases are looked for
#: every few seconds.
OVERDUE_S = 300.0

#: What arrivals are kept by.
_ARRIVAL_FIELDS = frozenset({"task", "exception"})


def measure(connection: Connection) -> Measures:
    """The store in numbers."""
    states = count_states(connection)
    return Measures(
        cells=_cells(connection),
        open={state: states[state] for state in State if state in OPEN_STATES},
        oldest_open_at=oldest_open(connection),
        parked=states[State.PARKED],
        overdue=parked.overdue(connection, OVERDUE_S),
        operations=_operations(connection),
        aborted_at=_aborted_at(connection),
        deaths=_deaths(connection),
        circuits=_circuits(connection),
    )


def oldest(connection: Connection, wanted: Filter) -> datetime | None:
    """When the letter of ``wanted`` failed that waits longest."""
    moments = []
    for state in sorted(wanted.wanted_states):
        # One state at a time, in which the index is in the order of time.
        for table, found in places(connection, wanted.only(state)):
            first = select(func.min(table.c.last_failed_at)).where(*found)
            moments.append(connection.execute(first).scalar_one())
    return min((at for at in moments if at is not None), default=None)


def count_arrivals(connection: Connection, wanted: Filter, since: datetime, until: datetime) -> int:
    """How many letters died in the minutes from ``since`` until ``until``.

    :raises FilterError: arrivals are not kept by what ``wanted`` says.
    """
    others = sorted(wanted.given - _ARRIVAL_FIELDS)
    if others:
        raise FilterError(
            f"Arrivals are not kept by {' or '.join(others)}; narrow them by task or exception."
        )
    known = group_conditions(connection, arrival, wanted)
    total = select(func.coalesce(func.sum(arrival.c.count), 0)).where(
        arrival.c.minute >= since, arrival.c.minute < until, *known
    )
    return int(connection.execute(total).scalar_one())


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
    return Cell(**{**row, **numbers, "reason": Reason(row["reason"])})


def _operations(connection: Connection) -> dict[OperationState, int]:
    counted = select(operation.c.state, func.count()).group_by(operation.c.state)
    found = {state: int(number) for state, number in connection.execute(counted)}
    return {state: found.get(state.value, 0) for state in OperationState}


def _aborted_at(connection: Connection) -> datetime | None:
    last = select(func.max(operation.c.ended_at)).where(
        operation.c.state == OperationState.ABORTED.value
    )
    moment: datetime | None = connection.execute(last).scalar_one()
    return moment


def _deaths(connection: Connection) -> int:
    delivery = tables.delivery
    died = select(func.count()).select_from(delivery).where(delivery.c.death != "")
    return int(connection.execute(died).scalar_one())


def _circuits(connection: Connection) -> dict[tuple[str, CircuitState], int]:
    breaker = tables.breaker
    counted = (
        select(breaker.c.task, breaker.c.state, func.count())
        .where(breaker.c.state != CircuitState.CLOSED.value)
        .group_by(breaker.c.task, breaker.c.state)
    )
    return {
        (task, CircuitState(state)): int(number)
        for task, state, number in connection.execute(counted)
    }
