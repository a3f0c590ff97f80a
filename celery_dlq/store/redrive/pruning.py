"""Deletes history: the acts of people and handlers, operations that ended, and the times at which letters
died."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Table, and_, delete, select, tuple_
from sqlalchemy.engine import Connection

from celery_dlq.model.operation import SendingState
from celery_dlq.model.states import OPEN_STATES
from celery_dlq.store.base import HistoryBounds
from celery_dlq.store.database import tables
from celery_dlq.store.database.transactions import StoreRole, writes
from celery_dlq.store.rows.query import in_states

arrival, audit, change = tables.arrival, tables.audit, tables.change
handling, letter, trend = tables.handling, tables.letter, tables.trend
operation, sending = tables.operation, tables.sending
auto_run, auto_letter, held = tables.auto_run, tables.auto_letter, tables.held

#: States of sendings whose outcome may still come, or of which a copy may have been sent.
_AWAITED = (SendingState.SENDING.value, SendingState.SENT.value)


class History(StoreRole):
    """The history that the store keeps."""

    @writes
    def prune(self, connection: Connection, bounds: HistoryBounds, *, limit: int) -> int:
        """Delete history that is older than ``bounds``: acts of people, operations that ended and their
        finished sendings, changes of messages, handlings that ended, runs of automatic redrives, and the
        counts of letters that died. The sendings, changes, handlings and automatic redrives of an open letter
        stay, and so does the count of the hour in which it died. An operation is deleted after its sendings,
        so that a crash leaves no sending without an operation. Deletes up to ``limit`` rows of each kind;
        returns how many were deleted."""
        old = [
            *_old_history(bounds.history), *_old_arrivals(bounds.arrivals)
        ]  # fmt: skip
        if bounds.audit is not None:
            old.append((audit, audit.c.at < bounds.audit))
        return sum(_delete(connection, table, condition, limit) for table, condition in old)


#: A table, and the condition on its rows that are deleted.
_Old = tuple[Table, ColumnElement[bool]]


def _old_history(before: datetime | None) -> Iterator[_Old]:
    if before is None:
        return
    yield sending, _is_old(before)
    sendings = select(1).where(sending.c.operation == operation.c.id).correlate(operation)
    yield operation, and_(operation.c.ended_at < before, ~sendings.exists())
    yield change, and_(change.c.at < before, ~_is_open(change))
    yield handling, and_(handling.c.ended_at < before, ~_is_open(handling))
    # The limit of an open letter is counted by them.
    old_runs = select(auto_run.c.id).where(auto_run.c.at < before)
    yield auto_letter, and_(auto_letter.c.run.in_(old_runs), ~_is_open(auto_letter))
    letters = select(1).where(auto_letter.c.run == auto_run.c.id).correlate(auto_run)
    yield auto_run, and_(auto_run.c.at < before, ~letters.exists())
    yield held, and_(held.c.at < before, ~_is_open(held))


def _old_arrivals(before: datetime | None) -> Iterator[_Old]:
    if before is None:
        return
    yield arrival, arrival.c.minute < before
    # The ages of open letters are read from these.
    yield trend, and_(trend.c.hour < before, trend.c.open_count == 0)


def _is_old(before: datetime) -> ColumnElement[bool]:
    """Whether a sending belongs to an operation that ended before ``before``, and neither its letter nor its
    message still needs it."""
    ended = select(operation.c.id).where(operation.c.ended_at < before)
    return and_(
        sending.c.operation.in_(ended),
        sending.c.state.not_in(_AWAITED),
        sending.c.ended_at < before,
        ~_is_open(sending),
    )


def _is_open(table: Table) -> ColumnElement[bool]:
    """Whether the letter of a row may still be redriven, or end."""
    same = letter.c.task_id == table.c.task_id
    return select(1).where(same, in_states(OPEN_STATES)).correlate(table).exists()


def _delete(connection: Connection, table: Table, old: ColumnElement[bool], limit: int) -> int:
    key: tuple[Any, ...] = tuple(table.primary_key.columns)
    oldest = select(*key).where(old).order_by(*key).limit(limit)
    rows = [tuple(row) for row in connection.execute(oldest)]
    if not rows:
        return 0
    these = key[0].in_([row[0] for row in rows]) if len(key) == 1 else tuple_(*key).in_(rows)
    # The condition is checked again, because another transaction may have changed a row since then.
    return connection.execute(delete(table).where(these, old)).rowcount
