"""Bodies of messages. A small one is read together with its letter; a large one by a statement of its
own, which gets time for its size."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, RowMapping, case, func, select
from sqlalchemy.engine import Connection

from celery_dlq.errors import RecordRefused
from celery_dlq.model.letter import DeadLetter
from celery_dlq.store.database.dialects import dialect_of
from celery_dlq.store.database.dialects.dialect import MUCH
from celery_dlq.store.database.tables import content

#: The most bytes of a body that is read together with its letter, if the statement reads few letters.
INLINE = 32_768

#: The most bytes of bodies that are read together, by a claim or otherwise. A single body may have more.
TOGETHER = 16 * 1_048_576

# Bytes that any network carries within a statement's usual time.
_MUCH = 4 * 1_048_576

SIZE = func.length(content.c.body).label("size")


def body_of(letters: int) -> ColumnElement[bytes | None]:
    """The body, if it is small enough to be read together with this many letters; otherwise NULL. All these
    bodies have no more than :data:`TOGETHER` bytes."""
    return case((func.length(content.c.body) <= _most(letters), content.c.body)).label("body")


def give_time_for_bodies(connection: Connection, letters: int) -> None:
    """Give the next statement the time that :func:`body_of` may need for this many letters."""
    size = letters * _most(letters)
    if size > _MUCH:
        dialect_of(connection).give_time(connection, size)


def _most(letters: int) -> int:
    return min(INLINE, TOGETHER // max(1, letters))


def within(sizes: Iterable[int], most: int = TOGETHER) -> int:
    """How many bodies, from the first, have at most ``most`` bytes together; one in any case."""
    return max(1, sum(size <= most for size in itertools.accumulate(sizes)))


def check_sizes(connection: Connection, letters: Sequence[DeadLetter]) -> None:
    """Refuse letters whose message is too large for the database.

    :raises RecordRefused: one of them is too large.
    """
    largest = max(letters, key=lambda letter: len(letter.envelope.body))
    size = len(largest.envelope.body)
    if limit := dialect_of(connection).why_too_large(connection, size):
        raise RecordRefused(
            f"The message of {largest.task_id} has {size:,} bytes, too large for the database: {limit}."
        )


def read_bodies(connection: Connection, sizes: Iterable[tuple[int, int]]) -> dict[int, bytes]:
    """The bodies that were too large to be read together with their letters, by the letter's number.

    :param sizes: the number of each letter, and the size of its body.
    """
    missing = dict(sizes)
    if not missing:
        return {}
    dialect_of(connection).give_time(connection, sum(missing.values()))
    bodies = select(content.c.id, content.c.body).where(content.c.id.in_(missing))
    bodies = bodies.execution_options(**{MUCH: True})
    return {row.id: row.body for row in connection.execute(bodies)}


def first_with_bodies(
    connection: Connection, keys: Sequence[str], found: Iterable[RowMapping]
) -> tuple[list[dict[str, Any]], int]:
    """The rows of the first of ``keys``, in the order of the keys and with their bodies; and how many keys
    these are. The bodies have at most :data:`TOGETHER` bytes together, unless the first alone has more.

    :param keys: stored task ids, some of which may have no row.
    :param found: their rows, which have :data:`SIZE` and :func:`body_of`.
    """
    by_key = {row["task_id"]: row for row in found}
    rows = [by_key[key] for key in dict.fromkeys(keys) if key in by_key]
    taken = rows[: within(row["size"] for row in rows)]
    large = ((row["id"], row["size"]) for row in taken if row["body"] is None)
    bodies = read_bodies(connection, large)
    count = len(keys) if len(taken) == len(rows) else keys.index(rows[len(taken)]["task_id"])
    return [{**row, "body": bodies.get(row["id"], row["body"])} for row in taken], count


def with_body(connection: Connection, row: RowMapping) -> dict[str, Any]:
    """``row``, which has :data:`SIZE` and :func:`body_of`, with its body, however large it is."""
    missing = [(row["id"], row["size"])] if row["body"] is None else []
    return {**row, "body": read_bodies(connection, missing).get(row["id"], row["body"])}
