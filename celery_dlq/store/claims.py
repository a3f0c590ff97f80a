"""Taking letters for a redrive, and giving them back.

A claim is one row, for as long as it holds. Its letters are written at once as they will be when they are
sent: ``redriven``, counted, under the claim's token; they count as claimed while the claim is there. So the
mark of a batch is that its claim goes, whatever its size; each letter is written to a second time only
where it was not sent.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Row, delete, func, insert, select, update
from sqlalchemy.engine import Connection

from celery_dlq.states import State
from celery_dlq.store import tables
from celery_dlq.store.base import Claim, Filter
from celery_dlq.store.bodies import read_bodies, within
from celery_dlq.store.claimed import (
    BODY,
    BODY_SIZE,
    CLAIM_TOKEN,
    COLUMNS,
    FAILED_AT,
    ID,
    claimed_letter,
    read_contents,
)
from celery_dlq.store.drivers import MUCH, in_bulk
from celery_dlq.store.fetch import fetch_all
from celery_dlq.store.query import conditions, in_states, one_of
from celery_dlq.store.rows import stored_id

letter, sending, claim = tables.letter, tables.sending, tables.claim

#: Of :data:`~celery_dlq.store.claimed.COLUMNS`, each with that of its contents.
Rows = list[tuple[Row[Any], Row[Any]]]

#: What the letter was before it was claimed; dead if its claim has no sending.
_BEFORE = func.coalesce(
    select(func.max(sending.c.was))
    .where(sending.c.task_id == letter.c.task_id, sending.c.copy == letter.c.claim_token)
    .correlate(letter)
    .scalar_subquery(),
    State.DEAD.value,
)

_UNCLAIMED: dict[str, Any] = {"claim_token": None, "lease_expires_at": None}

# The state comes first, as it does in the table: MySQL would read a token that is gone.
_AS_BEFORE: dict[str, Any] = {
    "state": _BEFORE, **_UNCLAIMED, "redrive_count": letter.c.redrive_count - 1,
}  # fmt: skip


def lock(connection: Connection, wanted: Filter, *also: ColumnElement[bool], limit: int) -> Rows:
    """Up to ``limit`` letters that may be claimed and for which ``also`` holds, locked, oldest failure
    first, without those that another claim is just taking. Fewer where their bodies are large."""
    found = [*conditions(connection, wanted), *also]
    rows: list[Row[Any]] = []
    for state in _sources(wanted):
        oldest = (
            select(*COLUMNS)
            .where(in_states([state]), *found)
            .order_by(letter.c.last_failed_at, letter.c.id)
            .limit(limit - len(rows))
            .with_for_update(skip_locked=True)
            .execution_options(**{MUCH: True})
        )
        rows += fetch_all(connection, oldest)
    return _with_contents(connection, _without_held(connection, rows))


def hold(
    connection: Connection, rows: Rows, operation_id: str, token: str, lease_until: datetime
) -> Claim:
    """Claim the letters of ``rows``."""
    if rows:
        taken = one_of(connection, letter.c.id, [row[ID] for row, _ in rows])
        as_sent = {"state": State.REDRIVEN.value, "redrive_count": letter.c.redrive_count + 1}
        held = {"claim_token": token, "lease_expires_at": lease_until}
        connection.execute(in_bulk(update(letter)).where(taken).values(**as_sent, **held))
        connection.execute(
            insert(claim).values(
                token=token, operation=operation_id, letters=len(rows), lease_expires_at=lease_until
            )
        )
    rows.sort(key=lambda pair: (pair[0][FAILED_AT], pair[0][ID]))
    large = ((row[ID], found[BODY_SIZE]) for row, found in rows if found[BODY] is None)
    bodies = read_bodies(connection, large)
    letters = tuple(
        claimed_letter(row, contents, bodies.get(row[ID]), token, lease_until)
        for row, contents in rows
    )
    return Claim(token=token, letters=letters)


def is_live(connection: Connection, token: str) -> bool:
    """Whether the claim is still there; locked until the transaction ends."""
    stored = select(claim.c.token).where(claim.c.token == token).with_for_update()
    return connection.execute(stored).scalar_one_or_none() is not None


def end(connection: Connection, token: str) -> bool:
    """All that is left of the claim was sent: its letters are ``REDRIVEN``. False when it was gone."""
    return bool(connection.execute(delete(claim).where(claim.c.token == token)).rowcount)


def confirm(connection: Connection, token: str, ids: Collection[str]) -> int:
    """These letters of a claim that is there become ``REDRIVEN``; the others stay claimed."""
    return connection.execute(_held(connection, token, ids).values(_UNCLAIMED)).rowcount


def release(connection: Connection, token: str, ids: Collection[str]) -> int:
    """These letters of a claim that is there become what they were."""
    return connection.execute(_held(connection, token, ids).values(_AS_BEFORE)).rowcount


def settled(connection: Connection, token: str, count: int) -> None:
    """The claim has ``count`` letters less."""
    fewer = update(claim).where(claim.c.token == token)
    connection.execute(fewer.values(letters=claim.c.letters - count))


def dissolve(connection: Connection, token: str, ids: Sequence[str]) -> int:
    """``ids`` become what they were, and the claim is gone."""
    freed = release(connection, token, ids)
    end(connection, token)
    return freed


def expired(connection: Connection, now: datetime) -> list[tuple[str, str]]:
    """Operation and token of the claims whose lease has ended, locked; without those that another one is
    just looking at."""
    return _found(connection, claim.c.lease_expires_at <= now)


def of_operation(connection: Connection, operation_id: str) -> list[tuple[str, str]]:
    """The same of the claims of one operation."""
    return _found(connection, claim.c.operation == operation_id)


def _found(connection: Connection, condition: ColumnElement[bool]) -> list[tuple[str, str]]:
    stored = select(claim.c.operation, claim.c.token).where(condition)
    in_order = stored.order_by(claim.c.token).with_for_update(skip_locked=True)
    return [(operation_id, token) for operation_id, token in connection.execute(in_order)]


def _sources(wanted: Filter) -> list[State]:
    """Where letters may be taken from; one query each, because the index is in the order of time
    only within one state."""
    states = wanted.states or {State.DEAD}
    return [state for state in (State.DEAD, State.REDRIVEN) if state in states]


def _with_contents(connection: Connection, rows: list[Row[Any]]) -> Rows:
    """As many of ``rows`` as have not too large bodies together."""
    contents = read_contents(connection, [row[ID] for row in rows])
    pairs = [(row, contents[row[ID]]) for row in rows]
    return pairs[: within(found[BODY_SIZE] for _, found in pairs)]


def _without_held(connection: Connection, rows: list[Row[Any]]) -> list[Row[Any]]:
    # A query that waited for another claim's lock does not see that claim. This one does.
    tokens = sorted({row[CLAIM_TOKEN] for row in rows} - {None})
    if not tokens:
        return rows
    live = select(claim.c.token).where(claim.c.token.in_(tokens))
    held = set(connection.execute(live).scalars())
    return [row for row in rows if row[CLAIM_TOKEN] not in held]


def _held(connection: Connection, token: str, ids: Collection[str]) -> Any:
    return in_bulk(update(letter)).where(
        one_of(connection, letter.c.task_id, [stored_id(item) for item in ids]),
        letter.c.claim_token == token,
        letter.c.state == State.REDRIVEN.value,
    )
