"""A letter with everything that belongs to it as one value for JSON, and back as rows.

A line has the columns of the tables by name. So an older line lacks columns that were added later; these get
their defaults.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

from pybase64 import b64decode, b64encode_as_string
from sqlalchemy import Boolean, Column, Integer, LargeBinary, String, Table, Text

from celery_dlq.model.letter import Envelope
from celery_dlq.store.database import schema, tables
from celery_dlq.store.database.columns import Moment
from celery_dlq.store.rows.rows import Row, envelope_from

#: The version of the format of a line.
FORMAT = 1

#: A letter for JSON.
Line = Mapping[str, Any]

#: The tables whose rows belong to a letter by its task id, and their names in a line.
OF_LETTER: Mapping[str, Table] = {
    "attempts": tables.attempt,
    "redrives": tables.sending,
    "changes": tables.change,
    "handlings": tables.handling,
    "runs": tables.auto_letter,
    "held": tables.held,
}

#: Columns that have a meaning only in the store that wrote the line.
_LOCAL = frozenset({"id", "claim_token", "lease_expires_at"})


def line_of(letter: Row, others: Mapping[str, list[dict[str, Any]]]) -> Line:
    """The line of a letter.

    :param letter: its row, with its contents.
    :param others: the rows of the tables in :data:`OF_LETTER` by their names there, and those of the audit.
    """
    return {
        "format": FORMAT,
        "schema": schema.HEAD,
        "letter": plain(tables.letter, letter),
        "content": plain(tables.content, letter),
        **others,
    }


def plain(table: Table, row: Row) -> dict[str, Any]:
    """The values of a row for JSON, without those that have no meaning elsewhere."""
    return {
        column.name: _plain(row[column.name])
        for column in table.columns
        if column.name not in _LOCAL
    }


def row_of(table: Table, given: Mapping[str, Any]) -> dict[str, Any]:
    """The row that :func:`plain` was made of. Unknown values are left out."""
    return {
        column.name: _value(column, given.get(column.name))
        for column in table.columns
        if column.name not in _LOCAL
    }


def envelopes_of(line: Line) -> Iterator[Envelope]:
    """The message of the letter of a line, and its earlier forms, before each change."""
    letter, message = row_of(tables.letter, line["letter"]), row_of(tables.content, line["content"])
    yield envelope_from({**letter, **message})
    for change in line.get("changes", ()):
        yield envelope_from(row_of(tables.change, change))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return b64encode_as_string(value) if isinstance(value, (bytes, memoryview)) else value


def _value(column: Column[Any], given: Any) -> Any:
    if given is None:
        if column.nullable:
            return None
        return next(empty for kind, empty in _EMPTY.items() if isinstance(column.type, kind))
    if isinstance(column.type, Moment):
        return datetime.fromisoformat(given).astimezone(timezone.utc)
    return b64decode(given) if isinstance(column.type, LargeBinary) else given


#: The value of a column that an older line does not have.
_EMPTY: Mapping[type[Any], Any] = {
    Text: "", String: "", LargeBinary: b"", Boolean: False, Integer: 0,
    Moment: datetime(1970, 1, 1, tzinfo=timezone.utc),
}  # fmt: skip
