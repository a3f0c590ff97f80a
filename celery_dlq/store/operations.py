"""Operations: written down, read with their counts, and moved from state to state."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Select, func, insert, literal, select, update
from sqlalchemy.engine import Connection

from celery_dlq.codec import dump_json
from celery_dlq.errors import OperationError, UnknownOperation
from celery_dlq.operation import ENDED, MOVES, Counts, OperationState, Orders, SendingState
from celery_dlq.store import audit, tables
from celery_dlq.store.base import Filter, Home, Operation
from celery_dlq.store.columns import Moment
from celery_dlq.store.query import begins_with, one_of
from celery_dlq.store.rows import Row, fit

operation, sending, claim = tables.operation, tables.sending, tables.claim

#: The moves that a person makes, or hears of, by what the audit calls them.
_ACTS: Mapping[OperationState, str] = {
    OperationState.PAUSED: "pause",
    OperationState.CANCELLED: "cancel",
    OperationState.ABORTED: "abort",
}

_SAME_NAME = (
    "id", "cause", "who", "host", "detached", "created_at", "started_at", "ended_at",
)  # fmt: skip


def create(connection: Connection, new: Operation) -> None:
    """Write ``new`` down, and who gave the orders."""
    if read(connection, new.id) is not None:
        return
    connection.execute(insert(operation).values(_values(new)))
    audit.write_audit(
        connection, who=new.who, act="redrive", count=new.counts.planned,
        detail={"operation": new.id, **audit.by_filter(new.wanted)}, at=new.created_at,
    )  # fmt: skip


def read(connection: Connection, operation_id: str) -> Operation | None:
    """The operation with its counts, or None."""
    stored = select(operation).where(operation.c.id == operation_id)
    row = connection.execute(stored).mappings().one_or_none()
    return None if row is None else _counted(connection, [row])[0]


def match_ids(connection: Connection, prefix: str, limit: int) -> list[str]:
    """Ids that begin with ``prefix``, in their order."""
    matching = select(operation.c.id).where(begins_with(operation.c.id, prefix))
    return list(connection.execute(matching.order_by(operation.c.id).limit(limit)).scalars())


def find(connection: Connection, states: Iterable[OperationState], limit: int) -> list[Operation]:
    """Operations in one of ``states`` (none: in any), newest first."""
    newest = select(operation).order_by(operation.c.created_at.desc(), operation.c.id).limit(limit)
    named = sorted(state.value for state in states)
    if named:
        newest = newest.where(operation.c.state.in_(named))
    return _counted(connection, connection.execute(newest).mappings().all())


def move(
    connection: Connection,
    operation_id: str,
    to: OperationState,
    *,
    who: str,
    cause: str,
    now: datetime,
) -> Operation:
    """Move it to another state, if it is not there already."""
    stored = select(operation.c.state).where(operation.c.id == operation_id).with_for_update()
    state = connection.execute(stored).scalar_one_or_none()
    if state is None:
        raise UnknownOperation
    source = OperationState(state)
    if source is not to:
        _check(operation_id, source, to)
        values = _values_in(to, cause, now)
        connection.execute(update(operation).where(operation.c.id == operation_id).values(values))
    found = read(connection, operation_id)
    assert found is not None, "its row is locked"  # noqa: S101
    if source is not to:
        _note(connection, found, source, who, cause, now)
    return found


def _check(operation_id: str, source: OperationState, to: OperationState) -> None:
    if to not in MOVES[source]:
        raise OperationError(
            f"Operation {operation_id} is {source.value} and cannot become {to.value}; "
            f"see: celery -A <app> dlq operations show {operation_id}"
        )


def _values_in(to: OperationState, cause: str, now: datetime) -> dict[str, Any]:
    values: dict[str, Any] = {"state": to.value, **fit(operation, {"cause": cause})}
    if to is OperationState.RUNNING:
        values["started_at"] = func.coalesce(operation.c.started_at, literal(now, Moment()))
    if to in ENDED:
        values["ended_at"] = now
    return values


def _note(
    connection: Connection,
    moved: Operation,
    source: OperationState,
    who: str,
    cause: str,
    now: datetime,
) -> None:
    resumed = source is OperationState.PAUSED and moved.state is OperationState.RUNNING
    act = "resume" if resumed else _ACTS.get(moved.state)
    if act is not None:
        audit.write_audit(
            connection, who=who, act=act, count=moved.counts.left, why=cause,
            detail={"operation": moved.id}, at=now,
        )  # fmt: skip


def _values(new: Operation) -> dict[str, Any]:
    plain = {name: getattr(new, name) for name in _SAME_NAME}
    return {
        **fit(operation, {**plain, "app": new.home.app, "broker": new.home.broker}),
        "state": new.state.value,
        "planned": new.counts.planned,
        "wanted": dump_json(new.wanted.to_dict()),
        "orders": dump_json(new.orders.to_dict()),
    }


def _counted(connection: Connection, rows: Sequence[Row]) -> list[Operation]:
    counts: dict[str, dict[str, int]] = {row["id"]: {} for row in rows}
    by_state = (
        select(sending.c.operation, sending.c.state, func.count())
        .where(one_of(connection, sending.c.operation, sorted(counts)))
        # The index begins with it.
        .where(sending.c.state.in_([state.value for state in SendingState]))
        .group_by(sending.c.operation, sending.c.state)
    )
    if rows:
        for operation_id, state, number in connection.execute(by_state):
            counts[operation_id][state] = int(number)
        for operation_id, number in connection.execute(_held(connection, sorted(counts))):
            _hold(counts[operation_id], int(number))
    return [_operation_from(row, counts[row["id"]]) for row in rows]


def _held(connection: Connection, operation_ids: Sequence[str]) -> Select[Any]:
    """How many letters their claims hold."""
    return (
        select(claim.c.operation, func.sum(claim.c.letters))
        .where(one_of(connection, claim.c.operation, operation_ids))
        .group_by(claim.c.operation)
    )


def _hold(counts: dict[str, int], held: int) -> None:
    """``held`` of those that are written as sent are only being sent."""
    sending_, sent = SendingState.SENDING.value, SendingState.SENT.value
    counts[sending_] = counts.get(sending_, 0) + held
    counts[sent] = max(0, counts.get(sent, 0) - held)


def _operation_from(row: Row, counts: Mapping[str, int]) -> Operation:
    return Operation(
        **{name: row[name] for name in _SAME_NAME},
        home=Home(app=row["app"], broker=row["broker"]),
        wanted=Filter.from_dict(json.loads(row["wanted"])),
        orders=Orders.from_dict(json.loads(row["orders"])),
        state=OperationState(row["state"]),
        counts=Counts(planned=row["planned"], **counts),
    )
