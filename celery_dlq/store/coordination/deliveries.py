"""The rows of ``celery_dlq_delivery``: runs of redelivered messages that have not ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, insert, or_, select, update
from sqlalchemy.engine import Connection

from celery_dlq.model.delivery import Delivery
from celery_dlq.store.database import tables
from celery_dlq.store.database.transactions import StoreRole, reads, writes
from celery_dlq.store.rows.query import one_of
from celery_dlq.store.rows.rows import fit, fit_text, stored_id, whole

delivery = tables.delivery

_FIELDS = [item.name for item in fields(Delivery)]


class Deliveries(StoreRole):
    """The runs of redelivered messages that are not known to have ended."""

    @reads
    def find(self, connection: Connection, task_id: str, task: str) -> tuple[Delivery, ...]:
        """The deliveries of the messages of ``task`` under ``task_id``, over all redrives, oldest first. Two
        apps that share a store may use the same id."""
        rows = connection.execute(
            select(delivery)
            .where(
                delivery.c.task_id == stored_id(task_id),
                delivery.c.task == fit_text(delivery.c.task, task),
                delivery.c.ended.is_(False),
            )
            .order_by(delivery.c.started_at)
        ).mappings()
        return tuple(
            Delivery(**{name: row[name] for name in _FIELDS} | {"task_id": task_id, "task": task})
            for row in rows
        )

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
        connection.execute(delete(delivery).where(_is(item)))
        connection.execute(insert(delivery), _row(item))

    @writes
    def forget(self, connection: Connection, items: Sequence[Delivery]) -> None:
        """Note that ``items`` count no more: they ended without an outcome, do not run after all, or their
        worker does not know how they will end. Without their process, none of them is taken for a success of
        a later run in that process: see :meth:`came_again`."""
        if items:
            connection.execute(
                update(delivery).where(or_(*map(_is, items))).values(ended=True, process="")
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


def _is(item: Delivery) -> ColumnElement[bool]:
    row = _row(item)
    return and_(*(column == row[column.name] for column in delivery.primary_key))


def _row(item: Delivery) -> dict[str, Any]:
    changed = {
        "task_id": stored_id(item.task_id),
        "redrive": whole(item.redrive),
        "attempt": whole(item.attempt),
    }
    return fit(delivery, {**vars(item), **changed})
