"""Bodies of messages. A large one is read by itself, once it is known how large it is."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement, RowMapping, case, func, select
from sqlalchemy.engine import Connection

from celery_dlq.store import tables
from celery_dlq.store.drivers import MUCH, give_time

content = tables.content

#: Bytes of a body up to which it is read along, of one letter or a few.
INLINE = 32_768

#: Bytes of the bodies that are read together, by a claim or otherwise; but one letter is, in any case.
TOGETHER = 16 * 1_048_576

# Bytes that come in the usual time over any network.
_MUCH = 4 * 1_048_576

SIZE = func.length(content.c.body).label("size")


def body_of(letters: int) -> ColumnElement[bytes | None]:
    """The body, where it is read along with those of so many letters; NULL where it is too large for that.
    Together they have no more than :data:`TOGETHER` bytes."""
    return case((func.length(content.c.body) <= _most(letters), content.c.body)).label("body")


def give_time_along(connection: Connection, letters: int) -> None:
    """As much as the bodies of so many letters may need that are read along."""
    size = letters * _most(letters)
    if size > _MUCH:
        give_time(connection, size)


def _most(letters: int) -> int:
    return min(INLINE, TOGETHER // max(1, letters))


def within(sizes: Iterable[int], most: int = TOGETHER) -> int:
    """How many of the first bodies have at most so many bytes together; one in any case."""
    return max(1, sum(size <= most for size in itertools.accumulate(sizes)))


def read_bodies(connection: Connection, sizes: Iterable[tuple[int, int]]) -> dict[int, bytes]:
    """The bodies that were not read along, by the letter's number.

    :param sizes: of these bodies, each with the number of its letter.
    """
    missing = dict(sizes)
    if not missing:
        return {}
    give_time(connection, sum(missing.values()))
    bodies = select(content.c.id, content.c.body).where(content.c.id.in_(missing))
    bodies = bodies.execution_options(**{MUCH: True})
    return {row.id: row.body for row in connection.execute(bodies)}


def with_body(connection: Connection, row: RowMapping) -> dict[str, Any]:
    """``row``, which has :data:`SIZE` and :func:`body_of`, with its body in any case."""
    missing = [(row["id"], row["size"])] if row["body"] is None else []
    return {**row, "body": read_bodies(connection, missing).get(row["id"], row["body"])}
