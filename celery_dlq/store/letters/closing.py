"""Discards letters, and undoes that, chunk by chunk. Each chunk changes the counts and the act's audit
row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.engine import Connection

from celery_dlq.model.states import Reason, State, may_move
from celery_dlq.store.base import Filter
from celery_dlq.store.database import tables
from celery_dlq.store.database.supported import dialect_of
from celery_dlq.store.database.transactions import StoreRole, writes
from celery_dlq.store.letters.parked import untouched
from celery_dlq.store.letters.save import save_batch
from celery_dlq.store.rows import audit
from celery_dlq.store.rows.id_conflicts import other_id
from celery_dlq.store.rows.query import conditions, in_states, one_of
from celery_dlq.store.rows.rows import Row, fit_text, parked_letter
from celery_dlq.store.rows.tally import Member, Tally

letter, parked = tables.letter, tables.parked

#: Letters moved in one transaction.
CHUNK = 1_000

#: Retries discarded in one transaction.
PARKED_CHUNK = 500


@dataclass(frozen=True, kw_only=True)
class _Act:
    """An operator's act: which letters are moved to which state, by whom, and why."""

    name: str
    target: State
    wanted: Filter
    sources: frozenset[State]
    who: str
    why: str
    at: datetime


class Closing(StoreRole):
    """Closes letters for good, and opens closed ones again. An act consists of several transactions, each
    complete in itself. It does not affect letters that die while it runs."""

    def discard(self, wanted: Filter, *, who: str, why: str, now: datetime) -> int:
        """Close ``DEAD`` letters for good, and ``REDRIVEN`` or ``PARKED`` ones when these states are named;
        audited. Returns how many."""
        discarded = 0
        if State.PARKED in wanted.states:
            while moved := self._discard_parked(wanted, who=who, why=why, at=now):
                discarded += moved
            wanted = replace(wanted, states=wanted.states - {State.PARKED})
            if not wanted.states:
                return discarded
        return discarded + self._carry_out(_discarding(wanted, who=who, why=why, now=now))

    def undiscard(self, wanted: Filter, *, who: str, now: datetime) -> int:
        """Open discarded letters again; audited. Returns how many."""
        named = wanted.states & {State.DISCARDED} if wanted.states else {State.DISCARDED}
        act = _act("undiscard", State.DEAD, wanted, named, who=who, why="", at=now)
        return self._carry_out(act)

    def _carry_out(self, act: _Act) -> int:
        until = self._transactions.read(partial(_newest_failure, act=act))
        total = 0
        #: The act's one audit row, written with the first chunk.
        audit_id: int | None = None
        while until is not None:
            step = partial(_move_chunk, act=act, until=until, audit_id=audit_id)
            moved, audit_id = self._transactions.write(step)
            if not moved:
                break
            total += moved
        return total

    @writes
    def _discard_parked(
        self, connection: Connection, wanted: Filter, *, who: str, why: str, at: datetime
    ) -> int:
        """Turn the next retries of ``wanted`` into discarded letters; returns how many. Retries that are
        being sent are not changed."""
        waiting = (
            select(parked)
            .where(untouched())
            .where(*conditions(connection, wanted, parked))
            .order_by(parked.c.id)
            .limit(PARKED_CHUNK)
            .with_for_update()
        )
        rows = connection.execute(waiting).mappings().all()
        if not rows:
            return 0
        letters = [
            parked_letter(row).with_(state=State.DEAD, due_at=None, parking="") for row in rows
        ]
        save_batch(connection, letters)
        taken = one_of(connection, parked.c.id, [row["id"] for row in rows])
        connection.execute(delete(parked).where(taken))
        ids = {name for letter in letters for name in (letter.task_id, other_id(letter))}
        these = Filter(ids=tuple(sorted(ids)), reason=Reason.PARKED)
        act = _discarding(these, who=who, why=why, now=at)
        until = _newest_failure(connection, act)
        if until is not None:
            _move_chunk(connection, act, until, audit_id=None)
        return len(rows)


def discard_one(connection: Connection, row: Row, *, who: str, why: str, at: datetime) -> None:
    """Close the ``DEAD`` letter of a locked row for good; audited."""
    act = _discarding(Filter(ids=(row["task_id"],)), who=who, why=why, now=at)
    _move_chunk(connection, act, row["last_failed_at"], audit_id=None)


def _discarding(wanted: Filter, *, who: str, why: str, now: datetime) -> _Act:
    """The act of closing letters for good. ``REDRIVEN`` letters are included only if that state is named,
    because their messages were sent and may still succeed."""
    named = wanted.states or {State.DEAD}
    return _act("discard", State.DISCARDED, wanted, named, who=who, why=why, at=now)


def _act(name: str, target: State, wanted: Filter, named: Iterable[State], **rest: Any) -> _Act:
    sources = frozenset(state for state in named if may_move(state, target))
    return _Act(name=name, target=target, wanted=wanted, sources=sources, **rest)


def _newest_failure(connection: Connection, act: _Act) -> datetime | None:
    """The time of the last failure that the act affects. It does not affect letters that die while it
    runs."""
    matching = select(func.max(letter.c.last_failed_at)).where(
        in_states(act.sources), *conditions(connection, act.wanted)
    )
    newest: datetime | None = connection.execute(matching).scalar_one()
    return newest


def _move_chunk(
    connection: Connection, act: _Act, until: datetime, audit_id: int | None
) -> tuple[int, int | None]:
    """Move the next letters, with their counts and the audit row; returns how many, and the row's id."""
    rows = _next_rows(connection, act, until)
    if not rows:
        return 0, audit_id
    these = one_of(connection, letter.c.id, [row["id"] for row in rows])
    in_bulk = dialect_of(connection).in_bulk
    connection.execute(in_bulk(update(letter)).where(these).values(_closing(act)))
    tally = Tally()
    for row in rows:
        member = Member.of(row)
        tally.change(member, replace(member, state=act.target))
    tally.write(connection)
    audit_id = audit.write_audit(
        connection, who=act.who, act=act.name, why=act.why, count=len(rows),
        detail=audit.by_filter(act.wanted), at=act.at, row=audit_id,
    )  # fmt: skip
    return len(rows), audit_id


def _next_rows(connection: Connection, act: _Act, until: datetime) -> Sequence[Row]:
    member_columns = (
        letter.c.id, letter.c.state, letter.c.fingerprint, letter.c.task, letter.c.exception_type,
        letter.c.last_failed_at, letter.c.queue, letter.c.reason, letter.c.route,
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


def _closing(act: _Act) -> dict[str, Any]:
    if act.target is State.DEAD:
        return {"state": act.target.value, "closed_at": None, "closed_by": "", "closed_reason": ""}
    return {
        "state": act.target.value,
        "closed_at": act.at,
        "closed_by": fit_text(letter.c.closed_by, act.who),
        "closed_reason": fit_text(letter.c.closed_reason, act.why),
    }
