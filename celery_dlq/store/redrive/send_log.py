"""The letters of an operation: claimed for it, marked as sent, skipped, or given back.

A sending is written together with the claim, before its message can be sent, and says that it was sent. As
long as the claim exists (:mod:`~celery_dlq.store.redrive.claims`), the sending counts as being sent.

If a redrive is killed, its claim ends with its lease. The sendings then become ``sending``, under the
same number: it is unknown whether the broker has their messages. The letters can be claimed again. Of all
copies of a message, also those of another operation, a worker runs one
(:func:`~celery_dlq.store.redrive.sendings.judge`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, and_, bindparam, case, delete, func, literal, select, update
from sqlalchemy.engine import Connection

from celery_dlq.base.redact import clip
from celery_dlq.model.operation import SendingState
from celery_dlq.store.base import Claim, Filter, Operation
from celery_dlq.store.database.client import FOR_A_REDRIVE
from celery_dlq.store.database.columns import Moment
from celery_dlq.store.database.dialects import dialect_of
from celery_dlq.store.database.tables import letter, sending
from celery_dlq.store.database.transactions import StoreRole, Transactions, reads, writes
from celery_dlq.store.listener import StoreListener
from celery_dlq.store.redrive import claims
from celery_dlq.store.redrive.claims import ID
from celery_dlq.store.rows.query import one_of
from celery_dlq.store.rows.rows import fit_text, stored_id

#: Characters of a reason.
WHY_LIMIT = 500

_SENDING = sending.c.state == SendingState.SENDING.value
_SENT = sending.c.state == SendingState.SENT.value
# Not by the state, or PostgreSQL looks for one letter among all that have it.
_UNDECIDED = and_(sending.c.sent_at.is_(None), sending.c.ended_at.is_(None))

_UNHEARD = {"state": SendingState.UNKNOWN.value, "why": "its task reports no outcome"}


class Claims(StoreRole):
    """The letters that redrives hold, and the rows that are written with them.

    :param listener: is notified of the letters that the broker has confirmed.
    """

    def __init__(self, transactions: Transactions, listener: StoreListener) -> None:
        super().__init__(transactions)
        self._listener = listener

    @property
    def at_once(self) -> int:
        """How many claims are worth making at the same time."""
        # A SQLite file has one writer; a second one would wait and look again.
        return 1 if self._transactions.database.dialect.has_one_writer else 2

    def while_redriving(self) -> AbstractContextManager[None]:
        """Allow the connections that a redrive needs, in addition to the process's usual ones."""
        return self._transactions.database.extended(FOR_A_REDRIVE)

    @reads
    def first_ids(self, connection: Connection, wanted: Filter, limit: int) -> list[str]:
        """The task ids of the first ``limit`` letters that a redrive of ``wanted`` takes, in its order."""
        return claims.first_ids(connection, wanted, limit)

    @writes
    def take(
        self,
        connection: Connection,
        operation: Operation,
        *,
        token: str,
        lease_until: datetime,
        limit: int,
        now: datetime,
        of_every_cause: bool = False,
    ) -> Claim:
        """Claim up to ``limit`` letters for ``operation``, oldest failure first; fewer if their bodies have
        more than 16 MiB together. The letters have their messages, but only the fields of the failure that a
        redrive needs: its times, reason, verdict, rule and release. Each letter gets a sending, whose redrive
        is the letter's ``redrive_count`` + 1, and whose copy is ``token``.

        Letters of claims whose lease has ended are released first. ``DEAD`` letters are taken, then
        ``REDRIVEN`` ones if the filter names that state. Letters that this operation is done with are left
        out: their sending is in a state other than ``sending``. Concurrent claims never take the same
        letter.

        :param of_every_cause: take a letter of each cause in turn instead, first of those of which the
            operation has sent none.
        """
        rescue(connection, now)
        left = _is_left_for(operation.id)
        if of_every_cause:
            first = claims.first_of_every_cause(connection, operation, left, limit=limit)
            left = and_(left, one_of(connection, letter.c.id, first))
        found = claims.lock(connection, operation.wanted, left, limit=limit)
        numbers = [row[ID] for row, _ in found]
        if numbers:
            _write(connection, operation.id, token, numbers, now)
        return claims.hold(connection, found, operation.id, token, lease_until)

    @reads
    def are_left(self, connection: Connection, operation: Operation) -> bool:
        """Whether ``operation`` may still claim a letter: also one that :meth:`take` has left out because
        another transaction has locked it. That transaction may be undone, as that of a connection which
        broke."""
        return claims.are_left(connection, operation.wanted, _is_left_for(operation.id))

    def end(
        self,
        operation_id: str,
        token: str,
        sent: Mapping[str, str],
        *,
        silent: Collection[str] = (),
        now: datetime,
    ) -> None:
        """The broker has confirmed all letters of a claim that were not skipped or released before. Does the
        same as :meth:`confirm`, in a time that does not depend on the number of letters, unless the claim has
        ended already."""
        self._confirm(operation_id, token, sent, silent, now, is_all=True)
        self._listener.redriven(list(sent))

    def confirm(
        self,
        operation_id: str,
        token: str,
        sent: Mapping[str, str],
        *,
        silent: Collection[str] = (),
        now: datetime,
    ) -> int:
        """The broker has confirmed these letters. ``CLAIMED`` letters become ``REDRIVEN``, and the redrive
        counts. Letters that are no longer held under ``token`` are not changed: their outcome came first, or
        they were rescued. Returns how many letters were changed.

        :param sent: by task id, how each message was repaired; empty if it was not.
        :param silent: letters whose tasks report no outcome: their sendings become ``unknown``.
        """
        moved = self._confirm(operation_id, token, sent, silent, now, is_all=False)
        self._listener.redriven(list(sent))
        return moved

    @writes
    def skip(
        self,
        connection: Connection,
        operation_id: str,
        token: str,
        why: Mapping[str, str],
        *,
        now: datetime,
    ) -> int:
        """Skip letters, each for its reason. ``CLAIMED`` letters get their earlier state, the redrive
        does not count, and the operation is done with them. If an earlier copy may have been sent, the
        sending becomes ``unknown``. Returns how many letters were changed."""
        undecided = _undecided(connection, operation_id, token)
        moved = claims.release(connection, token, why) if claims.is_live(connection, token) else 0
        # An earlier claim may have sent it before it was killed.
        state = case(
            (sending.c.copies > 1, SendingState.UNKNOWN.value), else_=SendingState.SKIPPED.value
        )
        skipped = (
            update(sending)
            .where(undecided, _IS_ONE)
            .values(state=state, why=bindparam("of_why"), ended_at=now)
        )
        reasons = {stored_id(task_id): clip(reason, WHY_LIMIT) for task_id, reason in why.items()}
        if reasons:
            connection.execute(skipped, _rows(reasons, "why"))
        claims.settled(connection, token, moved)
        return moved

    @writes
    def release(
        self, connection: Connection, operation_id: str, token: str, ids: Sequence[str]
    ) -> int:
        """Release letters whose messages were certainly not sent. ``CLAIMED`` letters get their earlier
        state, the redrive does not count, and they can be claimed again, also by this operation. Returns
        how many letters were changed."""
        undecided = _undecided(connection, operation_id, token)
        moved = claims.release(connection, token, ids) if claims.is_live(connection, token) else 0
        these = one_of(connection, sending.c.task_id, sorted(map(stored_id, ids)))
        # If an earlier claim may have sent the message, the number of copies must stay known.
        unsent = and_(sending.c.copies == 1, sending.c.accepted.is_(None))
        connection.execute(delete(sending).where(undecided, these, unsent))
        connection.execute(update(sending).where(undecided, these).values(_LEFT_BEHIND))
        claims.settled(connection, token, moved)
        return moved

    @writes
    def free(self, connection: Connection, operation_id: str) -> int:
        """Release the letters that this operation holds, before their lease ends; returns how many. Used by a
        process that takes the operation over from one that has ended. Their sendings stay, because a copy may
        have been sent."""
        held = claims.of_operation(connection, operation_id)
        return sum(dissolve(connection, *one) for one in held)

    @writes
    def rescue(self, connection: Connection, now: datetime) -> int:
        """Release the letters of claims whose lease has ended; returns how many. Their sendings stay, because
        a copy may have been sent."""
        return rescue(connection, now)

    @writes
    def _confirm(
        self,
        connection: Connection,
        operation_id: str,
        token: str,
        sent: Mapping[str, str],
        silent: Collection[str],
        now: datetime,
        *,
        is_all: bool,
    ) -> int:
        """Mark ``sent`` as sent; returns how many letters were changed.

        :param is_all: whether the claim has no other letters. Then the claim ends, and no letter is written.
        """
        of_claim, moved = _claimed(operation_id, token), 0
        if is_all and claims.end(connection, token):
            changed = {task_id: change for task_id, change in sent.items() if change}
            _mark(connection, of_claim, changed, now)
        else:
            moved = (
                claims.confirm(connection, token, sent) if claims.is_live(connection, token) else 0
            )
            claims.settled(connection, token, _mark(connection, of_claim, sent, now))
        _give_up(connection, of_claim, silent, now)
        return moved


def rescue(connection: Connection, now: datetime) -> int:
    """End the claims whose lease has ended, and release their letters; returns how many."""
    return sum(dissolve(connection, *one) for one in claims.expired(connection, now))


def dissolve(connection: Connection, operation_id: str, token: str) -> int:
    """End a claim whose process has not said which letters it sent, and release them; returns how many."""
    undecided = and_(_claimed(operation_id, token), _UNDECIDED, _SENT)
    ids = sorted(connection.execute(select(sending.c.task_id).where(undecided)).scalars())
    freed = claims.dissolve(connection, token, ids)
    these = one_of(connection, sending.c.task_id, ids)
    connection.execute(update(sending).where(undecided, these).values(_LEFT_BEHIND))
    return freed


#: A sending of a claim that ended without saying whether the message was sent.
_LEFT_BEHIND = {"state": SendingState.SENDING.value}


def _undecided(connection: Connection, operation_id: str, token: str) -> ColumnElement[bool]:
    """The sendings of a claim that may still turn out not to be sent. If the claim has ended, its messages
    were sent, unless it was dissolved."""
    is_open = _UNDECIDED if claims.is_live(connection, token) else and_(_UNDECIDED, _SENDING)
    return and_(_claimed(operation_id, token), is_open)


def _mark(
    connection: Connection, of_claim: ColumnElement[bool], sent: Mapping[str, str], now: datetime
) -> int:
    """Mark the sendings of ``sent`` as sent at ``now``, each with its change. Returns how many were not
    marked before."""
    # An outcome that came first has ended the sending already.
    values = {"state": case((_SENDING, SendingState.SENT.value), else_=sending.c.state)}
    marked, news = update(sending).values(**values, sent_at=now), sending.c.sent_at.is_(None)
    changed = {stored_id(task_id): change for task_id, change in sent.items() if change}
    unchanged = [stored_id(task_id) for task_id, change in sent.items() if not change]
    number = 0
    if unchanged:
        these = one_of(connection, sending.c.task_id, sorted(unchanged))
        number += connection.execute(marked.where(of_claim, these, news)).rowcount
    if changed:
        one = marked.where(of_claim, _IS_ONE, news).values(change=bindparam("of_change"))
        number += connection.execute(one, _rows(changed, "change")).rowcount
    return number


def _give_up(
    connection: Connection, of_claim: ColumnElement[bool], silent: Collection[str], now: datetime
) -> None:
    if silent:
        these = one_of(connection, sending.c.task_id, sorted(map(stored_id, silent)))
        given_up = update(sending).where(of_claim, these, _SENT)
        connection.execute(given_up.values(**_UNHEARD, ended_at=now))


def _is_left_for(operation_id: str) -> ColumnElement[bool]:
    """Whether the operation is not done with a letter.

    The question is put letter by letter, and as an inequality, which PostgreSQL estimates to be true for
    nearly all rows. Otherwise it would sort all letters for each claim."""
    done = (
        select(literal("done"))
        .where(sending.c.operation == operation_id, sending.c.task_id == letter.c.task_id)
        .where(~_SENDING)
        .correlate(letter)
        .scalar_subquery()
    )
    return func.coalesce(done, "") != "done"


def _write(
    connection: Connection, operation_id: str, token: str, numbers: Sequence[int], now: datetime
) -> None:
    """Write a sending for each letter, in one statement."""
    values: dict[str, ColumnElement[Any]] = {
        "operation": literal(operation_id),
        "task_id": letter.c.task_id,
        "task": letter.c.task,
        "redrive": letter.c.redrive_count + 1,
        "state": literal(SendingState.SENT.value),
        "was": letter.c.state,
        "failed_at": letter.c.last_failed_at,
        "cause": letter.c.fingerprint,
        "copy": literal(token),
        "copies": literal(1),
        **{name: literal("") for name in ("why", "fingerprint", "change")},
        "claimed_at": literal(now, Moment()),
    }
    named = [value.label(name) for name, value in values.items()]
    dialect = dialect_of(connection)
    found = select(*named).where(one_of(connection, letter.c.id, numbers)).cte()
    # In the order in which all others lock them. If both were one query, PostgreSQL would scan all letters in
    # that order before its first ANALYZE.
    found = dialect.read_first(found)
    rows = select(found).order_by(found.c.task_id)
    again = partial(_claimed_again, token=token, now=now)
    connection.execute(dialect.in_bulk(dialect.upsert(sending, again, rows)))


def _claimed_again(given: Any, *, token: str, now: datetime) -> dict[str, Any]:
    """The changes to the sending of a letter that its operation has claimed before. The message is another
    copy of the same redrive, unless another operation has redriven the letter in the meantime."""
    is_same = sending.c.redrive == given.redrive
    renewed = ("redrive", "was", "failed_at", "cause")
    return {
        # First, because MySQL compares the numbers below only until it has set the new one.
        "copies": case((is_same, sending.c.copies + 1), else_=1),
        "accepted": case((is_same, sending.c.accepted), else_=None),
        "copy": token,
        "claimed_at": now,
        "state": SendingState.SENT.value,
        **{name: given[name] for name in renewed},
    }


_IS_ONE = sending.c.task_id == bindparam("of_task_id")


def _claimed(operation_id: str, token: str) -> ColumnElement[bool]:
    return and_(sending.c.operation == operation_id, sending.c.copy == token)


def _rows(texts: Mapping[str, str], column: str) -> list[dict[str, str]]:
    """One row of parameters for each id, in the order in which all others lock them."""
    return [
        {"of_task_id": task_id, f"of_{column}": fit_text(sending.c[column], text)}
        for task_id, text in sorted(texts.items())
    ]
