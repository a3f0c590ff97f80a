"""The database's clock: what several machines agree on."""

from __future__ import annotations

from datetime import datetime, timezone

from sqlalchemy import text
from sqlalchemy.engine import Connection

_NOW = {"postgresql": "SELECT clock_timestamp()", "mysql": "SELECT UTC_TIMESTAMP(6)"}


def now(connection: Connection) -> datetime:
    """The time by the database's clock. A file of SQLite's has that of this machine."""
    question = _NOW.get(connection.dialect.name)
    if question is None:
        return datetime.now(timezone.utc)
    moment: datetime = connection.execute(text(question)).scalar_one()
    return moment.replace(tzinfo=timezone.utc) if moment.tzinfo is None else moment
