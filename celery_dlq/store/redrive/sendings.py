"""Sendings: the rows that say how the redrives of letters went."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby, pairwise
from operator import attrgetter, itemgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from celery_dlq.base.redact import clip
from celery_dlq.model.letter import DeadLetter, Outcome
from celery_dlq.model.operation import ENDED, Sending, SendingState
from celery_dlq.model.states import State
from celery_dlq.store.base import Drop, Filter, Rows
from celery_dlq.store.database.namespaces import is_ours
from celery_dlq.store.database.sealing import read_shown
from celery_dlq.store.database.tables import claim, letter, operation, parked, sending
from celery_dlq.store.database.transactions import StoreRole, reads, writes
from celery_dlq.store.redrive import claims
from celery_dlq.store.rows.merge import redrive_of
from celery_dlq.store.rows.query import (
    IS_PARKED,
    Conditions,
    conditions,
    count_rows,
    in_states,
    one_of,
)
from celery_dlq.store.rows.rows import fit_text, read_row, stored_id, whole

#: The outcomes.
ENDINGS = (SendingState.SUCCEEDED, SendingState.FAILED)

_HAS_OUTCOME = frozenset(state.value for state in ENDINGS)
_OVER = frozenset(state.value for state in ENDED)

_SAME_NAME = (
    "operation", "task_id", "task", "redrive", "why", "fingerprint", "change", "ended_at",
    "sent_again", "sent_again_at",
)  # fmt: skip

#: If a row says sent and its claim still exists, its letter is still being sent.
IS_HELD = sa.and_(
    sending.c.state == SendingState.SENT.value,
    sending.c.sent_at.is_(None),
    sending.c.copy.in_(sa.select(claim.c.token)),
)
_STATE = sa.case((IS_HELD, SendingState.SENDING.value), else_=sending.c.state)
_WAS_SENT = sa.and_(
    sending.c.state != SendingState.SENDING.value,
    sending.c.state != SendingState.SKIPPED.value,
    sa.not_(IS_HELD),
)
# A letter that was sent with its whole claim has the time of the claim.
_SENT_AT = sa.case((_WAS_SENT, sa.func.coalesce(sending.c.sent_at, sending.c.claimed_at)))

_READ = sa.select(
    *(sending.c[name] for name in _SAME_NAME), _STATE.label("state"), _SENT_AT.label("sent_at")
)

#: Whether the retry of a sending's message is parked.
HAS_PARKED = sa.select(1).where(IS_PARKED, parked.c.task_id == sending.c.task_id).exists()

#: A redrive of a letter: task id and number.
Redrive = tuple[str, int]

#: Operations that are looked through for the last redrive of a cause.
_LATEST = 20

_DROP = (
    sa.update(sending)
    .where(
        sending.c.task_id == sa.bindparam("of_task_id"),
        sending.c.redrive == sa.bindparam("of_redrive"),
        sending.c.state == SendingState.SENT.value,
        sa.or_(sending.c.accepted.is_(None), sending.c.accepted == sa.bindparam("of_copy")),
    )
    .values(
        state=SendingState.UNKNOWN.value, why=sa.bindparam("of_why"), ended_at=sa.bindparam("of_at")
    )
)


def sendings_of(connection: Connection, task_id: str) -> list[Sending]:
    """The redrives of a letter, oldest first."""
    of_it = _READ.where(sending.c.task_id == stored_id(task_id), is_ours(connection, sending))
    return _shown(connection, of_it.order_by(sending.c.redrive, sending.c.claimed_at))


def _shown(connection: Connection, stored: sa.Select[Any]) -> list[Sending]:
    return [read_row(Sending, row) for row in read_shown(connection, sending, stored)]


class Sendings(StoreRole):
    """The letters of operations, one row for each redrive of a letter."""

    @reads
    def of_operation(
        self,
        operation_id: str,
        *,
        states: frozenset[SendingState] = frozenset(),
        limit: int = 50,
        after: str | None = None,
    ) -> Rows[Sending]:
        """The sendings of an operation in one of ``states`` (empty: in any), in the order of their task ids.

        :param after: the cursor of the previous rows.
        """
        found: Conditions = [sending.c.operation == operation_id, self.ours(sending)]
        named = sorted(state.value for state in states)
        if named:
            found.append(_STATE.in_(named))
        if after is not None:
            found.append(sending.c.task_id > after)
        first = _READ.where(*found).order_by(sending.c.task_id).limit(limit + 1)
        return Rows.first(_shown(self.connection, first), limit, attrgetter("task_id"))

    @reads
    def of_letter(self, task_id: str) -> list[Sending]:
        """The redrives of a letter, oldest first."""
        return sendings_of(self.connection, task_id)

    @reads
    def of_cause(self, cause: str, task_ids: Sequence[str]) -> list[Sending]:
        """The redrives of these letters after a failure with the fingerprint ``cause``. Those that were made
        by a release that did not store the failure are left out."""
        ids = sorted(map(stored_id, task_ids))
        of_these = _READ.where(
            one_of(self.connection, sending.c.task_id, ids), sending.c.cause == cause
        )
        return _shown(self.connection, of_these) if ids else []

    @reads
    def recent_endings(self, operation_id: str, limit: int) -> list[Sending]:
        """The sendings that succeeded or failed last, newest end first."""
        # Each state by itself, in the order of the index.
        ended: list[Sending] = []
        for state in ENDINGS:
            latest = (
                _READ.where(sending.c.operation == operation_id, sending.c.state == state.value)
                .order_by(sending.c.ended_at.desc())
                .limit(limit)
            )
            ended += _shown(self.connection, latest)
        ended.sort(key=lambda item: (item.ended_at, item.task_id), reverse=True)
        return ended[:limit]

    @reads
    def endings_by_time(
        self, operation_id: str, bounds: Sequence[datetime]
    ) -> Mapping[SendingState, Sequence[int]]:
        """How many sendings of an operation succeeded and failed in each span of time.

        :param bounds: the beginnings of the spans, in their order, and the end of the last one.
        """
        # An index covers each of these counts, so that even a million letters take a fraction of a second.
        parts = [
            sa.select(sa.literal(state.value), sa.literal(place), sa.func.count()).where(
                sending.c.operation == operation_id,
                sending.c.state == state.value,
                sending.c.ended_at >= since,
                sending.c.ended_at < until,
            )
            for state in ENDINGS
            for place, (since, until) in enumerate(pairwise(bounds))
        ]
        found = {state: [0] * (len(bounds) - 1) for state in ENDINGS}
        for state, place, count in self.connection.execute(sa.union_all(*parts)) if parts else ():
            found[SendingState(state)][place] = count
        return found

    @reads
    def last_of_causes(self) -> Mapping[str, tuple[str, int, int]]:
        """The last operation that redrove letters of each cause, by its fingerprint: the operation's id, how
        many of these letters failed again, and how many have an outcome. Only the latest operations are
        looked through."""
        ours = sa.select(operation.c.id).where(self.ours(operation))
        newest = ours.order_by(operation.c.created_at.desc()).limit(_LATEST)
        ids = list(self.connection.scalars(newest))
        failed = sa.case((sending.c.state == SendingState.FAILED.value, 1), else_=0)
        ended = (
            sa.select(sending.c.cause, sending.c.operation, sa.func.sum(failed), sa.func.count())
            .where(one_of(self.connection, sending.c.operation, ids))
            .where(sending.c.state.in_(sorted(_HAS_OUTCOME)), sending.c.cause != "")
            .group_by(sending.c.cause, sending.c.operation)
        )
        rows = sorted(self.connection.execute(ended), key=lambda row: ids.index(row.operation))
        return {cause: (one, int(bad), ended) for cause, one, bad, ended in reversed(rows)}

    @reads
    def count_awaited(self, wanted: Filter) -> int:
        """How many ``REDRIVEN`` letters of ``wanted`` may be waiting or running: they were, or may have been,
        sent, and an outcome may still come."""
        # Not by the state, or SQLite looks for each letter among all sendings that have it.
        open_ones = sending.c.task_id == letter.c.task_id, sending.c.ended_at.is_(None)
        is_awaited = sa.select(sending.c.task_id).where(*open_ones).exists()
        found = [in_states([State.REDRIVEN]), *conditions(self.connection, wanted), is_awaited]
        return count_rows(self.connection, letter, *found)

    @writes
    def accept(self, keys: Sequence[tuple[str, int, str]]) -> list[bool]:
        """Which of ``keys`` (task id, redrive, copy) a worker may run. It may run the first copy of a redrive
        that is asked about, and the same copy again, because a broker may deliver it twice. It may not run
        another copy, a copy of a redrive that has succeeded or failed, or one after which the letter was
        redriven again. It may run an unknown redrive."""
        asked = [
            (stored_id(task_id), redrive, fit_text(sending.c.accepted, copy))
            for task_id, redrive, copy in keys
        ]
        answers, accepted = judge(_lock(self.connection, {key[0] for key in asked}), asked)
        by_copy = sorted((redrive, copy, task_id) for (task_id, redrive), copy in accepted.items())
        # The messages of one claim are copies with the same token, so this is mostly one statement.
        for (redrive, copy), these in groupby(by_copy, key=itemgetter(0, 1)):
            of_these = one_of(
                self.connection, sending.c.task_id, [task_id for *_, task_id in these]
            )
            its = of_these, sending.c.redrive == redrive, self.ours(sending)
            ran = sa.update(sending).where(*its)
            self.connection.execute(ran.values(accepted=copy))
        return answers

    @writes
    def expire(self, *, sent_before: datetime, now: datetime) -> int:
        """Make sendings without an outcome ``unknown``: sendings that were sent before ``sent_before`` and
        whose retry is not parked, and sendings that an ended operation has not marked. Returns how many. The
        letters are not changed."""
        claims.rescue(self.connection, now)
        over = sa.select(operation.c.id).where(operation.c.state.in_(sorted(_OVER)))
        is_sent = sending.c.state == SendingState.SENT.value
        lost = sa.and_(is_sent, was_sent_before(sent_before), ~HAS_PARKED)
        left = sa.and_(
            sending.c.state == SendingState.SENDING.value,
            sending.c.claimed_at < sent_before,
            sending.c.operation.in_(over),
        )
        unknown = {"state": SendingState.UNKNOWN.value, "why": "no outcome came", "ended_at": now}
        ours = sa.update(sending).where(self.ours(sending))
        return sum(
            self.connection.execute(ours.where(given_up).values(unknown)).rowcount
            for given_up in (lost, left)
        )

    @writes
    def drop(self, drops: Sequence[Drop], *, now: datetime) -> list[bool]:
        """Make sendings ``unknown`` whose messages a worker has dropped on purpose, because no outcome will
        come; unless another copy has run, or an outcome is known. Returns True for each, which says that the
        store has noted it."""
        rows = [
            {
                "task_id": stored_id(drop.task_id), "redrive": drop.redrive,
                "copy": fit_text(sending.c.accepted, drop.copy),
                "why": fit_text(sending.c.why, drop.why), "at": now,
            }
            for drop in drops
        ]  # fmt: skip
        _execute(self.connection, _DROP, rows)
        return [True] * len(rows)


def was_sent_before(moment: datetime) -> sa.ColumnElement[bool]:
    """Whether the last message of a sending was sent before ``moment``."""
    at = sa.func.coalesce(sending.c.sent_again_at, sending.c.sent_at, sending.c.claimed_at)
    return at < moment


def _lock(connection: Connection, task_ids: Iterable[str]) -> Known:
    """The redrives of ``task_ids``, locked until the transaction ends."""
    stored = (
        sa.select(sending.c.task_id, sending.c.redrive, sending.c.state, sending.c.accepted)
        .where(one_of(connection, sending.c.task_id, sorted(task_ids)))
        .where(is_ours(connection, sending))
        .order_by(sending.c.task_id, sending.c.redrive)
        .with_for_update()
    )
    newest, accepted, ended = dict[str, int](), dict[Redrive, str | None](), set[Redrive]()
    for task_id, redrive, state, copy in connection.execute(stored):
        if accepted.get((task_id, redrive)) is None:
            accepted[task_id, redrive] = copy
        if state != SendingState.SKIPPED.value:
            newest[task_id] = redrive
        if state in _HAS_OUTCOME:
            ended.add((task_id, redrive))
    return Known(newest, accepted, ended)


@dataclass(frozen=True)
class Known:
    """The stored redrives of some letters, over all operations."""

    #: By task id, the last one that was not skipped.
    newest: Mapping[str, int]
    #: The copy that a worker has run, or None.
    accepted: Mapping[Redrive, str | None]
    #: The redrives whose outcome is known. Their messages may be delivered again, if the worker was cut off
    #: before it acknowledged.
    ended: Set[Redrive]


def judge(
    known: Known, keys: Sequence[tuple[str, int, str]]
) -> tuple[list[bool], dict[Redrive, str]]:
    """Which of ``keys`` may run, and the copies that this accepts."""
    answers, accepted = list[bool](), dict[Redrive, str]()
    for task_id, redrive, copy in keys:
        key = (task_id, redrive)
        is_over = key in known.ended or known.newest.get(task_id, 0) > redrive
        ran = known.accepted.get(key, copy)
        if ran is None and not is_over:
            ran = accepted.setdefault(key, copy)
        answers.append(ran == copy and not is_over)
    return answers, accepted


#: The end of a redrive: its letter and its number, the state, the time, and why it has this state; and the
#: fingerprint of a failure.
_Ending = tuple[str, int, SendingState, datetime, str, str]


def record_successes(connection: Connection, outcomes: Iterable[Outcome]) -> None:
    """Write that the redrives of ``outcomes`` succeeded; first deliveries are left out."""
    _end(
        connection,
        [
            (
                one.task_id, one.redrive, SendingState.SUCCEEDED, one.succeeded_at,
                f"succeeded in release {one.release}" if one.release else "", "",
            )
            for one in outcomes
        ],
    )  # fmt: skip


def record_failures(connection: Connection, letters: Iterable[DeadLetter]) -> None:
    """Write that the redrives of ``letters`` failed again, and how; first deliveries are left out."""
    _end(
        connection,
        [
            (
                one.task_id, redrive_of(one), SendingState.FAILED, one.last_failed_at,
                clip(f"{one.exception_type}: {one.message}", claims.WHY_LIMIT), one.fingerprint,
            )
            for one in letters
        ],
    )  # fmt: skip


def _end(connection: Connection, endings: Iterable[_Ending]) -> None:
    rows = [
        {
            "task_id": stored_id(task_id),
            "redrive": whole(redrive),
            "state": state.value,
            "at": at,
            "why": fit_text(sending.c.why, why),
            "fingerprint": fit_text(sending.c.fingerprint, fingerprint),
        }
        for task_id, redrive, state, at, why, fingerprint in endings
        if redrive > 0
    ]
    _execute(connection, _END, rows)


def _execute(connection: Connection, change: sa.Update, rows: Sequence[dict[str, Any]]) -> None:
    """Change our sendings by rows of parameters, each for one letter, in the order in which others lock
    them."""
    if rows:
        given = claims.parameters(connection, rows)
        in_order = sorted(given, key=itemgetter("of_task_id", "of_redrive", "of_at"))
        connection.execute(change.where(is_ours(connection, sending)), in_order)


def _in(*states: SendingState) -> sa.ColumnElement[bool]:
    # SQLAlchemy does not accept IN for many rows of parameters.
    return sa.or_(*(sending.c.state == state.value for state in states))


_AWAITED = _in(SendingState.SENDING, SendingState.SENT, SendingState.UNKNOWN)
# Workers may report two ends: the message was delivered twice, or a record of it was spooled.
_EARLIER = sa.and_(
    _in(SendingState.SUCCEEDED, SendingState.FAILED), sending.c.ended_at < sa.bindparam("of_at")
)

_END = (
    sa.update(sending)
    .where(
        sending.c.task_id == sa.bindparam("of_task_id"),
        sending.c.redrive == sa.bindparam("of_redrive"),
        sa.or_(_AWAITED, _EARLIER),
    )
    .values(
        state=sa.bindparam("of_state"),
        why=sa.bindparam("of_why"),
        fingerprint=sa.bindparam("of_fingerprint"),
        ended_at=sa.bindparam("of_at"),
    )
)
