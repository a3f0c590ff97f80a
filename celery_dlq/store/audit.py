"""The acts of people: one row each."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.engine import Connection

from celery_dlq.codec import dump_json
from celery_dlq.errors import FilterError
from celery_dlq.store import tables
from celery_dlq.store.base import AuditRow, Filter, Rows
from celery_dlq.store.query import Conditions
from celery_dlq.store.rows import Row, fit, stored_id

audit, sending = tables.audit, tables.sending

_READ = tuple(column for column in audit.columns if column is not audit.c.subject)


def write_audit(
    connection: Connection,
    *,
    who: str,
    act: str,
    count: int,
    at: datetime,
    detail: Mapping[str, object],
    why: str = "",
) -> int:
    """One row; returns its id."""
    named = {"who": who, "host": socket.gethostname(), "act": act, "why": why}
    values = fit(audit, {**named, "subject": _subject(detail)})
    written = insert(audit).values(at=at, count=count, detail=dump_json(detail), **values)
    (audit_id,) = connection.execute(written).inserted_primary_key or (0,)
    return int(audit_id)


def add_to_count(connection: Connection, audit_id: int, more: int) -> None:
    """The act of a row was about ``more`` letters than it says."""
    row = update(audit).where(audit.c.id == audit_id)
    connection.execute(row.values(count=audit.c.count + more))


def by_filter(wanted: Filter) -> dict[str, object]:
    """The detail of an act on the letters of a filter."""
    return {"filter": wanted.to_dict()}


def _subject(detail: Mapping[str, Any]) -> str:
    """The operation or the letter that an act was about, where it was one."""
    ids = detail.get("filter", {}).get("ids", ())
    named = detail.get("operation") or detail.get("letter") or (ids[0] if len(ids) == 1 else "")
    return stored_id(str(named))


def read(
    connection: Connection,
    *,
    limit: int,
    after: str | None,
    act: str | None,
    who: str | None,
    since: datetime | None,
    letter: str | None,
) -> Rows[AuditRow]:
    """Rows newest first. Their ids are in the order in which they were written."""
    found: Conditions = [] if after is None else [audit.c.id < _id(after)]
    if act is not None:
        found.append(audit.c.act == act)
    if who is not None:
        found.append(audit.c.who == who)
    if since is not None:
        found.append(audit.c.at >= since)
    if letter is not None:
        found.append(audit.c.subject.in_(_subjects_of(connection, letter)))
    newest = select(*_READ).where(*found).order_by(audit.c.id.desc()).limit(limit + 1)
    rows = connection.execute(newest).mappings().all()
    more = len(rows) > limit > 0
    return Rows(
        rows=tuple(map(_row_from, rows[:limit])), next=str(rows[limit - 1]["id"]) if more else None
    )


def _subjects_of(connection: Connection, task_id: str) -> list[str]:
    """A letter, and the operations that it was in."""
    key = stored_id(task_id)
    of_it = select(sending.c.operation).where(sending.c.task_id == key).distinct()
    return [key, *connection.execute(of_it).scalars()]


def _id(mark: str) -> int:
    try:
        return int(mark)
    except ValueError:
        raise FilterError(f"{mark!r} is no page mark; start again without --after.") from None


def _row_from(row: Row) -> AuditRow:
    return AuditRow(**{**row, "detail": json.loads(row["detail"])})
