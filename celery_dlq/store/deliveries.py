"""The rows of ``celery_dlq_delivery``: runs of redelivered messages that have not ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, insert, or_, select
from sqlalchemy.engine import Connection

from celery_dlq.delivery import Delivery
from celery_dlq.store import tables
from celery_dlq.store.query import one_of
from celery_dlq.store.rows import fit, stored_id, whole

delivery = tables.delivery


def read(connection: Connection, task_id: str, task: str) -> tuple[Delivery, ...]:
    """The deliveries of the messages of ``task`` under ``task_id``, oldest first."""
    wanted = fit(delivery, {"task": task})
    rows = connection.execute(
        select(delivery)
        .where(delivery.c.task_id == stored_id(task_id), delivery.c.task == wanted["task"])
        .order_by(delivery.c.started_at)
    ).mappings()
    return tuple(Delivery(**{**row, "task_id": task_id, "task": task}) for row in rows)


def put(connection: Connection, item: Delivery) -> None:
    """Write ``item``, in the place of what is known of it."""
    connection.execute(delete(delivery).where(_is(item)))
    connection.execute(insert(delivery), _row(item))


def forget(connection: Connection, items: Sequence[Delivery]) -> None:
    """Delete just these ``items``."""
    if items:
        connection.execute(delete(delivery).where(or_(*map(_is, items))))


def forget_messages(connection: Connection, task_ids: Iterable[str]) -> None:
    """Delete all deliveries of ``task_ids`` (as stored): their messages have come to an end."""
    wanted = sorted(set(task_ids))
    connection.execute(delete(delivery).where(one_of(connection, delivery.c.task_id, wanted)))


def prune(connection: Connection, before: datetime) -> int:
    """Delete what was started before ``before``; returns how many."""
    return connection.execute(delete(delivery).where(delivery.c.started_at < before)).rowcount


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
