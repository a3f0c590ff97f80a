"""What a schema lacks."""

from __future__ import annotations

from typing import Any

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection

from celery_dlq.store.database import tables


def differences(connection: Connection) -> list[Any]:
    """The changes that a migration would still have to make."""
    options = {"compare_type": True, "version_table": tables.VERSION_TABLE}
    context = MigrationContext.configure(connection, opts=options)
    return list(compare_metadata(context, tables.metadata))
