"""What a store asks its database."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from sqlalchemy import event

from celery_dlq.store.sql import SQLStore

#: MySQL 9 shows a tree by default, and MariaDB a table.
_EXPLAIN = {"sqlite": "EXPLAIN QUERY PLAN", "mysql": "EXPLAIN FORMAT=TRADITIONAL"}


def statements_of(store: SQLStore, use: Callable[[], object]) -> list[tuple[str, Any]]:
    """The statements of ``use``, each with its parameters."""
    seen: list[tuple[str, Any]] = []

    def note(connection, cursor, statement, parameters, context, executemany):
        seen.append((statement, parameters))

    event.listen(store.database.engine, "before_cursor_execute", note)
    try:
        use()
    finally:
        event.remove(store.database.engine, "before_cursor_execute", note)
    return seen


def plans_of(store: SQLStore, statements: Iterable[tuple[str, Any]]) -> list[str]:
    """The rows of the plans of these statements."""
    explain = _EXPLAIN.get(store.database.dialect.name, "EXPLAIN")
    return store.database.read(
        lambda connection: [
            str(row)
            for statement, parameters in statements
            for row in connection.exec_driver_sql(f"{explain} {statement}", parameters)
        ]
    )
