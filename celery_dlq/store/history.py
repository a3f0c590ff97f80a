"""Reading sendings: of an operation, and of a letter."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import and_, case, func, not_, select
from sqlalchemy.engine import Connection

from celery_dlq.operation import Sending, SendingState
from celery_dlq.states import State
from celery_dlq.store import tables
from celery_dlq.store.base import Filter, Rows
from celery_dlq.store.query import Conditions, conditions, in_states
from celery_dlq.store.rows import Row, stored_id

letter, sending, claim = tables.letter, tables.sending, tables.claim

_SAME_NAME = (
    "operation", "task_id", "task", "redrive", "why", "fingerprint", "change", "ended_at",
)  # fmt: skip

# What is written as sent while its claim is there is only being sent.
_IS_HELD = and_(
    sending.c.state == SendingState.SENT.value,
    sending.c.sent_at.is_(None),
    sending.c.copy.in_(select(claim.c.token)),
)
_STATE = case((_IS_HELD, SendingState.SENDING.value), else_=sending.c.state)
_WAS_SENT = and_(
    sending.c.state != SendingState.SENDING.value,
    sending.c.state != SendingState.SKIPPED.value,
    not_(_IS_HELD),
)
# Of those that were sent with all of their claim, the time is that of the claim.
_SENT_AT = case((_WAS_SENT, func.coalesce(sending.c.sent_at, sending.c.claimed_at)))

_READ = select(
    *(sending.c[name] for name in _SAME_NAME), _STATE.label("state"), _SENT_AT.label("sent_at")
)


def of_operation(
    connection: Connection,
    operation_id: str,
    *,
    states: Iterable[SendingState],
    limit: int,
    after: str | None,
) -> Rows[Sending]:
    """Sendings in one of ``states`` (none: in any), in the order of their task ids."""
    found: Conditions = [sending.c.operation == operation_id]
    named = sorted(state.value for state in states)
    if named:
        found.append(_STATE.in_(named))
    if after is not None:
        found.append(sending.c.task_id > after)
    first = _READ.where(*found).order_by(sending.c.task_id).limit(limit + 1)
    rows = [_sending_from(row) for row in connection.execute(first).mappings()]
    more = len(rows) > limit > 0
    return Rows(rows=tuple(rows[:limit]), next=rows[limit - 1].task_id if more else None)


def of_letter(connection: Connection, task_id: str) -> list[Sending]:
    """The redrives of a letter, oldest first."""
    of_it = _READ.where(sending.c.task_id == stored_id(task_id))
    rows = connection.execute(of_it.order_by(sending.c.redrive, sending.c.claimed_at)).mappings()
    return [_sending_from(row) for row in rows]


def count_awaited(connection: Connection, wanted: Filter) -> int:
    """Redriven letters of ``wanted`` whose outcome may still come."""
    # Not by the state, or SQLite looks for each letter among all sendings that have it.
    open_ones = sending.c.task_id == letter.c.task_id, sending.c.ended_at.is_(None)
    is_awaited = select(sending.c.task_id).where(*open_ones).exists()
    found = [in_states([State.REDRIVEN]), *conditions(connection, wanted), is_awaited]
    counted = select(func.count()).select_from(letter).where(*found)
    return int(connection.execute(counted).scalar_one())


def recent_endings(connection: Connection, operation_id: str, limit: int) -> list[Sending]:
    """Those that ended last. Each state is asked for by itself, in the order of the index."""
    ended: list[Sending] = []
    for state in (SendingState.SUCCEEDED, SendingState.FAILED):
        latest = (
            _READ.where(sending.c.operation == operation_id, sending.c.state == state.value)
            .order_by(sending.c.ended_at.desc())
            .limit(limit)
        )
        ended += map(_sending_from, connection.execute(latest).mappings())
    ended.sort(key=lambda item: (item.ended_at, item.task_id), reverse=True)
    return ended[:limit]


def _sending_from(row: Row) -> Sending:
    return Sending(**{**row, "state": SendingState(row["state"])})
