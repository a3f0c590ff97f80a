"""Operations: written, read with their counts, and moved from state to state."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import (
    CompoundSelect,
    Select,
    and_,
    func,
    insert,
    literal,
    or_,
    select,
    union_all,
    update,
)
from sqlalchemy.engine import Connection

from celery_dlq.base.codec import dump_json
from celery_dlq.base.redact import hide_known
from celery_dlq.errors import OperationError, UnknownOperation
from celery_dlq.model.operation import ENDED, MOVES, Counts, OperationState, Orders, SendingState
from celery_dlq.store.base import AppAndBroker, Filter, Operation
from celery_dlq.store.database.columns import Moment
from celery_dlq.store.database.namespaces import is_ours, narrow
from celery_dlq.store.database.sealing import read_shown, sealing_of
from celery_dlq.store.database.tables import claim, operation, sending
from celery_dlq.store.database.transactions import (
    ListenedRole,
    after_commit,
    reads,
    writes,
)
from celery_dlq.store.listener import StoreListener
from celery_dlq.store.rows import audit
from celery_dlq.store.rows.query import begins_with, narrow_to, one_of
from celery_dlq.store.rows.rows import Row, fit, read_row

_SENDING, _SENT = SendingState.SENDING.value, SendingState.SENT.value
#: This takes the place of a state in the counts of letters that claims hold.
_HELD = "held"

#: The moves that the audit records, each with its name there.
_ACTS: Mapping[OperationState, str] = {
    OperationState.PAUSED: "pause",
    OperationState.CANCELLED: "cancel",
    OperationState.ABORTED: "abort",
}

_SAME_NAME = (
    "id", "cause", "who", "host", "detached", "created_at", "started_at", "ended_at",
    "sent_again",
)  # fmt: skip


def create_operation(
    connection: Connection, new: Operation, *, repair: Mapping[str, object] | None = None
) -> None:
    """Write a new operation; audited as ``redrive``.

    :param repair: the changes that it makes in messages, without secrets, for the audit.
    """
    if _read(connection, new.id) is not None:
        return
    narrow_to(connection, new.wanted)
    values = sealing_of(connection).seal(operation, _values(new))
    connection.execute(insert(operation).values(values))
    audit.write_audit(
        connection, who=new.who, act=audit.REDRIVE, count=new.counts.planned, why=new.orders.why,
        detail={
            "operation": new.id, "planned": new.counts.planned, **audit.by_filter(new.wanted),
            **({"repair": repair} if repair else {}),
        },
        at=new.created_at,
    )  # fmt: skip


def _read(connection: Connection, operation_id: str) -> Operation | None:
    """The operation with its counts, or None."""
    stored = select(operation).where(operation.c.id == operation_id, is_ours(connection, operation))
    return next(iter(_counted(connection, stored)), None)


class Operations(ListenedRole[StoreListener]):
    """The operations, with their counts. The listener is notified of each move."""

    @writes
    def create(self, new: Operation, *, repair: Mapping[str, object] | None = None) -> None:
        """:func:`create_operation`, in a transaction of its own."""
        create_operation(self.connection, new, repair=repair)

    @reads
    def get(self, operation_id: str) -> Operation | None:
        """The operation with its counts, or None."""
        return _read(self.connection, operation_id)

    @reads
    def match(self, prefix: str, limit: int = 10) -> list[str]:
        """Up to ``limit`` ids of operations that begin with ``prefix``, in their order."""
        its = self.ours(operation), begins_with(operation.c.id, prefix)
        matching = select(operation.c.id).where(*its)
        return list(self.connection.scalars(matching.order_by(operation.c.id).limit(limit)))

    @reads
    def find(
        self,
        *,
        states: frozenset[OperationState] = frozenset(),
        since: datetime | None = None,
        limit: int = 50,
    ) -> list[Operation]:
        """Operations in one of ``states`` (empty: in any), newest first.

        :param since: only those that were created at or after this moment.
        """
        newest = (
            select(operation).order_by(operation.c.created_at.desc(), operation.c.id).limit(limit)
        )
        newest = newest.where(self.ours(operation))
        named = sorted(state.value for state in states)
        if named:
            newest = newest.where(operation.c.state.in_(named))
        if since is not None:
            newest = newest.where(operation.c.created_at >= since)
        return _counted(self.connection, newest)

    @writes
    def move(
        self,
        operation_id: str,
        to: OperationState,
        *,
        who: str,
        cause: str = "",
        why: str = "",
        now: datetime,
        source: OperationState | None = None,
    ) -> Operation:
        """Move an operation to another state (:data:`~celery_dlq.model.operation.MOVES`) and return it.
        Pausing, resuming, cancelling and aborting are audited, with ``why``, or with the cause if ``why`` is
        empty. An operation that is in that state already is not changed, and the listener is not notified.

        :param source: if given, an operation that is in any other state is not changed, either.
        :raises UnknownOperation: no operation has this id.
        :raises OperationError: the move is not allowed, or the operation cannot be done because a process
            still holds letters of it.
        """
        is_it = operation.c.id == operation_id
        stored = select(operation.c.state, operation.c.namespace).where(is_it, self.ours(operation))
        row = self.connection.execute(stored.with_for_update()).one_or_none()
        if row is None:
            raise UnknownOperation
        state, namespace = row
        narrow(self.connection, namespace)
        before = OperationState(state)
        moves = before is not to and source in (None, before)
        if moves:
            _check_move(self.connection, operation_id, before, to)
            changed = {"id": operation_id, **_values_in(to, cause, now)}
            values = sealing_of(self.connection).seal(operation, changed)
            self.connection.execute(update(operation).where(is_it).values(values))
        found = _read(self.connection, operation_id)
        assert found is not None, "its row is locked"  # noqa: S101
        if moves:
            _note(self.connection, found, before, who, why or cause, now)
            after_commit(self.connection, partial(self._listener.moved, found))
        return found


def counts_of(connection: Connection, ids: Iterable[str]) -> dict[str, Counts]:
    """The counts of the operations ``ids``, without those that are no longer stored."""
    stored = select(operation).where(one_of(connection, operation.c.id, sorted(ids)))
    return {found.id: found.counts for found in _counted(connection, stored)}


def operations_of_group(connection: Connection, fingerprint: str, limit: int) -> list[str]:
    """The ids of those operations, of the newest ``limit``, that chose the group by its fingerprint or by a
    prefix of it."""
    ours = select(operation.c.id, operation.c.wanted).where(is_ours(connection, operation))
    newest = ours.order_by(operation.c.created_at.desc()).limit(limit)
    return [
        row["id"]
        for row in read_shown(connection, operation, newest)
        if Filter.from_dict(json.loads(row["wanted"])).chooses_group(fingerprint)
    ]


def any_left(connection: Connection) -> bool:
    """Whether any operation runs, or waits for a worker."""
    running = operation.c.state == OperationState.RUNNING.value
    waits = and_(operation.c.state == OperationState.PLANNED.value, operation.c.detached)
    left = select(operation.c.id).where(is_ours(connection, operation), or_(running, waits))
    return connection.execute(left.limit(1)).first() is not None


def _check_move(
    connection: Connection, operation_id: str, before: OperationState, to: OperationState
) -> None:
    if to not in MOVES[before]:
        raise OperationError(
            f"Operation {operation_id} is {before.value} and cannot become {to.value}; "
            f"see: celery -A <app> dlq operations show {operation_id}"
        )
    claims = select(claim.c.token).where(claim.c.operation == operation_id).limit(1)
    if to is OperationState.DONE and connection.execute(claims).first() is not None:
        raise OperationError(
            f"Letters of operation {operation_id} are still being sent; wait until they are marked."
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
    before: OperationState,
    who: str,
    why: str,
    now: datetime,
) -> None:
    resumed = before is OperationState.PAUSED and moved.state is OperationState.RUNNING
    act = "resume" if resumed else _ACTS.get(moved.state)
    if act is not None:
        audit.write_audit(
            connection, who=who, act=act, count=moved.counts.left, why=why,
            detail={"operation": moved.id}, at=now,
        )  # fmt: skip


def _values(new: Operation) -> dict[str, Any]:
    plain = {name: getattr(new, name) for name in _SAME_NAME}
    return {
        **fit(operation, {**plain, "app": new.home.app, "broker": new.home.broker}),
        "state": new.state.value,
        "planned": new.counts.planned,
        "wanted": dump_json(new.wanted.to_dict()),
        "orders": dump_json(replace(new.orders, why=hide_known(new.orders.why)).to_dict()),
    }


def _counted(connection: Connection, stored: Select[Any]) -> list[Operation]:
    rows = read_shown(connection, operation, stored)
    counts: dict[str, Counter[str]] = {row["id"]: Counter() for row in rows}
    if rows:
        for operation_id, state, number in connection.execute(_numbers(connection, sorted(counts))):
            counts[operation_id][state] = int(number)
    return [_operation_from(row, _without_held(counts[row["id"]])) for row in rows]


def _numbers(connection: Connection, ids: Sequence[str]) -> CompoundSelect[Any]:
    """The numbers of the operations' sendings in each state, and of the letters in their claims. One
    statement reads all, because a claim that is made between two statements would be subtracted from counts
    without that claim."""
    by_state = (
        select(sending.c.operation, sending.c.state, func.count())
        .where(one_of(connection, sending.c.operation, ids))
        # The index begins with the state.
        .where(sending.c.state.in_([state.value for state in SendingState]))
        .group_by(sending.c.operation, sending.c.state)
    )
    held = (
        select(claim.c.operation, literal(_HELD), func.sum(claim.c.letters))
        .where(one_of(connection, claim.c.operation, ids))
        .group_by(claim.c.operation)
    )
    return union_all(by_state, held)


def _without_held(numbers: Counter[str]) -> dict[str, int]:
    """The counts of an operation. Held letters are written as sent, but are still being sent; those that
    already have an outcome are neither."""
    held = numbers.pop(_HELD, 0)
    being_sent, left_behind = min(held, numbers[_SENT]), numbers[_SENDING]
    return {
        **numbers,
        _SENDING: left_behind + being_sent,
        _SENT: numbers[_SENT] - being_sent,
        "unmarked": held - being_sent,
        "left_behind": left_behind,
    }


def _operation_from(row: Row, counts: Mapping[str, int]) -> Operation:
    return read_row(
        Operation,
        row,
        home=AppAndBroker(app=row["app"], broker=row["broker"]),
        wanted=Filter.from_dict(json.loads(row["wanted"])),
        orders=Orders.from_dict(json.loads(row["orders"])),
        counts=Counts(planned=row["planned"], **counts),
    )
