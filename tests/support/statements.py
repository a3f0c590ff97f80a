"""What a store asks its database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import event

from celery_dlq.store.sql import SQLStore


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
