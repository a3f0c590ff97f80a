"""All rows of a query at once."""

from __future__ import annotations

import json
from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from functools import lru_cache, reduce
from typing import Any

from sqlalchemy import ColumnElement, LargeBinary, Select, Text, cast, func, literal_column, select
from sqlalchemy.engine import Connection

from celery_dlq.store.columns import Moment

_NOTHING: ColumnElement[Any] = literal_column("''")


def fetch_all(connection: Connection, statement: Select[Any]) -> Sequence[Any]:
    """The rows of ``statement``, which have its columns by name and number."""
    if connection.dialect.name == "sqlite":
        return list(_in_one_piece(connection, statement))
    return connection.execute(statement).all()


def _in_one_piece(connection: Connection, statement: Select[Any]) -> Iterator[Any]:
    """As one row. Python's sqlite3 lets another thread run for each row that it fetches, and then waits until
    that one lets it go on: a thousand times for a thousand rows, beside a thread that has much to do."""
    columns = list(statement.subquery().c)
    large = [place for place, column in enumerate(columns) if _is_large(column)]
    values = [_size(column) if _is_large(column) else column for column in columns]
    pieces = (func.coalesce(columns[place], _NOTHING) for place in large)
    together = func.group_concat(reduce(_joined, pieces, _NOTHING), _NOTHING)
    listed = select(func.json_group_array(func.json_array(*values)), cast(together, LargeBinary))
    rows, data = connection.execute(listed).one()
    row_of = _row(tuple(column.name for column in columns))
    readers = {place: _reader(column) for place, column in enumerate(columns)}
    read = [(place, reader) for place, reader in readers.items() if reader is not None]
    start = 0
    for row in json.loads(rows):
        for place in large:
            if row[place] is not None:
                end = start + row[place]
                row[place], start = data[start:end], end
        for place, reader in read:
            if row[place] is not None:
                row[place] = reader(row[place])
        yield row_of(row)


def _is_large(column: ColumnElement[Any]) -> bool:
    return isinstance(column.type, LargeBinary | Text)


def _size(column: ColumnElement[Any]) -> ColumnElement[int]:
    return func.length(cast(column, LargeBinary))


def _joined(text: ColumnElement[Any], more: ColumnElement[Any]) -> ColumnElement[Any]:
    return text.op("||")(more)


def _reader(column: ColumnElement[Any]) -> Callable[[Any], Any] | None:
    if isinstance(column.type, Moment):
        return _moment
    return bytes.decode if isinstance(column.type, Text) else None


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc)


@lru_cache(maxsize=16)
def _row(names: tuple[str, ...]) -> Callable[[list[Any]], Any]:
    kind: Any = namedtuple("Row", names)  # type: ignore[misc]
    make: Callable[[list[Any]], Any] = kind._make
    return make
