"""Acts on many letters: letters are discarded, opened again, and deleted, by people, by retention and by
the archive. An act goes chunk by chunk. Each chunk is a transaction that changes letters, the counts, and the
act's audit row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import and_, delete, func, or_, select, update
from sqlalchemy.engine import Connection

from celery_dlq.model.letter import digest_of
from celery_dlq.model.states import CLOSED_STATES, DELETABLE_STATES, Reason, State, may_move
from celery_dlq.store.base import Filter, Lease, LetterKey, OngoingAct, Portion
from celery_dlq.store.coordination import check_lease
from celery_dlq.store.database import tables
from celery_dlq.store.database.dialects import dialect_of
from celery_dlq.store.database.tables import content, group, letter, parked, sending, term
from celery_dlq.store.database.transactions import StoreRole, Transactions, writes
from celery_dlq.store.letters.parked import untouched
from celery_dlq.store.letters.save import save_batch
from celery_dlq.store.rows import audit
from celery_dlq.store.rows.merge import identity, other_id
from celery_dlq.store.rows.query import conditions, in_states, one_of, without_claimed
from celery_dlq.store.rows.rows import Row, fit_text, parked_letter
from celery_dlq.store.rows.tally import COUNTED_IN, Member, Tally

#: The most letters of one transaction.
CHUNK = 1_000

#: The columns that the counts and a change need.
MEMBER = (
    letter.c.id, letter.c.task_id, letter.c.state, letter.c.fingerprint, letter.c.task,
    letter.c.exception_type, letter.c.last_failed_at, letter.c.queue, letter.c.reason, letter.c.route,
    letter.c.claim_token,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Act(ABC):
    """An act: its letters, the change that it makes, and the person and reason for the audit."""

    name: str
    wanted: Filter
    #: Only letters in these states are changed.
    sources: frozenset[State]
    who: str
    why: str
    at: datetime

    def carry_out(self, transactions: Transactions) -> int:
        """Change all letters that failed before the act began; returns how many. A transaction that takes too
        long is tried again with fewer letters.

        :raises StoreError: the store failed. The chunks before that stay changed.
        """
        until = transactions.read(self.newest_failure)
        total, portion, ongoing = 0, Portion(CHUNK), self.ongoing
        while until is not None:
            step = partial(self._write_chunk, transactions, until, ongoing)
            changed, ongoing = portion.attempt(step)
            if not changed:
                break
            total += changed
        return total

    @property
    def ongoing(self) -> OngoingAct:
        """The act for the audit, before its first letters."""
        detail = audit.by_filter(self.wanted)
        return OngoingAct(who=self.who, act=self.name, why=self.why, detail=detail, at=self.at)

    @abstractmethod
    def change(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Change letters, which are locked, and their counts."""

    def newest_failure(self, connection: Connection) -> datetime | None:
        """The time of the last failure that the act affects. It does not affect letters that die while it
        runs."""
        # One state at a time: so the index has the answer at its end, however many letters there are.
        found = [self._newest_failure_in(connection, state) for state in sorted(self.sources)]
        return max((moment for moment in found if moment is not None), default=None)

    def change_chunk(
        self, connection: Connection, until: datetime, ongoing: OngoingAct, size: int = CHUNK
    ) -> tuple[int, OngoingAct]:
        """Change the next letters; returns how many, and the act for the letters after them."""
        changed = self.change_next(connection, until, size)
        return changed, audit.add_to_act(connection, ongoing, changed) if changed else ongoing

    def change_next(self, connection: Connection, until: datetime, size: int = CHUNK) -> int:
        """Change the next letters, without the audit, which the caller writes; returns how many."""
        rows = self._next_rows(connection, until, size)
        if rows:
            self.change(connection, rows)
        return len(rows)

    def _newest_failure_in(self, connection: Connection, state: State) -> datetime | None:
        newest = select(func.max(letter.c.last_failed_at)).where(
            in_states([state]), *conditions(connection, self.wanted)
        )
        moment: datetime | None = connection.execute(newest).scalar_one()
        return moment

    def _write_chunk(
        self, transactions: Transactions, until: datetime, ongoing: OngoingAct, size: int
    ) -> tuple[int, OngoingAct]:
        chunk = partial(self.change_chunk, until=until, ongoing=ongoing, size=size)
        return transactions.write(chunk)

    def _next_rows(self, connection: Connection, until: datetime, size: int) -> Sequence[Row]:
        for state in sorted(self.sources):
            oldest = (
                select(*MEMBER)
                .where(in_states([state]), *conditions(connection, self.wanted))
                .where(letter.c.last_failed_at <= until)
                .order_by(letter.c.last_failed_at, letter.c.id)
                .limit(size)
                .with_for_update()
            )
            while locked := connection.execute(oldest).mappings().all():
                rows = without_claimed(connection, locked)
                if rows:
                    return rows
        return []


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
        ids = set[str]()
        for one in letters:
            own = identity(one.task, digest_of(one.envelope.body))
            ids |= {one.task_id, other_id(one.task_id, own)}
        these = Filter(ids=tuple(sorted(ids)), reason=Reason.PARKED)
        closing = _discarding(these, who=act.who, why=act.why, now=act.at)
        until = closing.newest_failure(connection)
        if until is not None:
            closing.change_next(connection, until)
        return len(rows), audit.add_to_act(connection, act, len(rows))


def discard_one(connection: Connection, row: Row, *, who: str, why: str, at: datetime) -> None:
    """Close the ``DEAD`` letter of a locked row for good; audited."""
    act = _discarding(Filter(ids=(row["task_id"],)), who=who, why=why, now=at)
    act.change_chunk(connection, row["last_failed_at"], act.ongoing)


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


#: Other tables whose rows belong to a letter, by its task id.
_OF_LETTER = (tables.attempt, tables.change, tables.handling, tables.held)


class Deleting(StoreRole):
    """Deletes letters for ever."""

    def delete(self, wanted: Filter, *, who: str, why: str, now: datetime) -> int:
        """Delete the letters of ``wanted``: closed ones, and open ones if their states are named; audited.
        Returns how many. The act consists of several transactions, each complete in itself.

        :raises StoreError: the store failed. What was deleted before that stays deleted.
        """
        sources = (wanted.states or CLOSED_STATES) & DELETABLE_STATES
        act = _Deletion(name="delete", wanted=wanted, sources=sources, who=who, why=why, at=now)
        return act.carry_out(self._transactions)

    @writes
    def delete_closed(
        self, connection: Connection, keys: Sequence[LetterKey], lease: Lease, act: OngoingAct
    ) -> tuple[int, OngoingAct]:
        """Delete the letters of ``keys`` that are still closed as they were; audited. Returns how many, and
        the act for the next letters.

        :raises LeaseLost: another worker has the lease.
        """
        return delete_closed(connection, keys, lease, act)


@dataclass(frozen=True, kw_only=True)
class _Deletion(Act):
    """A person's act that deletes letters."""

    def change(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Delete the letters."""
        delete_rows(connection, rows)


def delete_closed(
    connection: Connection, keys: Sequence[LetterKey], lease: Lease, act: OngoingAct
) -> tuple[int, OngoingAct]:
    """Delete the letters of ``keys`` that are still closed as they were, and add them to the audit of
    ``act``. Returns how many, and the act for the next letters.

    :raises LeaseLost: another process has the lease.
    """
    check_lease(connection, lease)
    rows = _closed_as_they_were(connection, keys)
    if not rows:
        return 0, act
    delete_rows(connection, rows)
    return len(rows), audit.add_to_act(connection, act, len(rows))


def _closed_as_they_were(connection: Connection, keys: Sequence[LetterKey]) -> list[Row]:
    """The rows of these letters, locked."""
    as_they_were = {key.task_id: (key.last_failed_at, key.closed_at) for key in keys}
    stored = (
        select(*MEMBER, letter.c.closed_at)
        .where(one_of(connection, letter.c.task_id, sorted(as_they_were)))
        .where(in_states(CLOSED_STATES))
        .order_by(letter.c.id)
        .with_for_update()
    )
    return [
        row
        for row in connection.execute(stored).mappings()
        if as_they_were[row["task_id"]] == (row["last_failed_at"], row["closed_at"])
    ]


def delete_rows(connection: Connection, rows: Sequence[Row]) -> None:
    """Delete the letters of locked rows, which have the columns of
    :data:`~celery_dlq.store.letters.acts.MEMBER`."""
    ids, task_ids = [row["id"] for row in rows], sorted(row["task_id"] for row in rows)
    connection.execute(delete(content).where(one_of(connection, content.c.id, ids)))
    connection.execute(delete(term).where(one_of(connection, term.c.letter, ids)))
    for table in _OF_LETTER:
        connection.execute(delete(table).where(one_of(connection, table.c.task_id, task_ids)))
    of_these = one_of(connection, sending.c.task_id, task_ids)
    has_texts = or_(sending.c.why != "", sending.c.change != "")
    connection.execute(update(sending).where(and_(of_these, has_texts)).values(why="", change=""))
    connection.execute(delete(letter).where(one_of(connection, letter.c.id, ids)))
    tally = Tally()
    for row in rows:
        tally.leave(Member.of(row))
    tally.write(connection)
    empty_examples(connection, {row["fingerprint"] for row in rows})


def empty_examples(connection: Connection, fingerprints: Collection[str]) -> None:
    """Remove the example messages of those groups that have no letters any more."""
    is_empty = and_(*(group.c[name] == 0 for name in sorted(set(COUNTED_IN.values()))))
    these = update(group).where(
        one_of(connection, group.c.fingerprint, sorted(fingerprints)),
        is_empty,
        group.c.message != "",
    )
    connection.execute(these.values(message=""))
