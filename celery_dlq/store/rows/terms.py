"""The values of letters, by which searches find them: written with a letter, and deleted with it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Table, and_, delete, exists, insert, or_, select
from sqlalchemy.engine import Connection

from celery_dlq.errors import FilterError
from celery_dlq.model.terms import (
    IN_MESSAGE,
    Term,
    hash_of_path,
    hash_of_value,
    terms_of_arguments,
    terms_of_message,
)
from celery_dlq.store.database.dialects import dialect_of
from celery_dlq.store.database.sealing import sealing_of
from celery_dlq.store.database.tables import letter, term
from celery_dlq.store.filter import Argument, Filter

#: If no more letters than this have a value, they are read by their ids. Otherwise each letter in question is
#: asked whether it has the value: planners do not know how frequent single values are.
RARE = 2_000

#: Letters by their ids, each with its row or the columns of it that change.
Rows = Iterable[tuple[int, Mapping[str, Any]]]


def add_terms(connection: Connection, letters: Rows, limit: int) -> None:
    """Write the values of letters that have none yet.

    :param limit: the most values of a letter's arguments; 0 if no values are kept.
    """
    if limit:
        key = sealing_of(connection).hash_key
        # In the order of the ids, so that writers wait for each other instead of deadlocking.
        found = [
            {"letter": number, **one._asdict()}
            for number, row in sorted(letters, key=lambda pair: pair[0])
            for one in sorted(_terms(row, limit, key))
        ]
        if found:
            connection.execute(insert(term), found)


def replace_terms(connection: Connection, letters: Rows, limit: int) -> None:
    """Write the values again in the columns that change: the message, or the arguments."""
    changed = [(number, row) for number, row in letters if row.keys() & {"message", "args"}]
    for column, is_its in (("message", _IS_IN_MESSAGE), ("args", ~_IS_IN_MESSAGE)):
        numbers = sorted(number for number, row in changed if column in row)
        if numbers:
            old = dialect_of(connection).one_of(term.c.letter, numbers)
            connection.execute(delete(term).where(old, is_its))
    add_terms(connection, changed, limit)


def value_conditions(
    connection: Connection, wanted: Filter, table: Table
) -> Iterator[ColumnElement[bool]]:
    """The conditions of ``wanted`` on values.

    :raises FilterError: ``table`` is not that of the letters.
    """
    if table is not letter and wanted.asks_for_values:
        raise FilterError(
            "The values of parked retries are not kept; use --search for them, or another --state."
        )
    if not wanted.asks_for_values:
        return  # the key of the hashes may be missing
    key = sealing_of(connection).hash_key
    for value in wanted.values:
        yield _has(connection, hash_of_value(value.strip(), key), None)
    for argument in wanted.args:
        yield or_(*_anywhere(connection, argument))


def walked_by(connection: Connection, wanted: Filter) -> Filter:
    """The part of ``wanted`` by which its letters can be read in their order from an index. The rest is
    checked letter by letter."""
    indexed = wanted.indexed
    looked_up = _looked_up(connection, wanted)
    is_rare = any(_rare(connection, value, path) is not None for value, path in looked_up)
    return replace(indexed, args=wanted.args, values=wanted.values) if is_rare else indexed


def newest_with_all(connection: Connection, wanted: Filter) -> set[int]:
    """The ids of the letters that have all values of ``wanted``; of many letters, the highest ids."""
    looked_up = _looked_up(connection, wanted)
    found = [newest_with(connection, value, path) for value, path in looked_up]
    return set.intersection(*found) if found else set()


def newest_with(connection: Connection, value: int, path: int | None) -> set[int]:
    """The ids of the letters that have a value: at ``path``, or anywhere if ``path`` is None. Of more than
    :data:`RARE` letters, the highest ids."""
    # The index is in this order, so that of a frequent value no more rows than these are read.
    order = term.c.path.desc(), term.c.letter.desc()
    these = select(term.c.letter).where(*_is(value, path)).order_by(*order).limit(RARE)
    return set(connection.scalars(these))


def _terms(row: Mapping[str, Any], limit: int, key: bytes) -> set[Term]:
    in_message = terms_of_message(row["message"], key) if "message" in row else set()
    if "args" not in row:
        return in_message
    return in_message | terms_of_arguments(
        json.loads(row["args"]), json.loads(row["kwargs"]), limit, key
    )


def _looked_up(connection: Connection, wanted: Filter) -> Iterator[tuple[int, int | None]]:
    """The values that all letters of ``wanted`` have, each with its path."""
    if not wanted.asks_for_values:
        return
    key = sealing_of(connection).hash_key
    yield from ((hash_of_value(value.strip(), key), None) for value in wanted.values)
    for argument in wanted.args:
        path = None if argument.positions else hash_of_path(argument.path, key)
        yield hash_of_value(argument.value, key), path


def _anywhere(connection: Connection, argument: Argument) -> Iterator[ColumnElement[bool]]:
    """Whether a letter has the argument under its name, or in the position that it has in the letter's
    task."""
    key = sealing_of(connection).hash_key
    value = hash_of_value(argument.value, key)
    yield _has(connection, value, hash_of_path(argument.path, key))
    for position in sorted({position for _, position in argument.positions}):
        tasks = sorted(task for task, its in argument.positions if its == position)
        has = _has(connection, value, hash_of_path(argument.path_at(position), key))
        yield and_(letter.c.task.in_(tasks), has)


def _has(connection: Connection, value: int, path: int | None) -> ColumnElement[bool]:
    """Whether a letter has ``value``: at ``path``, or anywhere if ``path`` is None."""
    few = _rare(connection, value, path)
    if few is not None:
        return dialect_of(connection).one_of(letter.c.id, few)
    return exists().where(term.c.letter == letter.c.id, *_is(value, path)).correlate(letter)


def _rare(connection: Connection, value: int, path: int | None) -> list[int] | None:
    """The ids of the letters that have the value; None if more than :data:`RARE` letters do."""
    these = select(term.c.letter).where(*_is(value, path))
    # Asked first, because the database counts these ids faster than it sends them.
    if connection.execute(these.offset(RARE).limit(1)).first() is not None:
        return None
    return sorted(set(connection.scalars(these)))


def _is(value: int, path: int | None) -> list[ColumnElement[bool]]:
    return [term.c.value == value, *([] if path is None else [term.c.path == path])]


_IS_IN_MESSAGE = term.c.path == IN_MESSAGE
