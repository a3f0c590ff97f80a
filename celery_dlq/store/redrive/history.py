"""The history that the store keeps: the acts of people, and the deletion of old acts, operations and counts.

An act is shown with its result so far, because a redrive continues after its row is written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from operator import attrgetter
from typing import Any

from sqlalchemy import ColumnElement, Table, and_, delete, select, tuple_
from sqlalchemy.engine import Connection

from celery_dlq.errors import FilterError
from celery_dlq.model.operation import Counts, SendingState
from celery_dlq.model.states import OPEN_STATES
from celery_dlq.store.base import AuditRow, HistoryBounds, Rows
from celery_dlq.store.database.tables import (
    arrival,
    audit,
    change,
    handling,
    held,
    letter,
    operation,
    sending,
    trend,
)
from celery_dlq.store.database.transactions import StoreRole, reads, writes
from celery_dlq.store.redrive.operations import counts_of, operations_of_group
from celery_dlq.store.redrive.sendings import sendings_of
from celery_dlq.store.rows.audit import REDRIVE, write_audit
from celery_dlq.store.rows.query import Conditions, in_states
from celery_dlq.store.rows.rows import stored_id

_READ = tuple(column for column in audit.columns if column is not audit.c.subject)

#: Operations that are looked through for those that chose a group. The filter of each may name many letters.
_OPERATIONS = 50

#: States of sendings whose outcome may still come, or of which a copy may have been sent.
_AWAITED = (SendingState.SENDING.value, SendingState.SENT.value)

#: Digits of the largest id.
_ID_DIGITS = 18


class Audit(StoreRole):
    """The acts of people."""

    @reads
    def find(
        self,
        connection: Connection,
        *,
        limit: int = 50,
        after: str | None = None,
        act: str | None = None,
        who: str | None = None,
        since: datetime | None = None,
        letter: str | None = None,
        group: str | None = None,
    ) -> Rows[AuditRow]:
        """Acts of people, newest first: their ids are in the order in which they were written. A redrive
        counts the letters that it has sent so far.

        :param after: the cursor of the previous rows.
        :param letter: only acts that were about this letter alone, and acts on the operations that it was
            in.
        :param group: only acts that were about the group with this fingerprint, and acts on the newest
            operations that chose it.
        """
        found: Conditions = [] if after is None else [audit.c.id < _id(after)]
        if act is not None:
            found.append(audit.c.act == act)
        if who is not None:
            found.append(audit.c.who == who)
        if since is not None:
            found.append(audit.c.at >= since)
        if letter is not None:
            found.append(audit.c.subject.in_(_subjects_of(connection, letter)))
        if group is not None:
            chose = operations_of_group(connection, group, _OPERATIONS)
            found.append(audit.c.subject.in_([stored_id(group), *chose]))
        newest = select(*_READ).where(*found).order_by(audit.c.id.desc()).limit(limit + 1)
        acts = [
            AuditRow(**{**row, "detail": json.loads(row["detail"])})
            for row in connection.execute(newest).mappings()
        ]
        page = Rows.first(acts, limit, attrgetter("id"))
        return replace(page, rows=_with_results(connection, page.rows, letter))

    @writes
    def note(
        self,
        connection: Connection,
        *,
        who: str,
        act: str,
        detail: Mapping[str, object],
        count: int,
        now: datetime,
        row: int | None = None,
    ) -> int:
        """Write a row for an act on ``count`` letters that no method of the store records itself; returns its
        id.

        :param row: the row of an act that is done step by step; ``count`` is added to its letters.
        """
        return write_audit(
            connection, who=who, act=act, count=count, detail=detail, at=now, row=row
        )


def _with_results(
    connection: Connection, rows: Sequence[AuditRow], letter: str | None
) -> tuple[AuditRow, ...]:
    redrives = {row.detail["operation"] for row in rows if row.act == REDRIVE}
    if not redrives:
        return tuple(rows)
    counts = counts_of(connection, redrives)
    sendings = [] if letter is None else sendings_of(connection, letter)
    changes = {one.operation: one.change for one in sendings if one.change}
    return tuple(_with_result(row, counts, changes) for row in rows)


def _with_result(
    row: AuditRow, counts: Mapping[str, Counts], changes: Mapping[str, str]
) -> AuditRow:
    operation_id = str(row.detail.get("operation"))
    if row.act != REDRIVE or operation_id not in counts:
        return row
    detail = dict(row.detail)
    if operation_id in changes:
        detail["changed"] = changes[operation_id]
    return replace(row, count=counts[operation_id].out, detail=detail)


def _subjects_of(connection: Connection, task_id: str) -> list[str]:
    """A letter, and the operations that it was in."""
    key = stored_id(task_id)
    of_it = select(sending.c.operation).where(sending.c.task_id == key).distinct()
    return [key, *connection.execute(of_it).scalars()]


def _id(mark: str) -> int:
    # A number with more digits than any id does not fit into a parameter of a statement.
    if not mark.isascii() or not mark.isdecimal() or len(mark) > _ID_DIGITS:
        raise FilterError(f"{mark[:80]!r} is not a cursor; start again without --after.")
    return int(mark)


class History(StoreRole):
    """The history that the store keeps."""

    @writes
    def prune(self, connection: Connection, bounds: HistoryBounds, *, limit: int) -> int:
        """Delete history that is older than ``bounds``: acts of people, operations that ended and their
        finished sendings, changes of messages, handlings that ended, and the
        counts of letters that died. The sendings, changes and handlings of an open letter
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
    # The limit of an open letter is counted by them.
    yield handling, and_(handling.c.ended_at < before, ~_is_open(handling))
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
