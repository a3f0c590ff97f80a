"""Letters as they were stored before schema 0010, in one table with all that is large of them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, MetaData, Table, insert
from sqlalchemy.engine import Connection

from celery_dlq.store import tables

_NAMES = {column.name: column.type for column in [*tables.letter.c, *tables.content.c]}


def insert_letters(connection: Connection, rows: list[dict[str, Any]]) -> None:
    columns = [Column(name, type_) for name, type_ in _NAMES.items() if name in rows[0]]
    connection.execute(insert(Table(tables.letter.name, MetaData(), *columns)), rows)
