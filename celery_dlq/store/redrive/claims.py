"""The letters of an operation: claimed for it, marked as sent, skipped, or given back.

A claim is one row, which exists as long as the claim holds. Claiming a letter writes it as it will be once it
has been sent: ``redriven``, its redrive counted, under the claim's token. Its sending is written together
with the claim, before its message can be sent, and says that it was sent. While the claim exists, the letter
counts as claimed, and the sending as being sent. So a batch of any size is marked as sent by deleting one
row. Only a letter that was not sent is written a second time.

If a redrive is killed, its claim ends with its lease. The sendings then become ``sending``, under the
same number: it is unknown whether the broker has their messages. The letters can be claimed again. Of all
copies of a message, also those of another operation, a worker runs one
(:func:`~celery_dlq.store.redrive.sendings.judge`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from celery_dlq.base.redact import clip
from celery_dlq.model.operation import SendingState
from celery_dlq.model.states import State
from celery_dlq.store.base import Claim, Filter, Operation
from celery_dlq.store.database.client import FOR_A_REDRIVE
from celery_dlq.store.database.columns import Moment
from celery_dlq.store.database.dialects import dialect_of
from celery_dlq.store.database.dialects.dialect import MUCH
from celery_dlq.store.database.namespaces import is_ours, narrow, seen
from celery_dlq.store.database.sealing import sealing_of
from celery_dlq.store.database.tables import claim, letter, operation, sending
from celery_dlq.store.database.transactions import (
    ListenedRole,
    after_commit,
    reads,
    writes,
)
from celery_dlq.store.listener import StoreListener
from celery_dlq.store.redrive.claim_rows import (
    CLAIM_TOKEN,
    COLUMNS,
    FAILED_AT,
    ID,
    Rows,
    letters_of,
    with_contents,
)
from celery_dlq.store.rows.query import (
    Conditions,
    check_keys,
    conditions,
    in_states,
    live_tokens,
    one_of,
)
from celery_dlq.store.rows.rows import fit_text, stored_id

#: Characters of a reason.
WHY_LIMIT = 500

#: The most letters among which causes are looked for.
_LOOKED_AT = 100_000

_SENDING = sending.c.state == SendingState.SENDING.value
_SENT = sending.c.state == SendingState.SENT.value
# Not by the state, or PostgreSQL looks for one letter among all that have it.
_UNDECIDED = sa.and_(sending.c.sent_at.is_(None), sending.c.ended_at.is_(None))
_IS_ONE = sending.c.task_id == sa.bindparam("of_task_id")

_UNHEARD = {"state": SendingState.UNKNOWN.value, "why": "its task reports no outcome"}

#: A sending of a claim that ended without a report whether the message was sent.
_LEFT_BEHIND = {"state": SendingState.SENDING.value}

#: The letter's state before it was claimed; dead if its claim has no sending.
_BEFORE = sa.func.coalesce(
    sa.select(sa.func.max(sending.c.was))
    .where(sending.c.task_id == letter.c.task_id, sending.c.copy == letter.c.claim_token)
    .correlate(letter)
    .scalar_subquery(),
    State.DEAD.value,
)

#: Whether a claim holds the letter.
_IS_CLAIMED = (
    sa.select(claim.c.token).where(claim.c.token == letter.c.claim_token).correlate(letter).exists()
)

_UNCLAIMED: dict[str, Any] = {"claim_token": None, "lease_expires_at": None}

# The state comes first, as it does in the table: MySQL assigns in order, and _BEFORE needs the token.
_AS_BEFORE: dict[str, Any] = {
    "state": _BEFORE, **_UNCLAIMED, "redrive_count": letter.c.redrive_count - 1,
}  # fmt: skip


def rescue(connection: Connection, now: datetime) -> int:
    """Release the letters of claims whose lease has ended; returns how many. Their sendings stay, because a
    copy may have been sent."""
    is_over = sa.and_(is_ours(connection, claim), claim.c.lease_expires_at <= now)
    return _dissolve(connection, is_over)


class Claims(ListenedRole[StoreListener]):
    """The letters that redrives hold, and the rows that are written with them. The listener is notified of
    the letters that the broker has confirmed."""

    @property
    def at_once(self) -> int:
        """How many claims are worth making at the same time."""
        # A SQLite file has one writer; a second one would wait and look again.
        return 1 if self._transactions.database.dialect.has_one_writer else 2

    def while_redriving(self) -> AbstractContextManager[None]:
        """Allow the connections that a redrive needs, in addition to the process's usual ones."""
        return self._transactions.database.extended(FOR_A_REDRIVE)

    @reads
    def check_keys(self, wanted: Filter) -> None:
        """Check that the keys are here with which the letters are encrypted that a redrive of ``wanted``
        takes. Letters of persons whose keys were destroyed are refused one by one.

        :raises ContentsSealed: a key is not.
        """
        found = in_states(_sources(wanted)), *conditions(self.connection, wanted)
        check_keys(self.connection, *found)

    @reads
    def first_ids(self, wanted: Filter, limit: int) -> list[str]:
        """The task ids of the first ``limit`` letters that a redrive of ``wanted`` takes, in its order."""
        return first_ids(self.connection, wanted, _sources(wanted), limit)

    @writes
    def take(
        self,
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

        :param of_every_cause: take one letter of each cause in turn. The causes of which the operation has
            sent no letter come first.
        """
        rescue(self.connection, now)
        _narrow(self.connection, operation.id)
        left = _is_left_for(operation.id)
        if of_every_cause:
            first = _first_of_every_cause(self.connection, operation, left, limit=limit)
            left = sa.and_(left, one_of(self.connection, letter.c.id, first))
        found = _lock(self.connection, operation.wanted, left, limit=limit)
        if found:
            numbers = [row[ID] for row, _ in found]
            _write(self.connection, operation.id, token, numbers, now)
            _hold(self.connection, operation.id, token, numbers, lease_until)
        found.sort(key=lambda pair: (pair[0][FAILED_AT], pair[0][ID]))
        return Claim(
            token=token, letters=tuple(letters_of(self.connection, found, token, lease_until))
        )

    @reads
    def are_left(self, operation: Operation) -> bool:
        """Whether ``operation`` may still claim a letter: also one that :meth:`take` has left out because
        another transaction has locked it. That transaction may be undone, as that of a connection which
        broke."""
        wanted = operation.wanted
        _narrow(self.connection, operation.id)
        found = [*conditions(self.connection, wanted), _is_left_for(operation.id), ~_IS_CLAIMED]
        firsts = (_oldest([letter.c.id], state, found).limit(1) for state in _sources(wanted))
        return any(self.connection.execute(first).first() is not None for first in firsts)

    @writes
    def confirm(
        self,
        operation_id: str,
        token: str,
        sent: Mapping[str, str],
        *,
        silent: Collection[str] = (),
        now: datetime,
        is_all: bool = False,
    ) -> int:
        """The broker has confirmed these letters. ``CLAIMED`` letters become ``REDRIVEN``, and the redrive
        counts. Letters that are no longer held under ``token`` are not changed: their outcome came first, or
        they were rescued. Returns how many letters were changed.

        :param sent: by task id, how each message was repaired; empty if it was not.
        :param silent: letters whose tasks report no outcome: their sendings become ``unknown``.
        :param is_all: whether the claim has no other letters. Then the claim ends and no letter is changed,
            so that the time does not depend on their number.
        """
        of_claim, moved = _claimed(operation_id, token), 0
        if is_all and _end(self.connection, token):
            _mark(self.connection, of_claim, {key: how for key, how in sent.items() if how}, now)
        else:
            if _is_live(self.connection, token):
                moved = _update(self.connection, token, sent, _UNCLAIMED)
            _settle(self.connection, token, _mark(self.connection, of_claim, sent, now))
        if silent:
            these = one_of(self.connection, sending.c.task_id, sorted(map(stored_id, silent)))
            given_up = sa.update(sending).where(of_claim, these, _SENT)
            self.connection.execute(given_up.values(**_UNHEARD, ended_at=now))
        after_commit(self.connection, partial(self._listener.redriven, list(sent)))
        return moved

    @writes
    def skip(self, operation_id: str, token: str, why: Mapping[str, str], *, now: datetime) -> int:
        """Skip letters, each for its reason. ``CLAIMED`` letters get their earlier state, the redrive
        does not count, and the operation is done with them. If an earlier copy may have been sent, the
        sending becomes ``unknown``. Returns how many letters were changed."""
        undecided, moved = _give_back(self.connection, operation_id, token, why)
        # An earlier claim may have sent it before it was killed.
        state = sa.case(
            (sending.c.copies > 1, SendingState.UNKNOWN.value), else_=SendingState.SKIPPED.value
        )
        skipped = (
            sa.update(sending)
            .where(undecided, _IS_ONE)
            .values(state=state, why=sa.bindparam("of_why"), ended_at=now)
        )
        reasons = {stored_id(task_id): clip(reason, WHY_LIMIT) for task_id, reason in why.items()}
        if reasons:
            self.connection.execute(skipped, _rows(self.connection, reasons, "why"))
        return moved

    @writes
    def release(self, operation_id: str, token: str, ids: Sequence[str]) -> int:
        """Release letters whose messages were certainly not sent. ``CLAIMED`` letters get their earlier
        state, the redrive does not count, and they can be claimed again, also by this operation. Returns
        how many letters were changed."""
        undecided, moved = _give_back(self.connection, operation_id, token, ids)
        these = one_of(self.connection, sending.c.task_id, sorted(map(stored_id, ids)))
        # If an earlier claim may have sent the message, the number of copies must stay known.
        unsent = sa.and_(sending.c.copies == 1, sending.c.accepted.is_(None))
        self.connection.execute(sa.delete(sending).where(undecided, these, unsent))
        self.connection.execute(sa.update(sending).where(undecided, these).values(_LEFT_BEHIND))
        return moved

    @writes
    def free(self, operation_id: str) -> int:
        """Release the letters that this operation holds, before their lease ends; returns how many. Used by a
        process that takes the operation over from one that has ended. Their sendings stay, because a copy may
        have been sent."""
        return _dissolve(self.connection, claim.c.operation == operation_id)

    @writes
    def rescue(self, now: datetime) -> int:
        """:func:`rescue`, in a transaction of its own."""
        return rescue(self.connection, now)


def first_ids(
    connection: Connection, wanted: Filter, states: Iterable[State], limit: int
) -> list[str]:
    """The task ids of the first ``limit`` letters of ``wanted``, state by state, the oldest failures
    first."""
    found, ids = conditions(connection, wanted), list[str]()
    for state in states:
        oldest = _oldest([letter.c.task_id], state, found).limit(limit - len(ids))
        ids += connection.scalars(oldest)
    return ids


def _narrow(connection: Connection, operation_id: str) -> None:
    """See only the namespace of the operation from now on."""
    if len(seen(connection)) > 1:
        stored = sa.select(operation.c.namespace).where(operation.c.id == operation_id)
        narrow(connection, connection.scalar(stored) or "")


def _dissolve(connection: Connection, which: sa.ColumnElement[bool]) -> int:
    """End claims whose processes have not reported which letters they sent, and release the letters; returns
    how many. Claims that another transaction has locked are left out."""
    stored = sa.select(claim.c.operation, claim.c.token).where(which).order_by(claim.c.token)
    freed = 0
    for operation_id, token in connection.execute(stored.with_for_update(skip_locked=True)).all():
        undecided = sa.and_(_claimed(operation_id, token), _UNDECIDED, _SENT)
        ids = sorted(connection.scalars(sa.select(sending.c.task_id).where(undecided)))
        freed += _update(connection, token, ids, _AS_BEFORE)
        _end(connection, token)
        these = one_of(connection, sending.c.task_id, ids)
        connection.execute(sa.update(sending).where(undecided, these).values(_LEFT_BEHIND))
    return freed


def _lock(
    connection: Connection, wanted: Filter, *also: sa.ColumnElement[bool], limit: int
) -> Rows:
    """Lock up to ``limit`` letters that may be claimed and for which ``also`` holds, oldest failure first.
    Letters that another claim is taking are left out. If bodies are large, fewer letters are taken."""
    found = [*conditions(connection, wanted), *also]
    rows: list[sa.Row[Any]] = []
    for state in _sources(wanted):
        oldest = _oldest(COLUMNS, state, found).limit(limit - len(rows))
        locked = oldest.with_for_update(skip_locked=True).execution_options(**{MUCH: True})
        rows += connection.execute(locked).all()
    live = live_tokens(connection, (row[CLAIM_TOKEN] for row in rows))
    return with_contents(connection, [row for row in rows if row[CLAIM_TOKEN] not in live])


def _first_of_every_cause(
    connection: Connection, operation: Operation, *also: sa.ColumnElement[bool], limit: int
) -> list[int]:
    """The letters that :func:`_lock` may take if each cause has its turn: one of each, then a second one of
    each, the oldest failures first. Causes of which ``operation`` has sent letters already come last."""
    found = in_states(_sources(operation.wanted)), *conditions(connection, operation.wanted), *also
    # As :func:`_lock`: dead letters, then redriven ones. Letters beyond the operation's limit have no turn.
    names, most = ("state", "last_failed_at", "id"), min(operation.counts.left, _LOOKED_AT)
    by_age = [letter.c[name] for name in names]
    old = (
        sa.select(*by_age, letter.c.fingerprint)
        .where(*found)
        .order_by(*by_age)
        .limit(most)
        .subquery()
    )
    age = [old.c[name] for name in names]
    sent = sa.select(sending.c.cause).where(
        sending.c.operation == operation.id, sending.c.state != SendingState.SKIPPED.value
    )
    is_again = sa.case((old.c.fingerprint.in_(sent), 1), else_=0)
    turn = sa.func.row_number().over(partition_by=old.c.fingerprint, order_by=age)
    in_turn = sa.select(old.c.id).order_by(is_again, turn, *age).limit(limit)
    return list(connection.scalars(in_turn))


def _sources(wanted: Filter) -> list[State]:
    """The states from which letters may be taken. Each needs a query of its own, because the index is in the
    order of time only within a state."""
    states = wanted.states or {State.DEAD}
    return [state for state in (State.DEAD, State.REDRIVEN) if state in states]


def _oldest(columns: Sequence[sa.Column[Any]], state: State, found: Conditions) -> sa.Select[Any]:
    in_order = letter.c.last_failed_at, letter.c.id
    return sa.select(*columns).where(in_states([state]), *found).order_by(*in_order)


def _is_left_for(operation_id: str) -> sa.ColumnElement[bool]:
    """Whether the operation is not done with a letter.

    The question is put letter by letter, and as an inequality, which PostgreSQL estimates to be true for
    nearly all rows. Otherwise it would sort all letters for each claim."""
    done = (
        sa.select(sa.literal("done"))
        .where(sending.c.operation == operation_id, sending.c.task_id == letter.c.task_id)
        .where(~_SENDING)
        .correlate(letter)
        .scalar_subquery()
    )
    return sa.func.coalesce(done, "") != "done"


def _hold(
    connection: Connection,
    operation_id: str,
    token: str,
    numbers: Sequence[int],
    lease_until: datetime,
) -> None:
    """Claim the letters with these numbers, which are locked."""
    taken = one_of(connection, letter.c.id, numbers)
    held = {
        "state": State.REDRIVEN.value, "redrive_count": letter.c.redrive_count + 1,
        "claim_token": token, "lease_expires_at": lease_until,
    }  # fmt: skip
    in_bulk = dialect_of(connection).in_bulk
    connection.execute(in_bulk(sa.update(letter)).where(taken).values(held))
    values = {"token": token, "letters": len(numbers), "lease_expires_at": lease_until}
    connection.execute(sa.insert(claim).values(operation=operation_id, **values))


def _write(
    connection: Connection, operation_id: str, token: str, numbers: Sequence[int], now: datetime
) -> None:
    """Write a sending for each letter, in one statement."""
    values: dict[str, sa.ColumnElement[Any]] = {
        "operation": sa.literal(operation_id),
        "task_id": letter.c.task_id,
        "task": letter.c.task,
        "namespace": letter.c.namespace,
        "redrive": letter.c.redrive_count + 1,
        "state": sa.literal(SendingState.SENT.value),
        "was": letter.c.state,
        "failed_at": letter.c.last_failed_at,
        "cause": letter.c.fingerprint,
        "copy": sa.literal(token),
        "copies": sa.literal(1),
        **{name: sa.literal("") for name in ("why", "fingerprint", "change")},
        "claimed_at": sa.literal(now, Moment()),
    }
    named = [value.label(name) for name, value in values.items()]
    dialect = dialect_of(connection)
    found = sa.select(*named).where(one_of(connection, letter.c.id, numbers)).cte()
    # In the order in which all others lock them. If both were one query, PostgreSQL would scan all letters in
    # that order before its first ANALYZE.
    found = dialect.read_first(found)
    rows = sa.select(found).order_by(found.c.task_id)
    again = partial(_claimed_again, token=token, now=now)
    connection.execute(dialect.in_bulk(dialect.upsert(sending, again, rows)))


def _claimed_again(given: Any, *, token: str, now: datetime) -> dict[str, Any]:
    """The changes to the sending of a letter that its operation has claimed before. The message is another
    copy of the same redrive, unless another operation has redriven the letter in the meantime."""
    is_same = sending.c.redrive == given.redrive
    return {
        # First, because MySQL compares the numbers below only until it has set the new one.
        "copies": sa.case((is_same, sending.c.copies + 1), else_=1),
        "accepted": sa.case((is_same, sending.c.accepted), else_=None),
        "copy": token,
        "claimed_at": now,
        "state": SendingState.SENT.value,
        **{name: given[name] for name in ("redrive", "was", "failed_at", "cause")},
    }


def _is_live(connection: Connection, token: str) -> bool:
    """Whether the claim still exists. If so, it stays locked until the transaction ends."""
    stored = sa.select(claim.c.token).where(claim.c.token == token).with_for_update()
    return connection.execute(stored).first() is not None


def _end(connection: Connection, token: str) -> bool:
    """Delete the row of a claim, so that its remaining letters are ``REDRIVEN``. Returns False if another
    process has deleted it."""
    return bool(connection.execute(sa.delete(claim).where(claim.c.token == token)).rowcount)


def _update(
    connection: Connection, token: str, ids: Collection[str], values: dict[str, Any]
) -> int:
    """Change these letters of an existing claim; returns how many were changed."""
    its = (
        dialect_of(connection)
        .in_bulk(sa.update(letter))
        .where(
            one_of(connection, letter.c.task_id, [stored_id(item) for item in ids]),
            letter.c.claim_token == token,
            letter.c.state == State.REDRIVEN.value,
        )
    )
    return connection.execute(its.values(values)).rowcount


def _give_back(
    connection: Connection, operation_id: str, token: str, ids: Collection[str]
) -> tuple[sa.ColumnElement[bool], int]:
    """Give letters of a claim their earlier state. Returns the condition for the sendings of the claim that
    may still turn out not to be sent, and how many letters were changed. If the claim has ended and was not
    dissolved, all its messages were sent."""
    of_claim = _claimed(operation_id, token)
    if not _is_live(connection, token):
        return sa.and_(of_claim, _UNDECIDED, _SENDING), 0
    moved = _update(connection, token, ids, _AS_BEFORE)
    _settle(connection, token, moved)
    return sa.and_(of_claim, _UNDECIDED), moved


def _settle(connection: Connection, token: str, count: int) -> None:
    """Subtract ``count`` letters from the number that the claim still has."""
    fewer = sa.update(claim).where(claim.c.token == token)
    connection.execute(fewer.values(letters=claim.c.letters - count))


def _mark(
    connection: Connection, of_claim: sa.ColumnElement[bool], sent: Mapping[str, str], now: datetime
) -> int:
    """Mark the sendings of ``sent`` as sent at ``now``, each with its change. Returns how many were not
    marked before."""
    # An outcome that came first has ended the sending already.
    values = {"state": sa.case((_SENDING, SendingState.SENT.value), else_=sending.c.state)}
    marked, news = sa.update(sending).values(**values, sent_at=now), sending.c.sent_at.is_(None)
    changed = {stored_id(task_id): change for task_id, change in sent.items() if change}
    unchanged = [stored_id(task_id) for task_id, change in sent.items() if not change]
    number = 0
    if unchanged:
        these = one_of(connection, sending.c.task_id, sorted(unchanged))
        number += connection.execute(marked.where(of_claim, these, news)).rowcount
    if changed:
        one = marked.where(of_claim, _IS_ONE, news).values(change=sa.bindparam("of_change"))
        number += connection.execute(one, _rows(connection, changed, "change")).rowcount
    return number


def _claimed(operation_id: str, token: str) -> sa.ColumnElement[bool]:
    return sa.and_(sending.c.operation == operation_id, sending.c.copy == token)


def _rows(connection: Connection, texts: Mapping[str, str], column: str) -> list[dict[str, Any]]:
    """One row of parameters for each id, in the order in which all others lock them."""
    rows = [
        {"task_id": task_id, column: fit_text(sending.c[column], text)}
        for task_id, text in sorted(texts.items())
    ]
    return parameters(connection, rows)


def parameters(connection: Connection, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Values of sendings, sealed, as parameters of a statement."""
    sealed = sealing_of(connection).seal_for_letters(sending, rows)
    return [{f"of_{name}": value for name, value in row.items()} for row in sealed]
