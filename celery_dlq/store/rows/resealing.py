"""Seals everything that is stored of letters with another key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from celery_dlq.errors import ContentsSealed, page
from celery_dlq.store.database.sealing import CONTENTS, sealing_of
from celery_dlq.store.database.tables import (
    attempt,
    change,
    content,
    handling,
    letter,
    parked,
    sending,
)
from celery_dlq.store.rows.query import begins_with, count_rows, one_of

#: Tables whose rows belong to a letter by its task id; and those of a sealed letter without clear contents.
_BY_TASK_ID = (letter, attempt, change, sending, handling, parked)
_ALL_SEALED = (letter, content, attempt)


class Resealed(NamedTuple):
    """A letter that gets another key."""

    #: Its number, as ``id`` in the table of letters.
    number: int
    #: ``sealed_by`` as it is, and as it will be.
    before: str
    after: str


def check_keys(connection: Connection, *found: sa.ColumnElement[bool]) -> None:
    """Check that the keys of the ring are here with which the letters that meet all conditions are sealed.

    :raises ContentsSealed: a key is not.
    """
    ring, last = sealing_of(connection).ring, ""
    here = {_hash_in(label) for label in ring.labels} if ring else set[str]()
    by = letter.c.sealed_by
    # One look into the index for each key, and one for those of all persons.
    while one := connection.scalar(sa.select(sa.func.min(by)).where(by > last)):
        is_persons = one.startswith("@")
        last = "@\U0010ffff" if is_persons else one
        if _hash_in(one) not in here and not (ring and is_persons):
            its = begins_with(by, "@") if is_persons else by == one
            if number := count_rows(connection, letter, its, *found):
                key = "keys of persons" if is_persons else f"key {one}"
                raise ContentsSealed(
                    f"{number:,} letters are encrypted with {key}, which dlq_encryption_keys does not have "
                    f"here; add the key again. Nothing was changed. See {page('encryption')}."
                )


def _hash_in(label: str) -> str:
    return label.rpartition(".")[2]


def reseal(connection: Connection, letters: Mapping[str, Resealed]) -> set[str]:
    """Seal with another key what is stored of these letters, by their task ids. Returns the ids of the
    letters that cannot be read, which are left as they are. The letters' rows are locked."""
    if not letters:
        return set()
    sealing, unread = sealing_of(connection), set[str]()
    owners = {one.number: task_id for task_id, one in letters.items()}
    changes: list[tuple[sa.Table, str, dict[str, Any]]] = []
    for table in (content, *_BY_TASK_ID):
        key = table.c.id if table is content else table.c.task_id
        these = one_of(connection, key, sorted(owners if table is content else letters))
        names = (*(column.name for column in table.primary_key), *CONTENTS[table])
        stored = sa.select(key.label("owner"), *(table.c[name] for name in names)).where(these)
        for row in connection.execute(stored).mappings().all():
            task_id = owners[row["owner"]] if table is content else row["owner"]
            one = letters[task_id]
            is_known = table in _ALL_SEALED or not one.before
            try:
                clear = sealing.open(table, row, task_id, one.before if is_known else None)
            except ContentsSealed:
                unread.add(task_id)
                continue
            values = sealing.seal(table, clear, task_id, sealing.sealer(one.after))
            also = {"sealed_by": one.after} if table is letter else {}
            changes.append((table, task_id, {**values, **also}))
    for table, task_id, values in changes:
        if task_id not in unread:
            is_it = sa.and_(*(column == values[column.name] for column in table.primary_key))
            new = {name: values[name] for name in (*CONTENTS[table], "sealed_by") if name in values}
            connection.execute(sa.update(table).where(is_it).values(new))
    return unread
