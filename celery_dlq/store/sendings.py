"""The letters of an operation: claimed for it, marked as sent, skipped, or given back.

A sending is written with the claim, before its message can be out, as one that was sent; while the claim
is there (:mod:`~celery_dlq.store.claims`) it counts as being sent, and when the claim is gone it was.

What a killed redrive leaves becomes ``sending`` when its lease has ended, under the same number: nobody
can say whether it is out. Its letter is free again, and of the copies that there are then, also those of
another operation, a worker runs one (:mod:`~celery_dlq.store.accepting`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    and_,
    bindparam,
    case,
    delete,
    func,
    literal,
    select,
    update,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.engine import Connection

from celery_dlq.operation import SendingState
from celery_dlq.redact import clip
from celery_dlq.store import claims, tables
from celery_dlq.store.base import Claim, Operation
from celery_dlq.store.claimed import ID
from celery_dlq.store.columns import Moment
from celery_dlq.store.drivers import in_bulk
from celery_dlq.store.query import one_of
from celery_dlq.store.rows import fit, stored_id

letter, sending = tables.letter, tables.sending

#: Characters of a reason.
WHY_LIMIT = 500

_SENDING = sending.c.state == SendingState.SENDING.value
_SENT = sending.c.state == SendingState.SENT.value
# Not by the state, or PostgreSQL looks for one letter among all that have it.
_UNDECIDED = and_(sending.c.sent_at.is_(None), sending.c.ended_at.is_(None))

_UNHEARD = {"state": SendingState.UNKNOWN.value, "why": "its task reports no outcome"}


def claim(
    connection: Connection,
    operation: Operation,
    *,
    token: str,
    lease_until: datetime,
    limit: int,
    now: datetime,
) -> Claim:
    """Take the next letters of ``operation``, and write their sendings."""
    rescue(connection, now)
    left = _is_left_for(operation.id)
    found = claims.lock(connection, operation.wanted, left, limit=limit)
    numbers = [row[ID] for row, _ in found]
    if numbers:
        _write(connection, operation.id, token, numbers, now)
    return claims.hold(connection, found, operation.id, token, lease_until)


def end_claim(
    connection: Connection,
    operation_id: str,
    token: str,
    sent: Mapping[str, str],
    silent: Collection[str],
    now: datetime,
) -> None:
    """The broker has all that is left of a claim, each with its change."""
    if not claims.end(connection, token):
        confirm(connection, operation_id, token, sent, silent, now)
        return
    changed = {task_id: change for task_id, change in sent.items() if change}
    _mark(connection, _claimed(operation_id, token), changed, now)
    _give_up(connection, _claimed(operation_id, token), silent, now)


def confirm(
    connection: Connection,
    operation_id: str,
    token: str,
    sent: Mapping[str, str],
    silent: Collection[str],
    now: datetime,
) -> int:
    """The broker has them, each with its change; of ``silent`` ones nothing more will be heard."""
    moved = claims.confirm(connection, token, sent) if claims.is_live(connection, token) else 0
    marked = _mark(connection, _claimed(operation_id, token), sent, now)
    claims.settled(connection, token, marked)
    _give_up(connection, _claimed(operation_id, token), silent, now)
    return moved


def skip(
    connection: Connection, operation_id: str, token: str, why: Mapping[str, str], now: datetime
) -> int:
    """They are not to be sent, each for its reason."""
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


def release(connection: Connection, operation_id: str, token: str, ids: Sequence[str]) -> int:
    """They were not sent."""
    undecided = _undecided(connection, operation_id, token)
    moved = claims.release(connection, token, ids) if claims.is_live(connection, token) else 0
    these = one_of(connection, sending.c.task_id, sorted(map(stored_id, ids)))
    # Of what an earlier claim may have sent the number must stay known.
    unsent = and_(sending.c.copies == 1, sending.c.accepted.is_(None))
    connection.execute(delete(sending).where(undecided, these, unsent))
    connection.execute(update(sending).where(undecided, these).values(_LEFT_BEHIND))
    claims.settled(connection, token, moved)
    return moved


def rescue(connection: Connection, now: datetime) -> int:
    """Claims whose lease has ended are no more: their letters become what they were."""
    return sum(_dissolve(connection, *one) for one in claims.expired(connection, now))


def free(connection: Connection, operation_id: str) -> int:
    """So are those of an operation."""
    return sum(_dissolve(connection, *one) for one in claims.of_operation(connection, operation_id))


def _dissolve(connection: Connection, operation_id: str, token: str) -> int:
    undecided = and_(_claimed(operation_id, token), _UNDECIDED, _SENT)
    ids = sorted(connection.execute(select(sending.c.task_id).where(undecided)).scalars())
    freed = claims.dissolve(connection, token, ids)
    these = one_of(connection, sending.c.task_id, ids)
    connection.execute(update(sending).where(undecided, these).values(_LEFT_BEHIND))
    return freed


#: What a claim leaves of which nobody can say whether it was sent.
_LEFT_BEHIND = {"state": SendingState.SENDING.value}


def _undecided(connection: Connection, operation_id: str, token: str) -> ColumnElement[bool]:
    """The sendings of a claim that may still be said not to be sent. Those of one that is gone were sent,
    unless it was given up."""
    is_open = _UNDECIDED if claims.is_live(connection, token) else and_(_UNDECIDED, _SENDING)
    return and_(_claimed(operation_id, token), is_open)


def _mark(
    connection: Connection, of_claim: ColumnElement[bool], sent: Mapping[str, str], now: datetime
) -> int:
    """Those of ``sent``, each with its change, were sent at ``now``; returns how many it was news of."""
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
    """Whether the operation is not through with a letter.

    Asked letter by letter, and as an inequality, which PostgreSQL takes for nearly always true: else it
    sorts all letters for each claim."""
    through = (
        select(literal("through"))
        .where(sending.c.operation == operation_id, sending.c.task_id == letter.c.task_id)
        .where(~_SENDING)
        .correlate(letter)
        .scalar_subquery()
    )
    return func.coalesce(through, "") != "through"


def _write(
    connection: Connection, operation_id: str, token: str, numbers: Sequence[int], now: datetime
) -> None:
    """One statement for all; those that are claimed once more are another copy of the same redrive."""
    values: dict[str, ColumnElement[Any]] = {
        "operation": literal(operation_id),
        "task_id": letter.c.task_id,
        "task": letter.c.task,
        "redrive": letter.c.redrive_count + 1,
        "state": literal(SendingState.SENT.value),
        "was": letter.c.state,
        "copy": literal(token),
        "copies": literal(1),
        **{name: literal("") for name in ("why", "fingerprint", "change")},
        "claimed_at": literal(now, Moment()),
    }
    named = [value.label(name) for name, value in values.items()]
    found = select(*named).where(one_of(connection, letter.c.id, numbers)).cte()
    # In the order in which all others lock them. Asked for both at once, PostgreSQL, before its first
    # ANALYZE, would look through all letters in that order.
    found = found.prefix_with("MATERIALIZED", dialect="postgresql")
    rows = select(found).order_by(found.c.task_id)
    again = {
        "copy": token, "copies": sending.c.copies + 1, "claimed_at": now,
        "state": SendingState.SENT.value,
    }  # fmt: skip
    connection.execute(_upsert(connection.dialect.name, list(values), rows, again))


def _upsert(dialect: str, names: list[str], rows: Any, again: dict[str, Any]) -> Any:
    if dialect == "mysql":
        return mysql.insert(sending).from_select(names, rows).on_duplicate_key_update(again)
    upsert = in_bulk((postgresql if dialect == "postgresql" else sqlite).insert(sending))
    keys = list(sending.primary_key.columns)
    return upsert.from_select(names, rows).on_conflict_do_update(index_elements=keys, set_=again)


_IS_ONE = sending.c.task_id == bindparam("of_task_id")


def _claimed(operation_id: str, token: str) -> ColumnElement[bool]:
    return and_(sending.c.operation == operation_id, sending.c.copy == token)


def _rows(texts: Mapping[str, str], column: str) -> list[dict[str, str]]:
    """One row of parameters for each id, in the order in which all others lock them."""
    return [
        {"of_task_id": task_id, f"of_{column}": fit(sending, {column: text})[column]}
        for task_id, text in sorted(texts.items())
    ]
