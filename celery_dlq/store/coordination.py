"""Workers agree on these through the store: leases, circuits, and the runs of redelivered messages. All times
are by the database's clock."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, func, insert, or_, select, update
from sqlalchemy.engine import Connection

from celery_dlq.errors import LeaseLost, NamespaceError
from celery_dlq.model.worker import Circuit, CircuitChange, Circuits, CircuitState, Delivery
from celery_dlq.store.base import Lease, ToDo
from celery_dlq.store.database import clock
from celery_dlq.store.database.namespaces import is_ours, seen
from celery_dlq.store.database.sealing import read_shown, sealing_of
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
    def to_do(self, name: str) -> ToDo:
        """The work for a worker that does not have the lease ``name``. Locks nothing."""
        named = lease.c.name.in_(_names(self.connection, name))
        stored = select(func.max(lease.c.expires_at)).where(named)
        expires_at, now = self.connection.scalar(stored), clock.now(self.connection)
        free_in_s = 0.0 if expires_at is None else max(0.0, (expires_at - now).total_seconds())
        return ToDo(lease_free_in_s=free_in_s, operations=any_left(self.connection))

    @writes
    def take(self, name: str, *, holder: str, seconds: float) -> Lease | None:
        """The lease ``name`` for ``holder``, new or prolonged; None while another holder has it."""
        name, *others = _names(self.connection, name)
        if others:
            raise NamespaceError
        now, holder = clock.now(self.connection), fit_text(lease.c.holder, holder)
        stored = select(lease).where(lease.c.name == name).with_for_update()
        row = self.connection.execute(stored).mappings().one_or_none()
        held = {"holder": holder, "expires_at": now + timedelta(seconds=seconds)}
        if row is None:
            # If two workers do this at the same time, the second insert is refused, and its transaction
            # begins again.
            self.connection.execute(insert(lease).values(name=name, token=1, **held))
            return Lease(name=name, token=1)
        # Each holder writes its name. A lease that ended under this name, while its process or machine stood
        # still, was not held by another one.
        is_mine = row["holder"] == holder
        if not is_mine and row["expires_at"] > now:
            return None
        token = row["token"] + (not is_mine)
        taken = update(lease).where(lease.c.name == name)
        self.connection.execute(taken.values(token=token, **held))
        return Lease(name=name, token=token)

    @writes
    def give_up(self, held: Lease) -> None:
        """End ``held``, so that the next holder may take it at once."""
        # Without the holder's name, the next one has another token, even if it has this name.
        ended = (
            update(lease)
            .where(_is_lease(held))
            .values(holder="", expires_at=clock.now(self.connection))
        )
        self.connection.execute(ended)

    @writes
    def end_of(self, process: str) -> None:
        """End the leases of a process that is gone, whose name their holders begin with."""
        now = clock.now(self.connection)
        # A few rows, and most end in other ways.
        theirs = lease.c.holder.startswith(f"{process}/", autoescape=True)
        ended = update(lease).where(theirs, lease.c.expires_at > now)
        self.connection.execute(ended.values(expires_at=now))


def _names(connection: Connection, name: str) -> list[str]:
    """The name of a lease in each namespace. Any process that sees an operation may run it."""
    names = [""] if name.startswith("operation.") else seen(connection)
    return [f"{one}:{name}" if one else name for one in names]


def check_lease(connection: Connection, held: Lease) -> None:
    """Check that ``held`` is still held. No other process can take it before the transaction ends.

    :raises LeaseLost: another process has.
    """
    if not is_held(connection, held):
        raise LeaseLost


def is_held(connection: Connection, held: Lease) -> bool:
    """Whether the lease is still held. If so, no other process can take the lease before the transaction
    ends."""
    mine = select(lease.c.token).where(_is_lease(held)).with_for_update()
    return connection.scalar(mine) is not None


def _is_lease(held: Lease) -> ColumnElement[bool]:
    return and_(lease.c.name == held.name, lease.c.token == held.token)


class StoredCircuits(StoreRole):
    """The circuits of all tasks, as workers share them."""

    @reads
    def read_open(self) -> Circuits:
        """The circuits that are not closed: the latest :data:`MOST_CIRCUITS`, the latest first."""
        wanted = (
            select(breaker)
            .where(self.ours(breaker), breaker.c.state != CircuitState.CLOSED.value)
            .order_by(breaker.c.opened_at.desc())
            .limit(MOST_CIRCUITS)
        )
        rows = self.connection.execute(wanted).mappings().all()
        return Circuits(now=clock.now(self.connection), circuits=tuple(map(_circuit, rows)))

    @writes
    def change(self, changes: Mapping[tuple[str, str], CircuitChange]) -> tuple[Circuit, ...]:
        """Apply ``changes``, by task and key, and return the changed circuits. No other worker can change
        them at the same time. A change may be applied more than once before it is stored."""
        stored = _locked_circuits(self.connection, list(changes))
        # Not earlier: while this waited for the rows, others may have counted failures, and a failure that is
        # later than now is not counted.
        now = clock.now(self.connection)
        changed = []
        for (task, key), apply in sorted(changes.items(), key=lambda item: item[0]):
            row_key = _row_key(task, key)
            before = stored.get(row_key)
            known = Circuit(task=task, key=key) if before is None else before
            after = apply(replace(known, task=task, key=key), now)
            values = {
                **vars(after), "state": after.state.value, "recent": json.dumps(after.recent),
                "task": row_key[0], "key": row_key[1], "changed_at": now,
            }  # fmt: skip
            # If two workers insert it at the same time, the second insert is refused, and its transaction
            # begins again.
            known_one = update(breaker).where(self.ours(breaker), _is_circuit(row_key))
            new = insert(breaker) if before is None else known_one
            self.connection.execute(new.values(values))
            changed.append(after)
        return tuple(changed)

    @writes
    def prune(self, *, older_than_s: float) -> int:
        """Delete the circuits that have not changed for this many seconds; returns how many."""
        before = clock.now(self.connection) - timedelta(seconds=older_than_s)
        old = delete(breaker).where(breaker.c.changed_at < before, self.ours(breaker))
        return self.connection.execute(old).rowcount


def _locked_circuits(
    connection: Connection, names: list[tuple[str, str]]
) -> dict[tuple[str, str], Circuit]:
    if not names:
        return {}
    these = [_is_circuit(_row_key(task, key)) for task, key in names]
    # Always in the same order, so that two workers cannot deadlock.
    ours = is_ours(connection, breaker)
    wanted = select(breaker).where(ours, or_(*these)).order_by(breaker.c.task, breaker.c.key)
    rows = connection.execute(wanted.with_for_update()).mappings()
    return {(row["task"], row["key"]): _circuit(row) for row in rows}


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
    def find(self, task_id: str, task: str) -> tuple[Delivery, ...]:
        """The deliveries of the messages of ``task`` under ``task_id``, over all redrives, oldest first. Two
        apps that share a store may use the same id."""
        return _found(self.connection, {(task_id, task)})

    @writes
    def begin(
        self, wanted: Sequence[tuple[Delivery, Callable[[Delivery, tuple[Delivery, ...]], Any]]]
    ) -> list[Any]:
        """Write the deliveries of ``wanted`` that may start, together.

        :param wanted: each with a function that decides. It gets the delivery, and what :meth:`find` returns
            for the messages of all of them, and returns an object whose ``started`` is the delivery, or None.
        :return: these objects.
        """
        known = _found(self.connection, {(one.task_id, one.task) for one, _ in wanted})
        begun = [decide(one, known) for one, decide in wanted]
        rows = [_sealed(self.connection, one.started) for one in begun if one.started]
        if rows:
            self.connection.execute(insert(delivery), rows)
        return begun

    @reads
    def came_again(
        self, task_id: str, task: str, run: tuple[int, int], after: datetime, process: str = ""
    ) -> bool:
        """Whether the message of this run (redrive and attempt), or a later message, was delivered again and
        began ``after`` that time. A message that was redelivered to ``process`` and came to its end there
        counts, too, because the process may not have noticed."""
        redrive, attempt = run
        began_later: ColumnElement[bool] = delivery.c.started_at > after
        if process:
            ended_there = and_(delivery.c.ended.is_(True), delivery.c.process == process)
            began_later = or_(began_later, ended_there)
        later = select(delivery.c.task_id).where(
            self.ours(delivery),
            delivery.c.task_id == stored_id(task_id),
            delivery.c.task == fit_text(delivery.c.task, task),
            or_(
                delivery.c.redrive > redrive,
                and_(delivery.c.redrive == redrive, delivery.c.attempt >= attempt),
            ),
            began_later,
        )
        return self.connection.execute(later.limit(1)).first() is not None

    @writes
    def put(self, item: Delivery) -> None:
        """Write ``item``. It replaces an earlier account of the same delivery."""
        self.connection.execute(delete(delivery).where(_is_delivery(item)))
        self.connection.execute(insert(delivery), _sealed(self.connection, item))

    @writes
    def forget(self, items: Sequence[Delivery]) -> None:
        """Record that ``items`` count no more: they ended without an outcome, do not run after all, or their
        worker does not know how they will end. The record has no process, so that :meth:`came_again` takes no
        item for a success of a later run in that process."""
        if items:
            these = update(delivery).where(or_(*map(_is_delivery, items)))
            self.connection.execute(these.values(ended=True, process=""))

    @writes
    def prune(self, before: datetime) -> int:
        """Delete the deliveries that started before ``before``; returns how many."""
        old = delete(delivery).where(delivery.c.started_at < before, self.ours(delivery))
        return self.connection.execute(old).rowcount


def end_deliveries(connection: Connection, task_ids: Iterable[str]) -> None:
    """Note that the messages of ``task_ids`` (as stored) have come to an end: their deliveries count no
    more."""
    wanted = one_of(connection, delivery.c.task_id, sorted(set(task_ids)))
    running = update(delivery).where(wanted, delivery.c.ended.is_(False))
    running = running.where(is_ours(connection, delivery))
    connection.execute(running.values(ended=True))


def _found(connection: Connection, messages: Set[tuple[str, str]]) -> tuple[Delivery, ...]:
    names = {
        (stored_id(task_id), fit_text(delivery.c.task, task)): {"task_id": task_id, "task": task}
        for task_id, task in messages
    }
    theirs = one_of(connection, delivery.c.task_id, sorted({task_id for task_id, _ in names}))
    ours = is_ours(connection, delivery)
    wanted = select(delivery).where(ours, theirs, delivery.c.ended.is_(False))
    return tuple(
        read_row(Delivery, row, **names[key])
        for row in read_shown(connection, delivery, wanted.order_by(delivery.c.started_at))
        if (key := (row["task_id"], row["task"])) in names
    )


def _is_delivery(item: Delivery) -> ColumnElement[bool]:
    row = _row(item)
    return and_(*(column == row[column.name] for column in delivery.primary_key))


def _sealed(connection: Connection, item: Delivery) -> dict[str, Any]:
    return sealing_of(connection).seal(delivery, _row(item))


def _row(item: Delivery) -> dict[str, Any]:
    changed = {
        "task_id": stored_id(item.task_id),
        "redrive": whole(item.redrive),
        "attempt": whole(item.attempt),
    }
    return fit(delivery, {**vars(item), **changed})
