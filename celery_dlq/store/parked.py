"""Retries that wait in the store for their time, and the protocol of their release.

A row is ``parked`` until the broker has confirmed its message, or a worker has run it: then it is
``released``. Before each publication the number of the copy goes up, and the row may not be taken again
for a while. So a release that was killed at any point is repeated, and of its copies a worker runs the
one that it accepts first.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any

from sqlalchemy import ColumnElement, and_, bindparam, delete, func, insert, select, update
from sqlalchemy.engine import Connection

from celery_dlq.letter import DeadLetter
from celery_dlq.states import Reason, State
from celery_dlq.store import audit, clock, closing, deliveries, leases, tables
from celery_dlq.store.base import NO_COPY, Filter, Lease, Release
from celery_dlq.store.namesakes import other_id
from celery_dlq.store.packets import check_sizes
from celery_dlq.store.query import begins_with, conditions, is_parked, one_of
from celery_dlq.store.rows import parked_letter, parked_row, stored_id
from celery_dlq.store.save import save_batch

parked = tables.parked

#: The message is out.
RELEASED = "released"

#: Bytes of messages that are taken at a time: a worker's parent holds them while it sends them.
TAKEN_BYTES = 4 << 20

#: Retries discarded in one transaction.
CHUNK = 500


def park(connection: Connection, letters: Sequence[DeadLetter], now: datetime) -> int:
    """Keep ``letters`` until they are due; returns how many were new.

    :param now: the time by the clock that set their ``due_at``. They are kept by the database's.
    """
    check_sizes(connection, letters)
    ahead = clock.now(connection) - now
    given = {letter.parking: letter for letter in letters}
    known = select(parked.c.parking).where(one_of(connection, parked.c.parking, sorted(given)))
    stored = set(connection.execute(known).scalars())
    rows = [
        parked_row(letter, ahead)
        for parking, letter in sorted(given.items())
        if parking not in stored
    ]
    if rows:
        connection.execute(insert(parked), rows)
    deliveries.forget_messages(connection, (stored_id(letter.task_id) for letter in letters))
    return len(rows)


def take_due(
    connection: Connection, held: Lease, place: str, *, limit: int, hold_s: float
) -> tuple[Release, ...]:
    """Up to ``limit`` retries of ``place`` that are due, the most overdue first, each as the next copy of its
    message; none when the lease is lost. For ``hold_s`` seconds nobody takes them again."""
    if not leases.is_held(connection, held):
        return ()
    now = clock.now(connection)
    due = (
        select(parked.c.id, func.length(parked.c.body) + func.length(parked.c.record))
        .where(is_parked(), parked.c.place == place, parked.c.next_at <= now)
        .order_by(parked.c.next_at, parked.c.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    ids = _first_of([(number, size) for number, size in connection.execute(due)], TAKEN_BYTES)
    if not ids:
        return ()
    taken = one_of(connection, parked.c.id, ids)
    held_until = {"next_at": now + timedelta(seconds=hold_s), "copies": parked.c.copies + 1}
    connection.execute(update(parked).where(taken).values(held_until))
    rows = {row["id"]: row for row in connection.execute(select(parked).where(taken)).mappings()}
    return tuple(
        Release(parking=row["parking"], copy=row["copies"], letter=parked_letter(row))
        for row in map(rows.__getitem__, ids)
    )


def _first_of(sizes: Sequence[tuple[int, int]], most: int) -> list[int]:
    """The ids of the first of ``sizes`` that are ``most`` bytes together; of one at least."""
    totals = accumulate(size for _, size in sizes)
    fitting = sum(1 for total in totals if total <= most)
    return [number for number, _ in sizes[: max(1, fitting)]]


def confirm(connection: Connection, releases: Sequence[Release]) -> None:
    """The broker has them."""
    _settle(connection, releases, {"state": RELEASED, "next_at": clock.now(connection)})


def put_off(connection: Connection, releases: Sequence[Release], delay_s: float) -> None:
    """They were not sent; they may be taken again after ``delay_s`` seconds."""
    later = clock.now(connection) + timedelta(seconds=delay_s)
    _settle(connection, releases, {"next_at": later})


def accept(connection: Connection, copies: Sequence[tuple[str, int]]) -> list[bool]:
    """Which of the ``copies``, each of a parking, may run: those of whose release no other copy has.
    What is not known any more may."""
    of_these = one_of(connection, parked.c.parking, sorted({parking for parking, _ in copies}))
    stored = select(parked.c.id, parked.c.parking, parked.c.accepted).where(of_these)
    rows = connection.execute(stored.order_by(parked.c.parking).with_for_update()).all()
    known = {row.parking: row.accepted for row in rows}
    first = {parking: copy for parking, copy in reversed(copies) if known.get(parking, 0) is None}
    ran = [{"of_id": row.id, "of_copy": first[row.parking]} for row in rows if row.parking in first]
    if ran:
        now = clock.now(connection)
        connection.execute(_RAN, [{**one, "at": now} for one in ran])
    accepted = known | first
    return [accepted.get(parking, copy) == copy for parking, copy in copies]


def take_back(connection: Connection, beginning: str, *, exact: bool) -> bool:
    """Whether a message that came back to its worker may run, which was perhaps parked under a name with
    this ``beginning``. The copy that is parked, or was sent and has not run, will not then.

    :param exact: whether no other message has names that begin so; else one that ran is taken for
        another message's.
    """
    of_these = begins_with(parked.c.parking, beginning)
    stored = select(parked.c.id, parked.c.accepted).where(of_these).order_by(parked.c.id)
    rows = connection.execute(stored.with_for_update()).all()
    waiting = [{"of_id": row.id, "of_copy": NO_COPY} for row in rows if row.accepted is None]
    if waiting:
        now = clock.now(connection)
        connection.execute(_RAN, [{**one, "at": now} for one in waiting])
    ran = {row.accepted for row in rows} - {None, NO_COPY}
    return bool(waiting) or not (exact and ran)


def next_due(connection: Connection, place: str) -> float | None:
    """Seconds until a retry of ``place`` may be taken, below zero when it is overdue; None when none
    waits."""
    waiting = select(func.min(parked.c.next_at)).where(is_parked(), parked.c.place == place)
    first = connection.execute(waiting).scalar_one()
    return None if first is None else float((first - clock.now(connection)).total_seconds())


def prune(connection: Connection, older_than_s: float) -> int:
    """Forget what was released so long ago; returns how many."""
    before = clock.now(connection) - timedelta(seconds=older_than_s)
    old = delete(parked).where(parked.c.state == RELEASED, parked.c.next_at < before)
    return connection.execute(old).rowcount


def make_due(connection: Connection, wanted: Filter, place: str, *, who: str, at: datetime) -> int:
    """Let the retries of ``wanted`` be due now, at ``place``; audited. Those that are being sent are
    left alone."""
    now = clock.now(connection)
    early = update(parked).where(_untouched(), *conditions(connection, wanted, parked))
    moved = connection.execute(early.values(due_at=now, next_at=now, place=place)).rowcount
    if moved:
        audit.write_audit(
            connection, who=who, act="release", count=moved, detail=audit.by_filter(wanted), at=at
        )
    return moved


def overdue(connection: Connection, by_s: float) -> int:
    """How many retries were due so many seconds ago and are not sent."""
    before = clock.now(connection) - timedelta(seconds=by_s)
    late = select(func.count()).select_from(parked).where(is_parked(), parked.c.due_at < before)
    return int(connection.execute(late).scalar_one())


def _untouched() -> ColumnElement[bool]:
    """The retries that wait, and that nobody is about to send."""
    return and_(is_parked(), parked.c.next_at == parked.c.due_at)


def discard_chunk(
    connection: Connection, wanted: Filter, *, who: str, why: str, at: datetime
) -> int:
    """Turn the next retries of ``wanted`` into discarded letters; returns how many. Those that are
    being sent are left alone."""
    waiting = (
        select(parked)
        .where(_untouched())
        .where(*conditions(connection, wanted, parked))
        .order_by(parked.c.id)
        .limit(CHUNK)
        .with_for_update()
    )
    rows = connection.execute(waiting).mappings().all()
    if not rows:
        return 0
    letters = [_as_dead(parked_letter(row)) for row in rows]
    save_batch(connection, letters)
    taken = one_of(connection, parked.c.id, [row["id"] for row in rows])
    connection.execute(delete(parked).where(taken))
    ids = {name for letter in letters for name in (letter.task_id, other_id(letter))}
    these = Filter(ids=tuple(sorted(ids)), reason=Reason.PARKED)
    act = closing.discarding(these, who=who, why=why, now=at)
    until = closing.newest_failure(connection, act)
    if until is not None:
        none_yet = closing.Progress(moved=0, audit_id=None)
        closing.move_chunk(connection, act=act, until=until, progress=none_yet)
    return len(rows)


def find(connection: Connection, task_id: str) -> DeadLetter | None:
    """The retry of ``task_id`` (as stored) that waits and is due first."""
    of_it = select(parked).where(is_parked(), parked.c.task_id == task_id)
    row = connection.execute(of_it.order_by(parked.c.due_at).limit(1)).mappings().one_or_none()
    return None if row is None else parked_letter(row)


def _as_dead(letter: DeadLetter) -> DeadLetter:
    return letter.with_(state=State.DEAD, due_at=None, parking="")


# What is kept from now on is who it was; the message is with its worker.
_RAN = (
    update(parked)
    .where(parked.c.id == bindparam("of_id"))
    .values(state=RELEASED, accepted=bindparam("of_copy"), next_at=bindparam("at"), body=b"")
)


def _settle(connection: Connection, releases: Sequence[Release], values: dict[str, Any]) -> None:
    """Write ``values`` to those of which no further copy was taken meanwhile."""
    if not releases:
        return
    copies = {item.parking: item.copy for item in releases}
    these = one_of(connection, parked.c.parking, sorted(copies))
    stored = select(parked.c.id, parked.c.parking, parked.c.copies).where(these, is_parked())
    # In the order in which their copies are accepted, perhaps at this moment.
    rows = connection.execute(stored.order_by(parked.c.parking).with_for_update()).all()
    ids = [row.id for row in rows if row.copies == copies[row.parking]]
    if ids:
        settled = update(parked).where(one_of(connection, parked.c.id, ids))
        connection.execute(settled.values(values))
