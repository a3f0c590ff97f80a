"""The rows of ``celery_dlq_delivery``: runs of redelivered messages that have not ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, insert, or_, select
from sqlalchemy.engine import Connection

from celery_dlq.model.delivery import Delivery
from celery_dlq.store.database import tables
from celery_dlq.store.database.transactions import StoreRole, reads, writes
from celery_dlq.store.rows.query import one_of
from celery_dlq.store.rows.rows import fit, fit_text, stored_id, whole

delivery = tables.delivery


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
            )
            .order_by(delivery.c.started_at)
        ).mappings()
        return tuple(Delivery(**{**row, "task_id": task_id, "task": task}) for row in rows)

    @writes
    def put(self, connection: Connection, item: Delivery) -> None:
        """Write ``item``. It replaces an earlier account of the same delivery."""
        connection.execute(delete(delivery).where(_is(item)))
        connection.execute(insert(delivery), _row(item))

    @writes
    def forget(self, connection: Connection, items: Sequence[Delivery]) -> None:
        """Delete only ``items``, whose runs have ended."""
        if items:
            connection.execute(delete(delivery).where(or_(*map(_is, items))))

    @writes
    def prune(self, connection: Connection, before: datetime) -> int:
        """Delete the deliveries that started before ``before``; returns how many."""
        return connection.execute(delete(delivery).where(delivery.c.started_at < before)).rowcount


def forget_messages(connection: Connection, task_ids: Iterable[str]) -> None:
    """Delete all deliveries of ``task_ids`` (as stored), whose messages have come to an end."""
    wanted = sorted(set(task_ids))
    connection.execute(delete(delivery).where(one_of(connection, delivery.c.task_id, wanted)))


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
