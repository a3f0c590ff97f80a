"""Bodies of messages. A large one is read by itself, once it is known how large it is."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from sqlalchemy import RowMapping, case, func, select
from sqlalchemy.engine import Connection

from celery_dlq.store import tables
from celery_dlq.store.drivers import MUCH, give_time

content = tables.content

#: Bytes of a body up to which it is read along.
INLINE = 32_768

#: Bytes of the bodies that are read together, by a claim or otherwise; but one letter is, in any case.
TOGETHER = 16 * 1_048_576

_LENGTH = func.length(content.c.body)

SIZE = _LENGTH.label("size")
#: The body, where it is read along.
BODY = case((_LENGTH <= INLINE, content.c.body)).label("body")


def within(sizes: Iterable[int], most: int = TOGETHER) -> int:
    """How many of the first bodies have at most so many bytes together; one in any case."""
    return max(1, sum(size <= most for size in itertools.accumulate(sizes)))


def read_bodies(connection: Connection, sizes: Iterable[tuple[int, int]]) -> dict[int, bytes]:
    """The bodies that were too large to be read along, by the letter's number.

    :param sizes: of the bodies, each with the number of its letter.
    """
    missing = {number: size for number, size in sizes if size > INLINE}
    if not missing:
        return {}
    give_time(connection, sum(missing.values()))
    bodies = select(content.c.id, content.c.body).where(content.c.id.in_(missing))
    bodies = bodies.execution_options(**{MUCH: True})
    return {row.id: row.body for row in connection.execute(bodies)}


def with_body(connection: Connection, row: RowMapping) -> dict[str, Any]:
    """``row``, which has :data:`SIZE` and :data:`BODY`, with its body in any case."""
    large = read_bodies(connection, [(row["id"], row["size"])])
    return {**row, "body": large.get(row["id"], row["body"])}
