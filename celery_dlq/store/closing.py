"""Discarding letters and taking that back, chunk by chunk, each with its counts and its audit row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.engine import Connection

from celery_dlq.states import State, may_move
from celery_dlq.store import audit, tables
from celery_dlq.store.base import Filter
from celery_dlq.store.drivers import in_bulk
from celery_dlq.store.query import conditions, in_states, one_of
from celery_dlq.store.rows import Row, fit
from celery_dlq.store.tally import Member, Tally

letter = tables.letter

#: Letters moved in one transaction.
CHUNK = 1_000


@dataclass(frozen=True, kw_only=True)
class Act:
    """An operator's act: what is moved where, by whom, and why."""

    name: str
    target: State
    wanted: Filter
    sources: frozenset[State]
    who: str
    why: str
    at: datetime


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far an act has come."""

    moved: int
    #: The act's one audit row, written with the first chunk.
    audit_id: int | None


def discarding(wanted: Filter, *, who: str, why: str, now: datetime) -> Act:
    """Closing for good. ``REDRIVEN`` letters are meant only when they are named: their message is
    out, and may still succeed."""
    named = wanted.states or {State.DEAD}
    return _act("discard", State.DISCARDED, wanted, named, who=who, why=why, at=now)


def undiscarding(wanted: Filter, *, who: str, now: datetime) -> Act:
    """Opening discarded letters again."""
    named = wanted.states & {State.DISCARDED} if wanted.states else {State.DISCARDED}
    return _act("undiscard", State.DEAD, wanted, named, who=who, why="", at=now)


def _act(name: str, target: State, wanted: Filter, named: Iterable[State], **rest: Any) -> Act:
    sources = frozenset(state for state in named if may_move(state, target))
    return Act(name=name, target=target, wanted=wanted, sources=sources, **rest)


def newest_failure(connection: Connection, act: Act) -> datetime | None:
    """Where the act ends: letters that die while it runs are not swept in."""
    matching = select(func.max(letter.c.last_failed_at)).where(
        in_states(act.sources), *conditions(connection, act.wanted)
    )
    newest: datetime | None = connection.execute(matching).scalar_one()
    return newest


def move_chunk(
    connection: Connection, *, act: Act, until: datetime, progress: Progress
) -> Progress:
    """Move the next letters, with their counts and the audit row; the same progress again when
    there was none left."""
    rows = _next_rows(connection, act, until)
    if not rows:
        return progress
    these = one_of(connection, letter.c.id, [row["id"] for row in rows])
    connection.execute(in_bulk(update(letter)).where(these).values(_closing(act)))
    tally = Tally()
    for row in rows:
        member = Member.of(row)
        tally.change(member, replace(member, state=act.target))
    tally.write(connection)
    audit_id = _count(connection, act, len(rows), progress.audit_id)
    return Progress(moved=progress.moved + len(rows), audit_id=audit_id)


def _next_rows(connection: Connection, act: Act, until: datetime) -> Sequence[Row]:
    member_columns = (
        letter.c.id, letter.c.state, letter.c.fingerprint, letter.c.task, letter.c.exception_type,
        letter.c.last_failed_at, letter.c.queue, letter.c.reason,
    )  # fmt: skip
    for state in sorted(act.sources):
        oldest = (
            select(*member_columns)
            .where(in_states([state]), *conditions(connection, act.wanted))
            .where(letter.c.last_failed_at <= until)
            .order_by(letter.c.last_failed_at, letter.c.id)
            .limit(CHUNK)
            .with_for_update()
        )
        rows = connection.execute(oldest).mappings().all()
        if rows:
            return rows
    return []


def _closing(act: Act) -> dict[str, Any]:
    if act.target is State.DEAD:
        return {"state": act.target.value, "closed_at": None, "closed_by": "", "closed_reason": ""}
    by_whom = fit(letter, {"closed_by": act.who, "closed_reason": act.why})
    return {"state": act.target.value, "closed_at": act.at, **by_whom}


def _count(connection: Connection, act: Act, moved: int, audit_id: int | None) -> int:
    if audit_id is not None:
        audit.add_to_count(connection, audit_id, moved)
        return audit_id
    return audit.write_audit(
        connection, who=act.who, act=act.name, why=act.why, count=moved,
        detail=audit.by_filter(act.wanted), at=act.at,
    )  # fmt: skip
