"""The acts of people, each with its result so far, because a redrive continues after its row is written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.engine import Connection

from celery_dlq.errors import FilterError
from celery_dlq.model.operation import Counts
from celery_dlq.store.base import AuditRow, Rows
from celery_dlq.store.database import tables
from celery_dlq.store.database.transactions import StoreRole, reads, writes
from celery_dlq.store.redrive.operations import counts_of, operations_of_group
from celery_dlq.store.redrive.sendings import sendings_of
from celery_dlq.store.rows.audit import REDRIVE, write_audit
from celery_dlq.store.rows.query import Conditions
from celery_dlq.store.rows.rows import Row, stored_id

audit, sending = tables.audit, tables.sending

_READ = tuple(column for column in audit.columns if column is not audit.c.subject)

#: Operations that are looked through for those that chose a group. The filter of each may name many letters.
_OPERATIONS = 50

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
        rows = connection.execute(newest).mappings().all()
        next_mark = str(rows[limit - 1]["id"]) if len(rows) > limit > 0 else None
        shown = _with_results(connection, list(map(_row_from, rows[:limit])), letter)
        return Rows(rows=shown, next=next_mark)

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
    return tuple(_told(row, counts, changes) for row in rows)


def _told(row: AuditRow, counts: Mapping[str, Counts], changes: Mapping[str, str]) -> AuditRow:
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


def _row_from(row: Row) -> AuditRow:
    return AuditRow(**{**row, "detail": json.loads(row["detail"])})
