"""Makes the letters of a claim from rows.

This limits how many letters a redrive sends in a second, so the code is written for speed.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Row, Select, select
from sqlalchemy.engine import Connection

from celery_dlq.base.codec import decode_table
from celery_dlq.model.letter import DeadLetter, Envelope, Explanation
from celery_dlq.model.states import Reason, State, Verdict
from celery_dlq.store.database.dialects.dialect import MUCH
from celery_dlq.store.database.sealing import sealing_of
from celery_dlq.store.database.tables import content, letter
from celery_dlq.store.rows.bodies import SIZE, body_of, give_time_for_bodies, read_bodies, within
from celery_dlq.store.rows.query import one_of

T = TypeVar("T")

_NAMES = (
    "last_failed_at", "id", "claim_token", "task_id", "task", "first_failed_at", "release",
    "message_release", "canvas", "fingerprint", "redrive_count", "reason", "verdict", "rule",
    "content_type", "content_encoding", "exchange", "routing_key", "queue", "sealed_by",
)  # fmt: skip

#: The columns of a letter that a claim reads. Values are read from rows by position, because by name it takes
#: ten times as long.
COLUMNS = tuple(letter.c[name] for name in _NAMES)
FAILED_AT, ID, CLAIM_TOKEN, _SEALED_BY, _TASK_ID = map(
    _NAMES.index, ("last_failed_at", "id", "claim_token", "sealed_by", "task_id")
)

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
Rows = list[tuple[Row[Any], Sequence[Any]]]


def letters_of(
    connection: Connection, rows: Rows, token: str, lease_until: datetime
) -> list[DeadLetter]:
    """The letters of ``rows``, as they were before they were claimed, with this claim."""
    large = ((row[ID], found[BODY_SIZE]) for row, found in rows if found[BODY] is None)
    bodies = read_bodies(connection, large)
    sealing = sealing_of(connection)
    sealing.find_persons(row[_SEALED_BY] for row, _ in rows)
    letters = []
    for row, (number, _size, headers, properties, body) in rows:
        its = {
            "task_id": row[_TASK_ID], "sealed_by": row[_SEALED_BY], "headers": headers,
            "properties": properties, "body": bodies.get(number, body),
        }  # fmt: skip
        if row[_SEALED_BY]:
            [its] = sealing.shown(content, [its])
        letters.append(_claimed(row, its, token, lease_until))
    return letters


def with_contents(connection: Connection, rows: Sequence[Row[Any]]) -> Rows:
    """The first of ``rows`` whose bodies are not too large together, each with its contents."""
    contents = read_contents(connection, [row[ID] for row in rows])
    pairs: Rows = [(row, contents[row[ID]]) for row in rows]
    return pairs[: within(found[BODY_SIZE] for _, found in pairs)]


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


def _claimed(
    row: Sequence[Any], contents: Mapping[str, Any], token: str, lease_until: datetime
) -> DeadLetter:
    """The letter of a row of :data:`COLUMNS`, as it was before it was claimed, with its claim."""
    values = _SAME.copy()
    (
        values["last_failed_at"], _, _, values["task_id"], values["task"], values["first_failed_at"],
        values["release"], values["message_release"], values["canvas"], values["fingerprint"],
        values["redrive_count"], reason, verdict, rule, *place, _,
    ) = row  # fmt: skip
    values["reason"], values["explanation"] = _REASONS[reason], _explanation(verdict, rule)
    values["claim_token"], values["lease_expires_at"] = token, lease_until
    values["envelope"] = _envelope(place, contents)
    values["unreadable"] = contents.get("unreadable", "")
    return _made(DeadLetter, values)


def _envelope(place: list[str], contents: Mapping[str, Any]) -> Envelope:
    content_type, content_encoding, exchange, routing_key, queue = place
    values = {
        "content_type": content_type, "content_encoding": content_encoding, "exchange": exchange,
        "routing_key": routing_key, "queue": queue, "body": contents["body"],
        "headers": decode_table(contents["headers"]),
        "properties": decode_table(contents["properties"]),
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
