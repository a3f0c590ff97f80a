"""Acts on many letters: letters are discarded, opened again, and deleted, by people, by retention and by
the archive. An act goes chunk by chunk. Each chunk is a transaction that changes letters, the counts, and the
act's audit row."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from sqlalchemy import and_, delete, func, or_, select, update
from sqlalchemy.engine import Connection

from celery_dlq.model.letter import digest_of
from celery_dlq.model.states import (
    CLOSED_STATES,
    DELETABLE_STATES,
    WAITING_REASONS,
    Reason,
    State,
    may_move,
)
from celery_dlq.store.base import Filter, Lease, LetterKey, OngoingAct, Portion
from celery_dlq.store.coordination import check_lease
from celery_dlq.store.database import tables
from celery_dlq.store.database.dialects import dialect_of
from celery_dlq.store.database.namespaces import is_ours
from celery_dlq.store.database.sealing import sealing_of
from celery_dlq.store.database.tables import content, group, letter, parked, sending, term
from celery_dlq.store.database.transactions import StoreRole, Transactions, writes
from celery_dlq.store.letters.parked import UNTOUCHED
from celery_dlq.store.letters.save import save_batch
from celery_dlq.store.rows import audit
from celery_dlq.store.rows.merge import identity, other_id
from celery_dlq.store.rows.query import conditions, in_states, narrow_to, one_of, without_claimed
from celery_dlq.store.rows.rows import Row, fit, parked_letter
from celery_dlq.store.rows.tally import COUNTED_IN, Member, Tally

#: The most letters of one transaction.
CHUNK = 1_000

#: The columns that the counts and a change need.
MEMBER = (
    letter.c.id, letter.c.task_id, letter.c.state, letter.c.fingerprint, letter.c.task,
    letter.c.exception_type, letter.c.last_failed_at, letter.c.queue, letter.c.reason, letter.c.route,
    letter.c.namespace, letter.c.claim_token,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Act:
    """An act: its letters, the change that it makes, and the person and reason for the audit."""

    name: str
    #: The state that the letters get; None if they are deleted.
    target: State | None
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

    def newest_failure(self, connection: Connection) -> datetime | None:
        """The time of the last failure that the act affects. Letters that die while the act runs are not
        affected."""
        found = []
        # One state at a time: so the index has the answer at its end, however many letters there are.
        for state in sorted(self.sources):
            its = in_states([state]), *conditions(connection, self.wanted)
            newest = select(func.max(letter.c.last_failed_at)).where(*its)
            found.append(connection.scalar(newest))
        return max((moment for moment in found if moment is not None), default=None)

    def change_chunk(
        self, connection: Connection, until: datetime, ongoing: OngoingAct, size: int = CHUNK
    ) -> tuple[int, OngoingAct]:
        """Change the next letters; returns how many, and the act for the letters after them."""
        narrow_to(connection, self.wanted)
        changed = self.change_next(connection, until, size)
        return changed, audit.add_to_act(connection, ongoing, changed) if changed else ongoing

    def change_next(self, connection: Connection, until: datetime, size: int = CHUNK) -> int:
        """Change the next letters, without the audit, which the caller writes; returns how many."""
        rows = self._next_rows(connection, until, size)
        if rows and self.target is None:
            delete_rows(connection, rows)
        elif rows:
            self._move(connection, rows)
        return len(rows)

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

    def _move(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Give the letters the new state."""
        assert self.target is not None, "they are not deleted"  # noqa: S101
        closes = self.target is not State.DEAD
        by, why = (self.who, self.why) if closes else ("", "")
        values = fit(letter, {"state": self.target.value, "closed_by": by, "closed_reason": why})
        values["closed_at"] = self.at if closes else None
        these = one_of(connection, letter.c.id, [row["id"] for row in rows])
        in_bulk = dialect_of(connection).in_bulk
        connection.execute(in_bulk(update(letter)).where(these).values(values))
        tally = Tally()
        for row in rows:
            member = Member.of(row)
            tally.change(member, replace(member, state=self.target))
        tally.write(connection)


#: Retries discarded in one transaction.
PARKED_CHUNK = 500


class Closing(StoreRole):
    """Closes letters for good, and opens closed letters again. An act consists of several transactions, each
    complete in itself. Letters that die while an act runs are not affected."""

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
        sources = frozenset({State.DISCARDED}) & (wanted.states or {State.DISCARDED})
        act = Act(
            name="undiscard", target=State.DEAD, wanted=wanted, sources=sources, who=who, why="",
            at=now,
        )  # fmt: skip
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
    def _discard_parked(self, wanted: Filter, act: OngoingAct) -> tuple[int, OngoingAct]:
        """Turn the next retries of ``wanted`` into discarded letters; returns how many. Retries that are
        being sent are not changed."""
        narrow_to(self.connection, wanted)
        waiting = (
            select(parked)
            .where(UNTOUCHED)
            .where(*conditions(self.connection, wanted, parked))
            .order_by(parked.c.id)
            .limit(PARKED_CHUNK)
            .with_for_update()
        )
        rows = self.connection.execute(waiting).mappings().all()
        if not rows:
            return 0, act
        sealing = sealing_of(self.connection)
        letters = [
            parked_letter(sealing.open(parked, row)).with_(
                state=State.DEAD, due_at=None, parking=""
            )
            for row in rows
        ]
        save_batch(self.connection, letters, self._transactions.searched)
        taken = one_of(self.connection, parked.c.id, [row["id"] for row in rows])
        self.connection.execute(delete(parked).where(taken))
        ids = set[str]()
        for one in letters:
            own = identity(one.task, digest_of(one.envelope.body), one.namespace)
            ids |= {one.task_id, other_id(one.task_id, own)}
        others = frozenset(Reason) - WAITING_REASONS
        these = Filter(ids=tuple(sorted(ids)), without_reasons=others)
        closing = _discarding(these, who=act.who, why=act.why, now=act.at)
        until = closing.newest_failure(self.connection)
        if until is not None:
            closing.change_next(self.connection, until)
        return len(rows), audit.add_to_act(self.connection, act, len(rows))


def discard_one(connection: Connection, row: Row, *, who: str, why: str, at: datetime) -> None:
    """Close the ``DEAD`` letter of a locked row for good; audited."""
    act = _discarding(Filter(ids=(row["task_id"],)), who=who, why=why, now=at)
    act.change_chunk(connection, row["last_failed_at"], act.ongoing)


def _discarding(wanted: Filter, *, who: str, why: str, now: datetime) -> Act:
    """The act of closing letters for good. ``REDRIVEN`` letters are included only if that state is named,
    because their messages were sent and may still succeed."""
    named = wanted.states or {State.DEAD}
    sources = frozenset(state for state in named if may_move(state, State.DISCARDED))
    return Act(
        name="discard", target=State.DISCARDED, wanted=wanted, sources=sources, who=who, why=why,
        at=now,
    )  # fmt: skip


#: Other tables whose rows belong to a letter, by its task id.
_OF_LETTER = (tables.attempt, tables.change, tables.handling, tables.auto_hold)


def delete_closed(
    connection: Connection, keys: Sequence[LetterKey], lease: Lease, act: OngoingAct
) -> tuple[int, OngoingAct]:
    """Delete the letters of ``keys``, except letters that have changed since the keys were read, and add the
    number to the audit of ``act``. Returns the number, and the act for the next letters.

    :raises LeaseLost: another process has the lease.
    """
    check_lease(connection, lease)
    rows = _closed_as_they_were(connection, keys)
    if not rows:
        return 0, act
    delete_rows(connection, rows)
    return len(rows), audit.add_to_act(connection, act, len(rows))


class Deleting(StoreRole):
    """Deletes letters for ever."""

    def delete(self, wanted: Filter, *, who: str, why: str, now: datetime) -> int:
        """Delete the letters of ``wanted``: closed ones, and open ones if their states are named; audited.
        Returns how many. The act consists of several transactions, each complete in itself.

        :raises StoreError: the store failed. What was deleted before that stays deleted.
        """
        sources = (wanted.states or CLOSED_STATES) & DELETABLE_STATES
        act = Act(
            name="delete", target=None, wanted=wanted, sources=sources, who=who, why=why, at=now
        )
        return act.carry_out(self._transactions)

    @writes
    def delete_closed(
        self, keys: Sequence[LetterKey], lease: Lease, act: OngoingAct
    ) -> tuple[int, OngoingAct]:
        """:func:`delete_closed`, in a transaction of its own."""
        return delete_closed(self.connection, keys, lease, act)


def _closed_as_they_were(connection: Connection, keys: Sequence[LetterKey]) -> list[Row]:
    """The rows of these letters, locked."""
    as_they_were = {key.task_id: (key.last_failed_at, key.closed_at) for key in keys}
    stored = (
        select(*MEMBER, letter.c.closed_at)
        .where(one_of(connection, letter.c.task_id, sorted(as_they_were)))
        .where(in_states(CLOSED_STATES), is_ours(connection, letter))
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
    """Remove the example messages of groups that have no letters any more."""
    is_empty = and_(*(group.c[name] == 0 for name in sorted(set(COUNTED_IN.values()))))
    these = update(group).where(
        one_of(connection, group.c.fingerprint, sorted(fingerprints)),
        is_empty,
        group.c.message != "",
    )
    connection.execute(these.values(message=""))
