"""Discards letters, and undoes that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.engine import Connection

from celery_dlq.model.states import Reason, State, may_move
from celery_dlq.store.base import Filter, OngoingAct
from celery_dlq.store.database import tables
from celery_dlq.store.database.dialects.supported import dialect_of
from celery_dlq.store.database.transactions import StoreRole, writes
from celery_dlq.store.letters.acts import Act
from celery_dlq.store.letters.parked import untouched
from celery_dlq.store.letters.save import save_batch
from celery_dlq.store.rows import audit
from celery_dlq.store.rows.id_conflicts import other_id
from celery_dlq.store.rows.query import conditions, one_of
from celery_dlq.store.rows.rows import Row, fit_text, parked_letter
from celery_dlq.store.rows.tally import Member, Tally

letter, parked = tables.letter, tables.parked

#: Retries discarded in one transaction.
PARKED_CHUNK = 500


class Closing(StoreRole):
    """Closes letters for good, and opens closed ones again. An act consists of several transactions, each
    complete in itself. It does not affect letters that die while it runs."""

    def discard(self, wanted: Filter, *, who: str, why: str, now: datetime) -> int:
        """Close ``DEAD`` letters for good, and ``REDRIVEN`` or ``PARKED`` ones when these states are named;
        audited. Returns how many."""
        discarded = 0
        if State.PARKED in wanted.states:
            discarded = self._discard_all_parked(wanted, who=who, why=why, now=now)
            wanted = replace(wanted, states=wanted.states - {State.PARKED})
            if not wanted.states:
                return discarded
        act = _discarding(wanted, who=who, why=why, now=now)
        return discarded + act.carry_out(self._transactions)

    def undiscard(self, wanted: Filter, *, who: str, now: datetime) -> int:
        """Open discarded letters again; audited. Returns how many."""
        named = wanted.states & {State.DISCARDED} if wanted.states else {State.DISCARDED}
        act = _move("undiscard", State.DEAD, wanted, named, who=who, why="", at=now)
        return act.carry_out(self._transactions)

    def _discard_all_parked(self, wanted: Filter, *, who: str, why: str, now: datetime) -> int:
        detail = audit.by_filter(replace(wanted, states=frozenset({State.PARKED})))
        act = OngoingAct(who=who, act="discard", why=why, detail=detail, at=now)
        discarded = 0
        while True:
            moved, act = self._discard_parked(wanted, act)
            if not moved:
                return discarded
            discarded += moved

    @writes
    def _discard_parked(
        self, connection: Connection, wanted: Filter, act: OngoingAct
    ) -> tuple[int, OngoingAct]:
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
            return 0, act
        letters = [
            parked_letter(row).with_(state=State.DEAD, due_at=None, parking="") for row in rows
        ]
        save_batch(connection, letters, self._transactions.searched)
        taken = one_of(connection, parked.c.id, [row["id"] for row in rows])
        connection.execute(delete(parked).where(taken))
        ids = {
            name
            for letter in letters
            for name in (letter.task_id, other_id(letter.task_id, letter.task))
        }
        these = Filter(ids=tuple(sorted(ids)), reason=Reason.PARKED)
        closing = _discarding(these, who=act.who, why=act.why, now=act.at)
        until = closing.newest_failure(connection)
        if until is not None:
            closing.change_next(connection, until)
        return len(rows), audit.add_to_act(connection, act, len(rows))


def discard_one(connection: Connection, row: Row, *, who: str, why: str, at: datetime) -> None:
    """Close the ``DEAD`` letter of a locked row for good; audited."""
    act = _discarding(Filter(ids=(row["task_id"],)), who=who, why=why, now=at)
    act.change_chunk(connection, row["last_failed_at"], audit_id=None)


def _discarding(wanted: Filter, *, who: str, why: str, now: datetime) -> _Move:
    """The act of closing letters for good. ``REDRIVEN`` letters are included only if that state is named,
    because their messages were sent and may still succeed."""
    named = wanted.states or {State.DEAD}
    return _move("discard", State.DISCARDED, wanted, named, who=who, why=why, at=now)


@dataclass(frozen=True, kw_only=True)
class _Move(Act):
    """An act that moves letters to another state."""

    target: State

    def change(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Move the letters."""
        these = one_of(connection, letter.c.id, [row["id"] for row in rows])
        in_bulk = dialect_of(connection).in_bulk
        connection.execute(in_bulk(update(letter)).where(these).values(self._closing()))
        tally = Tally()
        for row in rows:
            member = Member.of(row)
            tally.change(member, replace(member, state=self.target))
        tally.write(connection)

    def _closing(self) -> dict[str, Any]:
        state = self.target.value
        if self.target is State.DEAD:
            return {"state": state, "closed_at": None, "closed_by": "", "closed_reason": ""}
        return {
            "state": state,
            "closed_at": self.at,
            "closed_by": fit_text(letter.c.closed_by, self.who),
            "closed_reason": fit_text(letter.c.closed_reason, self.why),
        }


def _move(name: str, target: State, wanted: Filter, named: Iterable[State], **rest: Any) -> _Move:
    sources = frozenset(state for state in named if may_move(state, target))
    return _Move(name=name, target=target, wanted=wanted, sources=sources, **rest)
