"""Takes letters for a redrive, and gives them back.

A claim is one row, which exists as long as the claim holds. Claiming a letter writes it as it will be once it
has been sent: ``redriven``, its redrive counted, under the claim's token. While the claim exists, the letter
counts as claimed. So a batch of any size is marked as sent by deleting one row. Only a letter that was not
sent is written a second time.

Making the letters of the rows limits how many a redrive sends in a second, so that code is written for speed.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import (
    Column,
    ColumnElement,
    Row,
    Select,
    case,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.engine import Connection

from celery_dlq.base.codec import decode_table
from celery_dlq.model.letter import DeadLetter, Envelope, Explanation
from celery_dlq.model.operation import SendingState
from celery_dlq.model.states import Reason, State, Verdict
from celery_dlq.store.base import Claim, Filter, Operation
from celery_dlq.store.database.dialects import dialect_of
from celery_dlq.store.database.dialects.dialect import MUCH
from celery_dlq.store.database.tables import claim, content, letter, sending
from celery_dlq.store.rows.bodies import SIZE, body_of, give_time_for_bodies, read_bodies, within
from celery_dlq.store.rows.query import Conditions, conditions, in_states, live_tokens, one_of
from celery_dlq.store.rows.rows import stored_id

#: The most letters among which causes are looked for.
_LOOKED_AT = 100_000

T = TypeVar("T")

_NAMES = (
    "last_failed_at", "id", "claim_token", "task_id", "task", "first_failed_at", "release",
    "message_release", "canvas", "fingerprint", "redrive_count", "reason", "verdict", "rule",
    "content_type", "content_encoding", "exchange", "routing_key", "queue",
)  # fmt: skip

#: The columns of a letter that a claim reads. Values are read from rows by position, because by name it takes
#: ten times as long.
COLUMNS = tuple(letter.c[name] for name in _NAMES)
FAILED_AT, ID, CLAIM_TOKEN = map(_NAMES.index, ("last_failed_at", "id", "claim_token"))

_CONTENT: Select[Any] = select(
    content.c.id, SIZE, content.c.headers, content.c.properties
).execution_options(**{MUCH: True})

#: The positions of a body's size, and of the body, in a row of contents.
BODY_SIZE, BODY = 1, 4

#: The fields that a redrive does not need, and those that have the same value in all claimed letters.
_SAME: dict[str, Any] = {
    **{item.name: item.default for item in fields(DeadLetter)},
    **dict.fromkeys(("exception_type", "message", "traceback", "worker"), ""),
    **dict.fromkeys(("args", "kwargs", "pid", "root_id", "parent_id", "group_id", "correlation_id")),
    "state": State.CLAIMED, "attempts": (), "tags": (),
}  # fmt: skip

_REASONS = {reason.value: reason for reason in Reason}

#: Rows of :data:`COLUMNS`, each with the row of its contents.
Rows = list[tuple[Row[Any], Row[Any]]]

#: The letter's state before it was claimed; dead if its claim has no sending.
_BEFORE = func.coalesce(
    select(func.max(sending.c.was))
    .where(sending.c.task_id == letter.c.task_id, sending.c.copy == letter.c.claim_token)
    .correlate(letter)
    .scalar_subquery(),
    State.DEAD.value,
)

#: Whether a claim holds the letter.
_IS_CLAIMED = (
    select(claim.c.token).where(claim.c.token == letter.c.claim_token).correlate(letter).exists()
)

_UNCLAIMED: dict[str, Any] = {"claim_token": None, "lease_expires_at": None}

# The state comes first, as it does in the table: MySQL assigns in order, and _BEFORE needs the token.
_AS_BEFORE: dict[str, Any] = {
    "state": _BEFORE, **_UNCLAIMED, "redrive_count": letter.c.redrive_count - 1,
}  # fmt: skip


def lock(connection: Connection, wanted: Filter, *also: ColumnElement[bool], limit: int) -> Rows:
    """Lock up to ``limit`` letters that may be claimed and for which ``also`` holds, oldest failure first.
    Letters that another claim is taking are left out. If bodies are large, fewer letters are taken."""
    found = [*conditions(connection, wanted), *also]
    rows: list[Row[Any]] = []
    for state in _sources(wanted):
        oldest = _oldest(COLUMNS, state, found).limit(limit - len(rows))
        locked = oldest.with_for_update(skip_locked=True).execution_options(**{MUCH: True})
        rows += connection.execute(locked).all()
    live = live_tokens(connection, (row[CLAIM_TOKEN] for row in rows))
    return with_contents(connection, [row for row in rows if row[CLAIM_TOKEN] not in live])


def are_left(connection: Connection, wanted: Filter, *also: ColumnElement[bool]) -> bool:
    """Whether any letter may be claimed for which ``also`` holds: also one that :func:`lock` leaves out
    because another transaction has locked it, and may yet be undone."""
    found = [*conditions(connection, wanted), *also, ~_IS_CLAIMED]
    firsts = (_oldest([letter.c.id], state, found).limit(1) for state in _sources(wanted))
    return any(connection.execute(first).first() is not None for first in firsts)


def first_ids(connection: Connection, wanted: Filter, limit: int) -> list[str]:
    """The task ids of the letters that :func:`lock` would take first, in its order."""
    found, ids = conditions(connection, wanted), list[str]()
    for state in _sources(wanted):
        oldest = _oldest([letter.c.task_id], state, found).limit(limit - len(ids))
        ids += connection.execute(oldest).scalars()
    return ids


def first_of_every_cause(
    connection: Connection, operation: Operation, *also: ColumnElement[bool], limit: int
) -> list[int]:
    """The letters that :func:`lock` may take if each cause has its turn: one of each, then a second one of
    each, the oldest failures first. Causes of which ``operation`` has sent letters already come last."""
    found = in_states(_sources(operation.wanted)), *conditions(connection, operation.wanted), *also
    # As :func:`lock`: dead letters, then redriven ones. Letters beyond the operation's limit have no turn.
    names, most = ("state", "last_failed_at", "id"), min(operation.counts.left, _LOOKED_AT)
    by_age = [letter.c[name] for name in names]
    old = (
        select(*by_age, letter.c.fingerprint).where(*found).order_by(*by_age).limit(most).subquery()
    )
    age = [old.c[name] for name in names]
    sent = select(sending.c.cause).where(
        sending.c.operation == operation.id, sending.c.state != SendingState.SKIPPED.value
    )
    is_again = case((old.c.fingerprint.in_(sent), 1), else_=0)
    turn = func.row_number().over(partition_by=old.c.fingerprint, order_by=age)
    in_turn = select(old.c.id).order_by(is_again, turn, *age).limit(limit)
    return list(connection.execute(in_turn).scalars())


def hold(
    connection: Connection, rows: Rows, operation_id: str, token: str, lease_until: datetime
) -> Claim:
    """Claim the letters of ``rows``, which are locked."""
    if rows:
        taken = one_of(connection, letter.c.id, [row[ID] for row, _ in rows])
        as_sent = {"state": State.REDRIVEN.value, "redrive_count": letter.c.redrive_count + 1}
        held = {"claim_token": token, "lease_expires_at": lease_until}
        in_bulk = dialect_of(connection).in_bulk
        connection.execute(in_bulk(update(letter)).where(taken).values(**as_sent, **held))
        values = {"token": token, "letters": len(rows), "lease_expires_at": lease_until}
        connection.execute(insert(claim).values(operation=operation_id, **values))
    rows.sort(key=lambda pair: (pair[0][FAILED_AT], pair[0][ID]))
    return Claim(token=token, letters=tuple(letters_of(connection, rows, token, lease_until)))


def letters_of(
    connection: Connection, rows: Rows, token: str, lease_until: datetime
) -> list[DeadLetter]:
    """The letters of ``rows``, as they were before they were claimed, with this claim."""
    large = ((row[ID], found[BODY_SIZE]) for row, found in rows if found[BODY] is None)
    bodies = read_bodies(connection, large)
    return [
        claimed_letter(row, contents, bodies.get(row[ID]), token, lease_until)
        for row, contents in rows
    ]


def is_live(connection: Connection, token: str) -> bool:
    """Whether the claim still exists. If so, it stays locked until the transaction ends."""
    stored = select(claim.c.token).where(claim.c.token == token).with_for_update()
    return connection.execute(stored).scalar_one_or_none() is not None


def end(connection: Connection, token: str) -> bool:
    """End a claim whose remaining letters were all sent: they are now ``REDRIVEN``. False if it was gone."""
    return bool(connection.execute(delete(claim).where(claim.c.token == token)).rowcount)


def confirm(connection: Connection, token: str, ids: Collection[str]) -> int:
    """Make these letters of an existing claim ``REDRIVEN``; its other letters stay claimed."""
    return connection.execute(_update_of(connection, token, ids).values(_UNCLAIMED)).rowcount


def release(connection: Connection, token: str, ids: Collection[str]) -> int:
    """Give these letters of an existing claim the state that they had before it."""
    return connection.execute(_update_of(connection, token, ids).values(_AS_BEFORE)).rowcount


def settled(connection: Connection, token: str, count: int) -> None:
    """Subtract ``count`` letters from the number that the claim still has."""
    fewer = update(claim).where(claim.c.token == token)
    connection.execute(fewer.values(letters=claim.c.letters - count))


def dissolve(connection: Connection, token: str, ids: Sequence[str]) -> int:
    """Release the letters of ``ids``, and end the claim."""
    freed = release(connection, token, ids)
    end(connection, token)
    return freed


def expired(connection: Connection, now: datetime) -> list[tuple[str, str]]:
    """Operation and token of the claims whose lease has ended. They are locked; those that another
    transaction has locked are left out."""
    return _found(connection, claim.c.lease_expires_at <= now)


def of_operation(connection: Connection, operation_id: str) -> list[tuple[str, str]]:
    """Operation and token of the claims of one operation, as :func:`expired` returns them."""
    return _found(connection, claim.c.operation == operation_id)


def _found(connection: Connection, condition: ColumnElement[bool]) -> list[tuple[str, str]]:
    stored = select(claim.c.operation, claim.c.token).where(condition)
    in_order = stored.order_by(claim.c.token).with_for_update(skip_locked=True)
    return [(operation_id, token) for operation_id, token in connection.execute(in_order)]


def _sources(wanted: Filter) -> list[State]:
    """The states from which letters may be taken. Each needs a query of its own, because the index is in the
    order of time only within a state."""
    states = wanted.states or {State.DEAD}
    return [state for state in (State.DEAD, State.REDRIVEN) if state in states]


def _oldest(columns: Sequence[Column[Any]], state: State, found: Conditions) -> Select[Any]:
    in_order = letter.c.last_failed_at, letter.c.id
    return select(*columns).where(in_states([state]), *found).order_by(*in_order)


def with_contents(connection: Connection, rows: Sequence[Row[Any]]) -> Rows:
    """The first of ``rows`` whose bodies are not too large together, each with its contents."""
    contents = read_contents(connection, [row[ID] for row in rows])
    pairs = [(row, contents[row[ID]]) for row in rows]
    return pairs[: within(found[BODY_SIZE] for _, found in pairs)]


def _update_of(connection: Connection, token: str, ids: Collection[str]) -> Any:
    in_bulk = dialect_of(connection).in_bulk
    return in_bulk(update(letter)).where(
        one_of(connection, letter.c.task_id, [stored_id(item) for item in ids]),
        letter.c.claim_token == token,
        letter.c.state == State.REDRIVEN.value,
    )


def read_contents(connection: Connection, numbers: Sequence[int]) -> dict[int, Row[Any]]:
    """The contents of the letters with these numbers, by number. A row has the size of the body, and the body
    itself, or None if it is too large to be read together with the others; see :data:`BODY_SIZE` and
    :data:`BODY`."""
    if not numbers:
        return {}
    give_time_for_bodies(connection, len(numbers))
    these = _CONTENT.add_columns(body_of(len(numbers)))
    these = these.where(one_of(connection, content.c.id, numbers))
    return {row[0]: row for row in connection.execute(these).all()}


def claimed_letter(
    row: Sequence[Any],
    contents: Sequence[Any],
    large_body: bytes | None,
    token: str,
    lease_until: datetime,
) -> DeadLetter:
    """The letter of a row of :data:`COLUMNS`, as it was before it was claimed, with its claim.

    :param contents: a row of :func:`read_contents`.
    :param large_body: the body, if ``contents`` do not have it.
    """
    values = _SAME.copy()
    (
        values["last_failed_at"], _, _, values["task_id"], values["task"], values["first_failed_at"],
        values["release"], values["message_release"], values["canvas"], values["fingerprint"],
        values["redrive_count"], reason, verdict, rule, *place,
    ) = row  # fmt: skip
    values["reason"], values["explanation"] = _REASONS[reason], _explanation(verdict, rule)
    values["claim_token"], values["lease_expires_at"] = token, lease_until
    values["envelope"] = _envelope(place, contents, large_body)
    return _made(DeadLetter, values)


def _envelope(place: list[str], contents: Sequence[Any], large_body: bytes | None) -> Envelope:
    content_type, content_encoding, exchange, routing_key, queue = place
    _, _, headers, properties, body = contents
    values = {
        "content_type": content_type, "content_encoding": content_encoding, "exchange": exchange,
        "routing_key": routing_key, "queue": queue, "headers": decode_table(headers),
        "properties": decode_table(properties), "body": body if large_body is None else large_body,
    }  # fmt: skip
    return _made(Envelope, values)


@functools.lru_cache(maxsize=1_024)
def _explanation(verdict: str, rule: str) -> Explanation:
    return Explanation(verdict=Verdict(verdict), rule=rule)


def _made(kind: type[T], values: dict[str, Any]) -> T:
    # The constructor of a frozen dataclass makes a call for each field.
    value = object.__new__(kind)
    object.__setattr__(value, "__dict__", values)
    return value
