"""The rows of ``celery_dlq_breaker``: circuits, changed by one worker at a time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, insert, or_, select, update
from sqlalchemy.engine import Connection

from celery_dlq.model.circuit import Circuit, CircuitChange, Circuits, CircuitState
from celery_dlq.store.database import clock, tables
from celery_dlq.store.database.transactions import StoreRole, reads, writes
from celery_dlq.store.rows.rows import Row, fit_text

breaker = tables.breaker

#: Circuits that are read at once; a worker treats all others as closed.
MOST = 1_000


class StoredCircuits(StoreRole):
    """The circuits of all tasks, as workers share them."""

    @reads
    def read_open(self, connection: Connection) -> Circuits:
        """The circuits that are not closed: the latest :data:`MOST`, the latest first."""
        wanted = (
            select(breaker)
            .where(breaker.c.state != CircuitState.CLOSED.value)
            .order_by(breaker.c.opened_at.desc())
            .limit(MOST)
        )
        rows = connection.execute(wanted).mappings().all()
        return Circuits(now=clock.now(connection), circuits=tuple(map(_circuit, rows)))

    @writes
    def change(
        self, connection: Connection, changes: Mapping[tuple[str, str], CircuitChange]
    ) -> tuple[Circuit, ...]:
        """Apply ``changes``, by task and key, and return the changed circuits. No other worker can change
        them at the same time. A change may be applied more than once before it is stored."""
        stored = _locked(connection, list(changes))
        # Not earlier: while this waited for the rows, others may have counted failures, and a failure that is
        # later than now is not counted.
        now = clock.now(connection)
        changed = []
        for (task, key), apply in sorted(changes.items(), key=lambda item: item[0]):
            row_key = _row_key(task, key)
            before = stored.get(row_key)
            known = Circuit(task=task, key=key) if before is None else before
            after = apply(replace(known, task=task, key=key), now)
            _write(connection, row_key, after, now, is_new=before is None)
            changed.append(after)
        return tuple(changed)

    @writes
    def prune(self, connection: Connection, *, older_than_s: float) -> int:
        """Delete the circuits that have not changed for this many seconds; returns how many."""
        before = clock.now(connection) - timedelta(seconds=older_than_s)
        return connection.execute(delete(breaker).where(breaker.c.changed_at < before)).rowcount


def _locked(connection: Connection, names: list[tuple[str, str]]) -> dict[tuple[str, str], Circuit]:
    if not names:
        return {}
    these = [_is(_row_key(task, key)) for task, key in names]
    # Always in the same order, so that two workers cannot deadlock.
    wanted = select(breaker).where(or_(*these)).order_by(breaker.c.task, breaker.c.key)
    rows = connection.execute(wanted.with_for_update()).mappings()
    return {(row["task"], row["key"]): _circuit(row) for row in rows}


def _write(
    connection: Connection,
    row_key: tuple[str, str],
    circuit: Circuit,
    now: datetime,
    *,
    is_new: bool,
) -> None:
    values = _values(circuit, now)
    if is_new:
        # If two workers do this at the same time, the second insert is refused, and its transaction begins
        # again.
        connection.execute(insert(breaker).values(task=row_key[0], key=row_key[1], **values))
    else:
        connection.execute(update(breaker).where(_is(row_key)).values(values))


def _row_key(task: str, key: str) -> tuple[str, str]:
    return fit_text(breaker.c.task, task), fit_text(breaker.c.key, key)


def _is(row_key: tuple[str, str]) -> ColumnElement[bool]:
    return and_(breaker.c.task == row_key[0], breaker.c.key == row_key[1])


def _values(circuit: Circuit, now: datetime) -> dict[str, Any]:
    return {
        **{name: getattr(circuit, name) for name in _SAME_NAME},
        "state": circuit.state.value,
        "recent": json.dumps(circuit.recent),
        "changed_at": now,
    }


def _circuit(row: Row) -> Circuit:
    recent = tuple((float(since), int(count)) for since, count in json.loads(row["recent"]))
    return Circuit(
        task=row["task"],
        key=row["key"],
        state=CircuitState(row["state"]),
        recent=recent,
        **{name: row[name] for name in _SAME_NAME},
    )


#: Fields of a circuit that are columns of the same name and type.
_SAME_NAME = ("failures", "opened_at", "probes", "probe_at", "probe", "probe_until")
