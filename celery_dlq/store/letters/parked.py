"""Retries that wait in the store for their time, and the protocol of their release.

A row is ``parked`` until the broker has confirmed its message, or a worker has run it: then it is
``released``. Before each publication the number of the copy goes up, and the row may not be taken again
for a while. So a release that is killed at any point is repeated, and workers run only the one of its copies
that is accepted first.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import and_, bindparam, case, delete, func, insert, or_, select, update
from sqlalchemy.engine import Connection

from celery_dlq.model.headers import doubtful_parking
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.states import Reason
from celery_dlq.store.base import NO_COPY, PARKED_OVERDUE_S, Filter, Lease, Release, UnsentAt
from celery_dlq.store.coordination import end_deliveries, is_held
from celery_dlq.store.database import clock
from celery_dlq.store.database.namespaces import is_ours
from celery_dlq.store.database.sealing import sealing_of
from celery_dlq.store.database.tables import parked
from celery_dlq.store.database.transactions import StoreRole, reads, writes
from celery_dlq.store.rows import audit, query
from celery_dlq.store.rows.bodies import check_sizes, within
from celery_dlq.store.rows.query import IS_PARKED, begins_with, conditions, count_rows, one_of
from celery_dlq.store.rows.rows import parked_row, shown_parked, stored_id
from celery_dlq.store.rows.tally import Member, Tally

logger: logging.Logger = logging.getLogger("celery_dlq")

#: The message was sent.
RELEASED = "released"

#: Bytes of messages that are taken at a time: a worker's parent holds them while it sends them.
TAKEN_BYTES = 4 << 20

#: The retries that wait, and that certainly were not sent.
UNTOUCHED = and_(IS_PARKED, parked.c.copies == 0)

_SIZE = (func.length(parked.c.body) + func.length(parked.c.record)).label("size")


_IS_UNSENT = parked.c.reason == Reason.UNSENT.value


def count_overdue(connection: Connection) -> int:
    """How many retries were due :data:`~celery_dlq.store.base.PARKED_OVERDUE_S` seconds ago and have not been
    sent."""
    before = clock.now(connection) - timedelta(seconds=PARKED_OVERDUE_S)
    return count_rows(connection, parked, IS_PARKED, ~_IS_UNSENT, parked.c.due_at < before)


def unsent_by_place(connection: Connection) -> tuple[UnsentAt, ...]:
    """The messages that brokers did not take from their senders, and that have not been sent since."""
    added = select(
        parked.c.place,
        func.count().label("messages"),
        func.min(parked.c.last_failed_at).label("since"),
    )
    these = IS_PARKED, _IS_UNSENT, is_ours(connection, parked)
    rows = connection.execute(added.where(*these).group_by(parked.c.place)).mappings()
    return tuple(UnsentAt(**row) for row in rows)


class Parked(StoreRole):
    """Retries that wait, and their releases."""

    @writes
    def park(self, letters: Sequence[DeadLetter], *, now: datetime) -> int:
        """Keep ``letters`` until they are due, and forget their messages' deliveries; returns how many were
        new.

        :param now: the time by the clock that set their ``due_at``. They are stored by the database's clock.
        """
        if not letters:
            return 0
        given = {letter.parking: letter for letter in letters}
        known = select(parked.c.parking).where(
            one_of(self.connection, parked.c.parking, sorted(given))
        )
        stored = set(self.connection.scalars(known))
        new = [letter for parking, letter in sorted(given.items()) if parking not in stored]
        if new:
            tally = Tally()
            for row in self._insert(new, clock.now(self.connection), now):
                if row["reason"] == Reason.UNSENT.value:
                    tally.wait(Member.of(row))
            tally.write(self.connection)
        end_deliveries(self.connection, (stored_id(letter.task_id) for letter in letters))
        return len(new)

    def park_within(
        self, connection: Any, dialect: Any, letter: DeadLetter, *, at: datetime, now: datetime
    ) -> None:
        """Keep ``letter``, of a new message, in the transaction of the application; see
        :meth:`~celery_dlq.store.database.engine.Database.join`.

        :param at: the time by the database's clock; and ``now``, by the one that set the letter's ``due_at``.
        """
        self._transactions.join(
            connection, dialect, lambda joined: self.within(joined)._insert([letter], at, now)
        )

    def _insert(
        self, letters: Sequence[DeadLetter], at: datetime, now: datetime
    ) -> list[dict[str, Any]]:
        check_sizes(self.connection, letters)
        sealing, redactor = sealing_of(self.connection), self._transactions.searched.redactor
        rows = [
            sealing.seal(
                parked, parked_row(one, redactor, at, at - now), sealing.label_for(one.subject)
            )
            for one in letters
        ]
        self.connection.execute(insert(parked), rows)
        return rows

    @writes
    def take_due(
        self, held: Lease, place: str, *, limit: int, hold_s: float
    ) -> tuple[Release, ...]:
        """Up to ``limit`` retries of ``place`` that are due, the most overdue first, each as the next copy of
        its message; none if the lease is lost. A retry is not taken again for ``hold_s`` seconds. After that,
        a release without a confirmation is taken again."""
        if not is_held(self.connection, held):
            return ()
        now = clock.now(self.connection)
        due = (
            select(parked.c.id, _SIZE)
            .where(self.ours(parked), IS_PARKED)
            .where(parked.c.place == place, parked.c.next_at <= now)
            .order_by(parked.c.next_at, parked.c.id)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        found = self.connection.execute(due).all()
        if not found:
            return ()
        ids = [row.id for row in found[: within((row.size for row in found), TAKEN_BYTES)]]
        taken = one_of(self.connection, parked.c.id, ids)
        rows = {
            row["id"]: (row["parking"], row["copies"] + 1, shown_parked(self.connection, row))
            for row in self.connection.execute(select(parked).where(taken)).mappings()
        }
        unread = [one for one in ids if rows[one][-1].unreadable]
        copy = case((one_of(self.connection, parked.c.id, unread), 0), else_=1) if unread else 1
        held_until = {"next_at": now + timedelta(seconds=hold_s), "copies": parked.c.copies + copy}
        self.connection.execute(update(parked).where(taken).values(held_until))
        if unread:
            letter = rows[unread[0]][-1]
            logger.error(
                "%d parked retries stay parked, the first of them %s: %s",
                len(unread), letter.task_id, letter.unreadable,
            )  # fmt: skip
        return tuple(
            Release(parking=parking, copy=copy, letter=letter)
            for parking, copy, letter in map(rows.__getitem__, ids)
            if not letter.unreadable
        )

    @writes
    def confirm(self, releases: Sequence[Release]) -> None:
        """The broker has confirmed the messages of ``releases``, which are no longer parked."""
        _settle(
            self.connection, releases, {"state": RELEASED, "next_at": clock.now(self.connection)}
        )

    @writes
    def put_off(self, releases: Sequence[Release], *, delay_s: float) -> None:
        """The ``releases`` were certainly not sent, and may be taken again after ``delay_s`` seconds."""
        later = clock.now(self.connection) + timedelta(seconds=delay_s)
        # The next copy has the same number: no other message has it.
        _settle(self.connection, releases, {"next_at": later, "copies": parked.c.copies - 1})

    @writes
    def accept(self, copies: Sequence[tuple[str, int]]) -> list[bool]:
        """Which of ``copies`` (parking, copy) a worker may run: those whose release has no other accepted
        copy. The answer for a copy is the same however often it is asked for. Unknown copies may run."""
        of_these = one_of(
            self.connection, parked.c.parking, sorted({parking for parking, _ in copies})
        )
        stored = select(parked.c.id, parked.c.parking, parked.c.accepted).where(of_these)
        stored = stored.where(self.ours(parked))
        rows = self.connection.execute(stored.order_by(parked.c.parking).with_for_update()).all()
        known = {row.parking: row.accepted for row in rows}
        first = {
            parking: copy for parking, copy in reversed(copies) if known.get(parking, 0) is None
        }
        ran = [
            {"of_id": row.id, "of_copy": first[row.parking]} for row in rows if row.parking in first
        ]
        if ran:
            now = clock.now(self.connection)
            self.connection.execute(_RAN, [{**one, "at": now} for one in ran])
        accepted = known | first
        return [accepted.get(parking, copy) == copy for parking, copy in copies]

    @reads
    def in_doubt(self, place: str) -> frozenset[str]:
        """The names of the messages that their senders may have sent to ``place``, by
        :func:`~celery_dlq.model.headers.doubtful_parking`. This includes messages that have run as another
        copy."""
        beginning = doubtful_parking(place, "")
        stored = select(parked.c.parking).where(begins_with(parked.c.parking, beginning))
        # If the broker delivers a first copy again that has run, it may run, as any message.
        stored = stored.where(parked.c.accepted.is_distinct_from(1))
        found = self.connection.scalars(stored.where(self.ours(parked)))
        return frozenset(parking.removeprefix(beginning) for parking in found)

    @writes
    def take_back(self, beginning: str, *, exact: bool) -> bool:
        """Whether a message that came back to its worker may run. If the message was parked under a name with
        this ``beginning``, a copy that waits, or that was sent and has not run, will not run.

        :param exact: whether only this message has names with this beginning. Otherwise, a copy that ran is
            taken for another message's.
        """
        of_these = begins_with(parked.c.parking, beginning), self.ours(parked)
        stored = select(parked.c.id, parked.c.accepted).where(*of_these).order_by(parked.c.id)
        rows = self.connection.execute(stored.with_for_update()).all()
        waiting = [{"of_id": row.id, "of_copy": NO_COPY} for row in rows if row.accepted is None]
        if waiting:
            now = clock.now(self.connection)
            self.connection.execute(_RAN, [{**one, "at": now} for one in waiting])
        ran = {row.accepted for row in rows} - {None, NO_COPY}
        return bool(waiting) or not (exact and ran)

    @reads
    def next_due(self, place: str) -> float | None:
        """Seconds until a retry of ``place`` may be taken, below zero if the retry is overdue; None if no
        retry waits."""
        waiting = select(func.min(parked.c.next_at)).where(IS_PARKED, parked.c.place == place)
        first = self.connection.scalar(waiting.where(self.ours(parked)))
        return (
            None if first is None else float((first - clock.now(self.connection)).total_seconds())
        )

    @reads
    def overdue(self) -> int:
        """:func:`count_overdue`, in a transaction of its own."""
        return count_overdue(self.connection)

    @reads
    def unsent(self) -> tuple[UnsentAt, ...]:
        """:func:`unsent_by_place`, in a transaction of its own."""
        return unsent_by_place(self.connection)

    @writes
    def make_due(self, wanted: Filter, *, place: str, who: str, now: datetime) -> int:
        """Make the retries of ``wanted`` due now, at ``place``, wherever they were parked; audited. The
        states of ``wanted`` are ignored. Retries that are being sent, or that their sender may have sent, are
        not changed before they may be sent again."""
        query.narrow_to(self.connection, wanted)
        at = clock.now(self.connection)
        is_free = or_(UNTOUCHED, and_(IS_PARKED, parked.c.next_at <= at))
        early = update(parked).where(is_free, *conditions(self.connection, wanted, parked))
        moved = self.connection.execute(early.values(due_at=at, next_at=at, place=place)).rowcount
        if moved:
            audit.write_audit(
                self.connection, who=who, act="unpark", count=moved,
                detail=audit.by_filter(wanted), at=now,
            )  # fmt: skip
        return moved

    @writes
    def prune(self, *, older_than_s: float) -> int:
        """Delete the retries that were released this many seconds ago or earlier; returns how many. Another
        copy of such a retry would run."""
        before = clock.now(self.connection) - timedelta(seconds=older_than_s)
        old = delete(parked).where(parked.c.state == RELEASED, parked.c.next_at < before)
        return self.connection.execute(old.where(self.ours(parked))).rowcount


def waiting_retry(connection: Connection, task_id: str) -> DeadLetter | None:
    """The retry of ``task_id`` (as stored) that waits and is due first."""
    its = IS_PARKED, parked.c.task_id == task_id, is_ours(connection, parked)
    of_it = select(parked).where(*its)
    row = connection.execute(of_it.order_by(parked.c.due_at).limit(1)).mappings().one_or_none()
    return None if row is None else shown_parked(connection, row)


# A worker has the message, so neither its body nor its arguments are kept any longer.
_RAN = (
    update(parked)
    .where(parked.c.id == bindparam("of_id"))
    .values(
        state=RELEASED,
        accepted=bindparam("of_copy"),
        next_at=bindparam("at"),
        body=b"",
        record=b"",
        message="",
        args="null",
        kwargs="null",
    )
)


def _settle(connection: Connection, releases: Sequence[Release], values: dict[str, Any]) -> None:
    """Write ``values`` to the ``releases`` that have not been taken again."""
    if not releases:
        return
    copies = {item.parking: item.copy for item in releases}
    these = one_of(connection, parked.c.parking, sorted(copies))
    stored = select(parked.c.id, parked.c.parking, parked.c.copies).where(these, IS_PARKED)
    # In the order in which copies are accepted, which may happen at the same time.
    rows = connection.execute(stored.order_by(parked.c.parking).with_for_update()).all()
    ids = [row.id for row in rows if row.copies == copies[row.parking]]
    if ids:
        settled = update(parked).where(one_of(connection, parked.c.id, ids))
        connection.execute(settled.values(values))
