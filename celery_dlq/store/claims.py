"""Taking letters for a redrive, and giving them back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Update, and_, select, update
from sqlalchemy.engine import Connection

from celery_dlq.states import State
from celery_dlq.store import tables
from celery_dlq.store.base import Claim, Filter
from celery_dlq.store.query import Conditions, conditions, in_states, one_of
from celery_dlq.store.rows import Row, letter_from, stored_id

letter = tables.letter

#: Columns that a redrive does without, and those that the claim itself sets or that only closed
#: letters have: each costs every letter.
_NOT_CLAIMED = frozenset({
    "traceback", "args", "kwargs", "evidence", "path", "tags", "last_redrive",
    "state", "claim_token", "lease_expires_at", "closed_at", "closed_by", "closed_reason",
})  # fmt: skip
_CLAIMED = tuple(column for column in letter.columns if column.name not in _NOT_CLAIMED)

_FREE: dict[str, Any] = {
    "state": State.DEAD.value,
    "claim_token": None,
    "lease_expires_at": None,
}


def claim(
    connection: Connection,
    wanted: Filter,
    *,
    token: str,
    lease_until: datetime,
    limit: int,
    now: datetime,
) -> Claim:
    """Take up to ``limit`` letters, oldest failure first, skipping those that another claim is
    just taking."""
    rows = _lock(connection, _sources(wanted, now), conditions(connection, wanted), limit)
    held = {"state": State.CLAIMED.value, "claim_token": token, "lease_expires_at": lease_until}
    if rows:
        taken = one_of(connection, letter.c.id, [row["id"] for row in rows])
        connection.execute(update(letter).where(taken).values(held))
    rows.sort(key=lambda row: (row["last_failed_at"], row["id"]))
    return Claim(token=token, letters=tuple(letter_from({**row, **held}) for row in rows))


def confirm(connection: Connection, token: str, ids: Sequence[str]) -> int:
    """``CLAIMED`` under ``token`` becomes ``REDRIVEN``; the redrive counts."""
    sent = {**_FREE, "state": State.REDRIVEN.value, "redrive_count": letter.c.redrive_count + 1}
    return connection.execute(_held(connection, token, ids).values(sent)).rowcount


def release(connection: Connection, token: str, ids: Sequence[str]) -> int:
    """``CLAIMED`` under ``token`` becomes ``DEAD`` again."""
    return connection.execute(_held(connection, token, ids).values(_FREE)).rowcount


def rescue(connection: Connection, now: datetime) -> int:
    """Claims whose lease has ended become ``DEAD`` again."""
    return connection.execute(update(letter).where(_expired(now)).values(_FREE)).rowcount


def _sources(wanted: Filter, now: datetime) -> list[ColumnElement[bool]]:
    """Where letters may be taken from; one query each, because the index is in the order of time
    only within one state."""
    states = wanted.states or {State.DEAD}
    sources = []
    if states & {State.DEAD, State.CLAIMED}:
        sources.append(_expired(now))
    if State.DEAD in states:
        sources.append(in_states([State.DEAD]))
    if State.REDRIVEN in states:
        sources.append(in_states([State.REDRIVEN]))
    return sources


def _lock(
    connection: Connection, sources: list[ColumnElement[bool]], found: Conditions, limit: int
) -> list[Row]:
    rows: list[Row] = []
    for source in sources:
        oldest = (
            select(*_CLAIMED)
            .where(source, *found)
            .order_by(letter.c.last_failed_at, letter.c.id)
            .limit(limit - len(rows))
            .with_for_update(skip_locked=True)
        )
        taken = connection.execute(oldest)
        # Mappings and rows fetched one by one cost more than the server takes.
        rows += [dict(zip(taken.keys(), row, strict=True)) for row in taken.all()]
    return rows


def _expired(now: datetime) -> ColumnElement[bool]:
    return and_(in_states([State.CLAIMED]), letter.c.lease_expires_at <= now)


def _held(connection: Connection, token: str, ids: Sequence[str]) -> Update:
    return update(letter).where(
        one_of(connection, letter.c.task_id, [stored_id(item) for item in ids]),
        letter.c.claim_token == token,
        in_states([State.CLAIMED]),
    )
