"""Sendings whose messages may have vanished, and the protocol by which they are sent again.

The broker has confirmed the message of a redrive; later it holds no such message, and no outcome has come.
Such a message is sent again under the same redrive. Each time is counted, and committed, before the message
is published. So if the process is killed at any point, at most one more copy is sent, and the next one only
after another wait. Of all copies that no worker has accepted yet, a worker runs one
(:func:`~celery_dlq.store.redrive.sendings.judge`). If a worker has accepted a copy, that copy is sent again:
it runs like a message that the broker delivers again.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, not_, select, update
from sqlalchemy.engine import Connection

from celery_dlq.errors import ContentsSealed
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.operation import OperationState, Orders, Repair, SendingState
from celery_dlq.model.states import State
from celery_dlq.store.base import Lease, Overdue
from celery_dlq.store.coordination import is_held
from celery_dlq.store.database.sealing import sealing_of
from celery_dlq.store.database.tables import letter, operation, sending
from celery_dlq.store.database.transactions import StoreRole, reads, writes
from celery_dlq.store.redrive.claim_rows import COLUMNS, letters_of, with_contents
from celery_dlq.store.redrive.sendings import HAS_PARKED, IS_HELD, was_sent_before
from celery_dlq.store.rows.query import follows, in_states, one_of

#: How often a message is sent again.
MOST = 3

#: The operations whose vanished messages are sent again. A person or the guard has stopped all others.
_SENDS = (OperationState.RUNNING.value, OperationState.DONE.value)

_IS_AWAITED = and_(
    sending.c.state == SendingState.SENT.value,
    sending.c.ended_at.is_(None),
    sending.c.sent_again < MOST,
    not_(IS_HELD),
)

#: The letter still waits for this redrive: it was not redriven again, closed or deleted.
_IS_OF_LETTER = and_(
    letter.c.task_id == sending.c.task_id,
    letter.c.redrive_count == sending.c.redrive,
    in_states([State.REDRIVEN]),
)


class Vanished(StoreRole):
    """The messages of redrives that may have vanished."""

    @reads
    def repairs(self, broker: str) -> dict[str, Repair]:
        """The operations that await outcomes of messages on ``broker``, each with the changes that it makes
        in a message. Operations that were paused, cancelled or aborted are left out.

        :param broker: its address without the password, as operations record it.
        """
        of_it = sending.c.operation == operation.c.id
        awaits = select(1).where(of_it, sending.c.state == SendingState.SENT.value).exists()
        stored = select(operation.c.id, operation.c.orders).where(
            operation.c.state.in_(_SENDS), operation.c.broker == broker, awaits
        )
        stored = stored.where(self.ours(operation))
        in_order = stored.order_by(operation.c.created_at, operation.c.id)
        sealing, found = sealing_of(self.connection), dict[str, Repair]()
        for row in self.connection.execute(in_order).mappings():
            # Without its orders, the messages of an operation are not known.
            with contextlib.suppress(ContentsSealed):
                opened = sealing.open(operation, row)
                found[row["id"]] = Orders.from_dict(json.loads(opened["orders"])).repair
        return found

    @reads
    def find(
        self, operation_id: str, *, sent_before: datetime, limit: int, after: Overdue | None
    ) -> list[Overdue]:
        """The sendings of an operation that have no outcome and whose last message was sent before
        ``sent_before``, the first claims first. Parked retries are left out, and messages that were sent
        again :data:`MOST` times.

        :param after: the last one of the previous call; None to begin.
        """
        found = [sending.c.operation == operation_id, was_sent_before(sent_before), ~HAS_PARKED]
        if after is not None:
            in_order = sending.c.claimed_at, sending.c.task_id
            found.append(follows(in_order, (after.claimed_at, after.task_id)))
        # Not in the order of an index, or a database may look for the few awaited ones among all.
        first = (
            select(
                sending.c.operation, sending.c.task_id, sending.c.task, sending.c.redrive,
                sending.c.accepted, sending.c.sent_again, sending.c.claimed_at, letter.c.queue,
            )
            .select_from(sending)
            .join(letter, _IS_OF_LETTER)
            .where(_IS_AWAITED, *found)
            .order_by(sending.c.claimed_at, sending.c.task_id)
            .limit(limit)
        )  # fmt: skip
        return [Overdue(**row) for row in self.connection.execute(first).mappings()]

    @writes
    def take(
        self, held: Lease, overdue: Sequence[Overdue], *, token: str, now: datetime
    ) -> tuple[DeadLetter, ...]:
        """Count that these sendings of one operation are sent again, and return their letters, as the claim
        of the redrive returned them. Returns no letters if the lease is lost; leaves out sendings that have
        changed in the meantime; returns fewer letters if the bodies have more than 16 MiB together.

        :param token: names the copies of messages that no worker has accepted. The others keep their names.
        """
        if not is_held(self.connection, held) or not overdue:
            return ()
        left = _locked(self.connection, overdue)
        rows = with_contents(self.connection, _letters(self.connection, left))
        tokens = {one.task_id: one.accepted or token for one in left}
        found = tuple(
            one.with_(claim_token=tokens[one.task_id], redrive_count=one.redrive_count - 1)
            for one in letters_of(self.connection, rows, "", now)
        )
        taken = _these(self.connection, overdue[0].operation, [one.task_id for one in found])
        again = {"sent_again": sending.c.sent_again + 1, "sent_again_at": now}
        if found:
            self.connection.execute(update(sending).where(taken).values(again))
            _count(self.connection, overdue[0].operation, len(found))
        return found

    @writes
    def give_back(self, operation_id: str, task_ids: Sequence[str], *, at: datetime) -> None:
        """Undo the count of messages that were taken ``at`` this time and certainly not sent. These messages
        are taken again after another wait."""
        if task_ids:
            taken = _these(self.connection, operation_id, task_ids)
            unsent = update(sending).where(taken, sending.c.sent_again_at == at)
            fewer = unsent.values(sent_again=sending.c.sent_again - 1)
            given = self.connection.execute(fewer).rowcount
            _count(self.connection, operation_id, -given)


def _these(
    connection: Connection, operation_id: str, task_ids: Sequence[str]
) -> ColumnElement[bool]:
    these = one_of(connection, sending.c.task_id, sorted(task_ids))
    return and_(sending.c.operation == operation_id, these)


def _locked(connection: Connection, overdue: Sequence[Overdue]) -> list[Overdue]:
    """The sendings of ``overdue`` that have not changed, locked in the order in which copies are accepted."""
    by_id = {one.task_id: one for one in overdue}
    stored = (
        select(sending.c.task_id, sending.c.accepted, sending.c.sent_again)
        .where(_these(connection, overdue[0].operation, list(by_id)), _IS_AWAITED)
        .order_by(sending.c.task_id, sending.c.redrive)
        .with_for_update()
    )
    return [
        by_id[row.task_id]
        for row in connection.execute(stored)
        if (row.accepted, row.sent_again)
        == (by_id[row.task_id].accepted, by_id[row.task_id].sent_again)
    ]


def _count(connection: Connection, operation_id: str, number: int) -> None:
    more = {"sent_again": operation.c.sent_again + number}
    connection.execute(update(operation).where(operation.c.id == operation_id).values(more))


def _letters(connection: Connection, overdue: Sequence[Overdue]) -> list[Any]:
    """The rows of the letters that still wait for these redrives."""
    redrives: Mapping[str, int] = {one.task_id: one.redrive for one in overdue}
    these = one_of(connection, letter.c.task_id, sorted(redrives))
    stored = select(letter.c.redrive_count.label("redrive"), *COLUMNS)
    rows = connection.execute(stored.where(these, in_states([State.REDRIVEN]))).all()
    return [row[1:] for row in rows if row.redrive == redrives[row.task_id]]
