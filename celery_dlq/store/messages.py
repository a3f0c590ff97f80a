"""Letters with their messages, many at a time."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.engine import Connection

from celery_dlq.letter import DeadLetter
from celery_dlq.store import tables
from celery_dlq.store.bodies import SIZE, body_of, give_time_along, read_bodies, within
from celery_dlq.store.query import IS_CLAIMED, OF_LETTER, one_of
from celery_dlq.store.rows import letter_from, stored_id

letter, content = tables.letter, tables.content

_READ = select(
    letter,
    *(content.c[name] for name in ("headers", "properties", "args", "kwargs")),
    SIZE,
    IS_CLAIMED,
).join(content, OF_LETTER)


def read(connection: Connection, task_ids: Sequence[str]) -> tuple[list[DeadLetter], int]:
    """The letters of the first of ``task_ids``, and of how many of these they are."""
    keys = [stored_id(task_id) for task_id in task_ids]
    give_time_along(connection, len(keys))
    these = _READ.add_columns(body_of(len(keys)))
    rows = connection.execute(these.where(one_of(connection, letter.c.task_id, keys)))
    by_key = {row.task_id: row for row in rows}
    found = [by_key[key] for key in dict.fromkeys(keys) if key in by_key]
    taken = found[: within(row.size for row in found)]
    large = ((row.id, row.size) for row in taken if row.body is None)
    bodies = read_bodies(connection, large)
    letters = [letter_from({**row._mapping, "body": bodies.get(row.id, row.body)}) for row in taken]
    told = len(keys) if len(taken) == len(found) else keys.index(found[len(taken)].task_id)
    return letters, told
