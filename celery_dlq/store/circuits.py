"""The rows of ``celery_dlq_breaker``: circuits, changed by one worker at a time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, insert, or_, select, update
from sqlalchemy.engine import Connection

from celery_dlq.circuit import Circuit, CircuitChange, Circuits, CircuitState
from celery_dlq.store import clock, tables
from celery_dlq.store.rows import Row, fit

breaker = tables.breaker

#: Circuits that are read at once; a worker takes what is beyond for closed.
MOST = 1_000


def read_open(connection: Connection) -> Circuits:
    """The circuits that are not closed, the latest first."""
    wanted = (
        select(breaker)
        .where(breaker.c.state != CircuitState.CLOSED.value)
        .order_by(breaker.c.opened_at.desc())
        .limit(MOST)
    )
    rows = connection.execute(wanted).mappings().all()
    return Circuits(now=clock.now(connection), circuits=tuple(map(_circuit, rows)))


def change(
    connection: Connection, changes: Mapping[tuple[str, str], CircuitChange]
) -> tuple[Circuit, ...]:
    """Apply ``changes`` (by task and key); returns the circuits as they are then. None of them can be
    changed by anybody else meanwhile."""
    now = clock.now(connection)
    stored = _locked(connection, list(changes))
    changed = []
    for (task, key), apply in sorted(changes.items(), key=lambda item: item[0]):
        row_key = _row_key(task, key)
        before = stored.get(row_key)
        known = Circuit(task=task, key=key) if before is None else before
        after = apply(replace(known, task=task, key=key), now)
        _write(connection, row_key, after, now, is_new=before is None)
        changed.append(after)
    return tuple(changed)


def prune(connection: Connection, older_than_s: float) -> int:
    """Forget the circuits that nothing happened to for so long; returns how many."""
    before = clock.now(connection) - timedelta(seconds=older_than_s)
    return connection.execute(delete(breaker).where(breaker.c.changed_at < before)).rowcount


def _locked(connection: Connection, names: list[tuple[str, str]]) -> dict[tuple[str, str], Circuit]:
    if not names:
        return {}
    these = [_is(_row_key(task, key)) for task, key in names]
    # In one order, so that two workers wait for each other instead of locking each other out.
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
        # Of two that do this at once the second is refused, and its transaction begun again.
        connection.execute(insert(breaker).values(task=row_key[0], key=row_key[1], **values))
    else:
        connection.execute(update(breaker).where(_is(row_key)).values(values))


def _row_key(task: str, key: str) -> tuple[str, str]:
    fitted = fit(breaker, {"task": task, "key": key})
    return fitted["task"], fitted["key"]


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
