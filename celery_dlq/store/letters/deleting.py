"""Deletes letters, with everything that belongs to them.

The counts that never fall keep their value. The rows of a letter's redrives stay without their texts, as long
as other history: they are the counts of operations, and tell workers which copies of a message have run.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import and_, delete, or_, select, update
from sqlalchemy.engine import Connection

from celery_dlq.model.states import CLOSED_STATES, DELETABLE_STATES
from celery_dlq.store.base import Filter, Lease, LetterKey, OngoingAct
from celery_dlq.store.coordination.leases import check_lease
from celery_dlq.store.database import tables
from celery_dlq.store.database.transactions import StoreRole, writes
from celery_dlq.store.letters.acts import MEMBER, Act
from celery_dlq.store.rows import audit
from celery_dlq.store.rows.query import in_states, one_of
from celery_dlq.store.rows.rows import Row
from celery_dlq.store.rows.tally import COUNTED_IN, Member, Tally

letter, content, term = tables.letter, tables.content, tables.term
sending, group = tables.sending, tables.group

#: Other tables whose rows belong to a letter, by its task id.
_OF_LETTER = (
    tables.attempt, tables.change, tables.handling, tables.auto_letter, tables.held,
)  # fmt: skip


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
