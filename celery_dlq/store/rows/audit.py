"""Writes the audit, one row for each act of a person; and reports, one row for each name."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.engine import Connection

from celery_dlq.base.codec import dump_json
from celery_dlq.base.redact import KNOWN
from celery_dlq.store.base import Filter, OngoingAct
from celery_dlq.store.database import chain, tables
from celery_dlq.store.database.namespaces import is_ours
from celery_dlq.store.database.sealing import sealing_of
from celery_dlq.store.database.tables import audit, group
from celery_dlq.store.rows.query import begins_with
from celery_dlq.store.rows.rows import fit, replace_rows, stored_id

#: The name of the act that creates an operation.
REDRIVE = "redrive"


def write_audit(
    connection: Connection,
    *,
    who: str,
    act: str,
    count: int,
    at: datetime,
    detail: Mapping[str, object],
    why: str = "",
    row: int | None = None,
    sealed_by: str = "",
) -> int:
    """Write a row for an act on ``count`` letters, without secrets, or add to one; returns its id.

    :param row: the row of an act that is done in parts. ``count`` is added to its count.
    :param sealed_by: of the letter whose contents are in the detail.
    """
    if row is not None:
        more = update(audit).where(audit.c.id == row)
        connection.execute(more.values(count=audit.c.count + count))
        chain.note(connection, [row])
        return row
    named = {"who": who, "host": socket.gethostname(), "act": act, "why": why}
    values = fit(audit, {**named, "subject": _subject(connection, detail)})
    values |= {"at": at, "count": count, "detail": dump_json(KNOWN.hidden(detail))}
    written = insert(audit).values(sealing_of(connection).seal(audit, values, sealed_by))
    (audit_id,) = connection.execute(written).inserted_primary_key or (0,)
    chain.note(connection, [int(audit_id)])
    return int(audit_id)


def add_to_act(connection: Connection, act: OngoingAct, count: int) -> OngoingAct:
    """Record that ``act`` was done to ``count`` more letters; returns it for the next transaction."""
    row = write_audit(
        connection, who=act.who, act=act.act, why=act.why, count=count, at=act.at,
        detail=act.detail, row=act.row,
    )  # fmt: skip
    return replace(act, row=row)


def write_reports(
    connection: Connection, details: Mapping[str, Mapping[str, Any]], now: datetime
) -> None:
    """Write reports, each with its detail after its name, instead of the earlier ones of these names."""
    rows = [
        {"name": name, "at": now, "detail": dump_json(detail)} for name, detail in details.items()
    ]
    replace_rows(connection, tables.report, rows, ("at", "detail"))


def by_filter(wanted: Filter) -> dict[str, object]:
    """The detail of an act on the letters of a filter."""
    return {"filter": wanted.noted.to_dict()}


def _subject(connection: Connection, detail: Mapping[str, Any]) -> str:
    """The operation, the letter or the group that an act was about; empty if it was about other letters."""
    wanted = detail.get("filter", {})
    ids = wanted.get("ids", ())
    one = ids[0] if len(ids) == 1 else ""
    named = detail.get("operation") or detail.get("letter") or one or detail.get("group")
    return stored_id(str(named or _whole(connection, wanted.get("group") or "")))


def _whole(connection: Connection, prefix: str) -> str:
    """The only fingerprint that begins with ``prefix``, which people may type; otherwise ``prefix``."""
    if not prefix:
        return ""
    its = is_ours(connection, group), begins_with(group.c.fingerprint, prefix)
    begins = select(group.c.fingerprint).where(*its)
    found = connection.scalars(begins.distinct().limit(2)).all()
    return found[0] if len(found) == 1 else prefix
