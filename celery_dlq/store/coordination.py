"""Workers agree on these through the store: leases, circuits, and the runs of redelivered messages. All times
are by the database's clock."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, insert, or_, select, update
from sqlalchemy.engine import Connection

from celery_dlq.errors import LeaseLost
from celery_dlq.model.worker import Circuit, CircuitChange, Circuits, CircuitState, Delivery
from celery_dlq.store.base import Lease, ToDo
from celery_dlq.store.database import clock
from celery_dlq.store.database.tables import breaker, delivery, lease
from celery_dlq.store.database.transactions import StoreRole, reads, writes
from celery_dlq.store.redrive.operations import any_left
from celery_dlq.store.rows.query import one_of
from celery_dlq.store.rows.rows import Row, fit, fit_text, read_row, stored_id, whole

#: Circuits that are read at once; a worker treats all others as closed.
MOST_CIRCUITS = 1_000


class Leases(StoreRole):
    """Leases by name. Each has one holder at a time."""

    @reads
    def to_do(self, connection: Connection, name: str) -> ToDo:
        """The work for a worker that does not have the lease ``name``. Locks nothing."""
        return ToDo(lease_free_in_s=_free_in_s(connection, name), operations=any_left(connection))

    @writes
    def take(
        self, connection: Connection, name: str, *, holder: str, seconds: float
    ) -> Lease | None:
        """The lease ``name`` for ``holder``, new or prolonged; None while another holder has it."""
        now, holder = clock.now(connection), fit_text(lease.c.holder, holder)
        stored = select(lease).where(lease.c.name == name).with_for_update()
        row = connection.execute(stored).mappings().one_or_none()
        held = {"holder": holder, "expires_at": now + timedelta(seconds=seconds)}
        if row is None:
            # If two workers do this at the same time, the second insert is refused, and its transaction
            # begins again.
            connection.execute(insert(lease).values(name=name, token=1, **held))
            return Lease(name=name, token=1)
        # Each holder writes its name. A lease that ended under this name, while its process or machine stood
        # still, was not held by another one.
        is_mine = row["holder"] == holder
        if not is_mine and row["expires_at"] > now:
            return None
        token = row["token"] + (not is_mine)
        connection.execute(update(lease).where(lease.c.name == name).values(token=token, **held))
        return Lease(name=name, token=token)

    @writes
    def give_up(self, connection: Connection, held: Lease) -> None:
        """End ``held``, so that the next holder may take it at once."""
        # Without the holder's name, the next one has another token, even if it has this name.
        ended = (
            update(lease).where(_is_lease(held)).values(holder="", expires_at=clock.now(connection))
        )
        connection.execute(ended)

    @writes
    def end_of(self, connection: Connection, process: str) -> None:
        """End the leases of a process that is gone, whose name their holders begin with."""
        now = clock.now(connection)
        # A few rows, and most end in other ways.
        theirs = lease.c.holder.startswith(f"{process}/", autoescape=True)
        connection.execute(
            update(lease).where(theirs, lease.c.expires_at > now).values(expires_at=now)
        )


def check_lease(connection: Connection, held: Lease) -> None:
    """Check that ``held`` is still held. No other process can take it before the transaction ends.

    :raises LeaseLost: another process has.
    """
    if not is_held(connection, held):
        raise LeaseLost


def is_held(connection: Connection, held: Lease) -> bool:
    """Whether ``held`` is still held. If it is, no other process can take it before the transaction ends."""
    mine = select(lease.c.token).where(_is_lease(held)).with_for_update()
    return connection.execute(mine).scalar_one_or_none() is not None


def _free_in_s(connection: Connection, name: str) -> float:
    now, stored = clock.now(connection), select(lease.c.expires_at).where(lease.c.name == name)
    expires_at = connection.execute(stored).scalar_one_or_none()
    return 0.0 if expires_at is None else max(0.0, (expires_at - now).total_seconds())


def _is_lease(held: Lease) -> ColumnElement[bool]:
    return and_(lease.c.name == held.name, lease.c.token == held.token)


class StoredCircuits(StoreRole):
    """The circuits of all tasks, as workers share them."""

    @reads
    def read_open(self, connection: Connection) -> Circuits:
        """The circuits that are not closed: the latest :data:`MOST_CIRCUITS`, the latest first."""
        wanted = (
            select(breaker)
            .where(breaker.c.state != CircuitState.CLOSED.value)
            .order_by(breaker.c.opened_at.desc())
            .limit(MOST_CIRCUITS)
        )
        rows = connection.execute(wanted).mappings().all()
        return Circuits(now=clock.now(connection), circuits=tuple(map(_circuit, rows)))

    @writes
    def change(
        self, connection: Connection, changes: Mapping[tuple[str, str], CircuitChange]
    ) -> tuple[Circuit, ...]:
        """Apply ``changes``, by task and key, and return the changed circuits. No other worker can change
        them at the same time. A change may be applied more than once before it is stored."""
        stored = _locked_circuits(connection, list(changes))
        # Not earlier: while this waited for the rows, others may have counted failures, and a failure that is
        # later than now is not counted.
        now = clock.now(connection)
        changed = []
        for (task, key), apply in sorted(changes.items(), key=lambda item: item[0]):
            row_key = _row_key(task, key)
            before = stored.get(row_key)
            known = Circuit(task=task, key=key) if before is None else before
            after = apply(replace(known, task=task, key=key), now)
            _write_circuit(connection, row_key, after, now, is_new=before is None)
            changed.append(after)
        return tuple(changed)

    @writes
    def prune(self, connection: Connection, *, older_than_s: float) -> int:
        """Delete the circuits that have not changed for this many seconds; returns how many."""
        before = clock.now(connection) - timedelta(seconds=older_than_s)
        return connection.execute(delete(breaker).where(breaker.c.changed_at < before)).rowcount


def _locked_circuits(
    connection: Connection, names: list[tuple[str, str]]
) -> dict[tuple[str, str], Circuit]:
    if not names:
        return {}
    these = [_is_circuit(_row_key(task, key)) for task, key in names]
    # Always in the same order, so that two workers cannot deadlock.
    wanted = select(breaker).where(or_(*these)).order_by(breaker.c.task, breaker.c.key)
    rows = connection.execute(wanted.with_for_update()).mappings()
    return {(row["task"], row["key"]): _circuit(row) for row in rows}


def _write_circuit(
    connection: Connection,
    row_key: tuple[str, str],
    circuit: Circuit,
    now: datetime,
    *,
    is_new: bool,
) -> None:
    stored = {**vars(circuit), "state": circuit.state.value, "recent": json.dumps(circuit.recent)}
    values = {**stored, "task": row_key[0], "key": row_key[1], "changed_at": now}
    if is_new:
        # If two workers do this at the same time, the second insert is refused, and its transaction begins
        # again.
        connection.execute(insert(breaker).values(values))
    else:
        connection.execute(update(breaker).where(_is_circuit(row_key)).values(values))


def _row_key(task: str, key: str) -> tuple[str, str]:
    return fit_text(breaker.c.task, task), fit_text(breaker.c.key, key)


def _is_circuit(row_key: tuple[str, str]) -> ColumnElement[bool]:
    return and_(breaker.c.task == row_key[0], breaker.c.key == row_key[1])


def _circuit(row: Row) -> Circuit:
    recent = tuple((float(since), int(count)) for since, count in json.loads(row["recent"]))
    return read_row(Circuit, row, recent=recent)


class Deliveries(StoreRole):
    """The runs of redelivered messages that are not known to have ended."""

    @reads
    def find(self, connection: Connection, task_id: str, task: str) -> tuple[Delivery, ...]:
        """The deliveries of the messages of ``task`` under ``task_id``, over all redrives, oldest first. Two
        apps that share a store may use the same id."""
        return _found(connection, {(task_id, task)})

    @writes
    def begin(
        self,
        connection: Connection,
        wanted: Sequence[tuple[Delivery, Callable[[Delivery, tuple[Delivery, ...]], Any]]],
    ) -> list[Any]:
        """Write the deliveries of ``wanted`` that may start, together.

        :param wanted: each with a function that decides. It gets the delivery, and what :meth:`find` returns
            for the messages of all of them, and returns an object whose ``started`` is the delivery, or None.
        :return: these objects.
        """
        known = _found(connection, {(one.task_id, one.task) for one, _ in wanted})
        begun = [decide(one, known) for one, decide in wanted]
        rows = [_row(one.started) for one in begun if one.started]
        if rows:
            connection.execute(insert(delivery), rows)
        return begun

    @reads
    def came_again(
        self,
        connection: Connection,
        task_id: str,
        task: str,
        run: tuple[int, int],
        after: datetime,
        process: str = "",
    ) -> bool:
        """Whether the message of this run (redrive and attempt), or a later one, was delivered again and
        began ``after`` that time, whether or not it has ended; or whether a redelivered message came to its
        end in ``process``, which may not have noticed."""
        redrive, attempt = run
        began_later: ColumnElement[bool] = delivery.c.started_at > after
        if process:
            ended_there = and_(delivery.c.ended.is_(True), delivery.c.process == process)
            began_later = or_(began_later, ended_there)
        later = select(delivery.c.task_id).where(
            delivery.c.task_id == stored_id(task_id),
            delivery.c.task == fit_text(delivery.c.task, task),
            or_(
                delivery.c.redrive > redrive,
                and_(delivery.c.redrive == redrive, delivery.c.attempt >= attempt),
            ),
            began_later,
        )
        return connection.execute(later.limit(1)).first() is not None

    @writes
    def put(self, connection: Connection, item: Delivery) -> None:
        """Write ``item``. It replaces an earlier account of the same delivery."""
        connection.execute(delete(delivery).where(_is_delivery(item)))
        connection.execute(insert(delivery), _row(item))

    @writes
    def forget(self, connection: Connection, items: Sequence[Delivery]) -> None:
        """Note that ``items`` count no more: they ended without an outcome, do not run after all, or their
        worker does not know how they will end. Without their process, none of them is taken for a success of
        a later run in that process: see :meth:`came_again`."""
        if items:
            connection.execute(
                update(delivery)
                .where(or_(*map(_is_delivery, items)))
                .values(ended=True, process="")
            )

    @writes
    def prune(self, connection: Connection, before: datetime) -> int:
        """Delete the deliveries that started before ``before``; returns how many."""
        return connection.execute(delete(delivery).where(delivery.c.started_at < before)).rowcount


def end_deliveries(connection: Connection, task_ids: Iterable[str]) -> None:
    """Note that the messages of ``task_ids`` (as stored) have come to an end: their deliveries count no
    more."""
    wanted = one_of(connection, delivery.c.task_id, sorted(set(task_ids)))
    connection.execute(
        update(delivery).where(wanted, delivery.c.ended.is_(False)).values(ended=True)
    )


def _found(connection: Connection, messages: Set[tuple[str, str]]) -> tuple[Delivery, ...]:
    names = {
        (stored_id(task_id), fit_text(delivery.c.task, task)): {"task_id": task_id, "task": task}
        for task_id, task in messages
    }
    theirs = one_of(connection, delivery.c.task_id, sorted({task_id for task_id, _ in names}))
    wanted = select(delivery).where(theirs, delivery.c.ended.is_(False))
    rows = connection.execute(wanted.order_by(delivery.c.started_at)).mappings()
    return tuple(
        read_row(Delivery, row, **names[key])
        for row in rows
        if (key := (row["task_id"], row["task"])) in names
    )


def _is_delivery(item: Delivery) -> ColumnElement[bool]:
    row = _row(item)
    return and_(*(column == row[column.name] for column in delivery.primary_key))


def _row(item: Delivery) -> dict[str, Any]:
    changed = {
        "task_id": stored_id(item.task_id),
        "redrive": whole(item.redrive),
        "attempt": whole(item.attempt),
    }
    return fit(delivery, {**vars(item), **changed})
