"""Other judgements of letters that are stored: no letter moves, so no count changes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import update
from sqlalchemy.engine import Connection

from celery_dlq.store import audit, tables
from celery_dlq.store.base import Filter, NewVerdict
from celery_dlq.store.rows import fit, stored_id

#: Letters changed in one transaction.
CHUNK = 500


def reclassify(
    connection: Connection,
    changes: Sequence[NewVerdict],
    *,
    wanted: Filter,
    who: str,
    now: datetime,
    audit_id: int | None,
) -> tuple[int, int]:
    """Change one chunk; returns how many letters were changed, and the id of the act's audit row."""
    # In one order throughout, so that two of these wait for each other.
    done = sum(_change(connection, change) for change in sorted(changes, key=_by_id))
    if audit_id is None:
        detail = audit.by_filter(wanted)
        audit_id = audit.write_audit(
            connection, who=who, act="reclassify", count=done, detail=detail, at=now
        )
    else:
        audit.add_to_count(connection, audit_id, done)
    return done, audit_id


def _by_id(change: NewVerdict) -> str:
    return stored_id(change.task_id)


def _change(connection: Connection, change: NewVerdict) -> int:
    letter, why = tables.letter, change.explanation
    values = fit(letter, {**vars(why), "verdict": why.verdict.value})
    changed = update(letter).where(
        letter.c.task_id == stored_id(change.task_id), letter.c.last_failed_at == change.failed_at
    )
    return connection.execute(changed.values(values)).rowcount
