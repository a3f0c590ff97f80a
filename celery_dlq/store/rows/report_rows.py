"""Rows of reports: what was last seen or done, by name."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy.engine import Connection

from celery_dlq.codec import dump_json
from celery_dlq.store.database import tables
from celery_dlq.store.database.dialects.supported import dialect_of

report = tables.report


def write_reports(
    connection: Connection, details: Mapping[str, Mapping[str, Any]], now: datetime
) -> None:
    """Write reports, each with its detail after its name, instead of the earlier ones of these names."""
    upsert = dialect_of(connection).upsert(
        report, lambda given: {"at": given.at, "detail": given.detail}
    )
    rows = [
        {"name": name, "at": now, "detail": dump_json(detail)} for name, detail in details.items()
    ]
    connection.execute(upsert, rows)
