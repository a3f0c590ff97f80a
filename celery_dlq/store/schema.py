"""The schema's version: which one is there, which one this release needs, and the way between.

Alembic is imported by what changes the schema only; a worker just compares two strings.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import inspect, select, text
from sqlalchemy.engine import Connection

from celery_dlq.errors import SchemaError
from celery_dlq.store import tables
from celery_dlq.store.engine import Database
from celery_dlq.store.faults import UPGRADE

#: The newest migration: the schema that this release reads and writes.
HEAD = "0001"

_MIGRATIONS = Path(__file__).with_name("migrations")

# Any number will do that a host application does not use for its own locks.
_LOCK_NUMBER, _LOCK_NAME = 0x646C71, "celery_dlq_upgrade"


def current(connection: Connection) -> str | None:
    """The version of the schema that is there; None when there is none."""
    if not inspect(connection).has_table(tables.VERSION_TABLE):
        return None
    return connection.execute(select(tables.version.c.version_num)).scalar_one_or_none()


def check(database: Database) -> None:
    """Check that the schema is the one this release needs. A new SQLite file gets it at once: nobody
    is there to run the command for a file that does not exist yet.

    :raises SchemaError: it is missing, older or newer.
    """
    found = database.read(current)
    if found is None and database.dialect == "sqlite":
        upgrade(database)
    elif found is None:
        raise SchemaError(f"The dead-letter store has no schema yet; {UPGRADE}")
    elif found < HEAD:
        raise SchemaError(
            f"The schema of the dead-letter store is at {found} and this release needs {HEAD}; {UPGRADE}"
        )
    elif found > HEAD:
        raise SchemaError(
            f"The schema of the dead-letter store is at {found}, newer than the {HEAD} of this "
            "release; run: pip install --upgrade celery-dlq"
        )


def upgrade(database: Database) -> str | None:
    """Bring the schema to :data:`HEAD`; returns the version it was at. Processes that do this at the
    same time do it one after the other.

    :raises StoreError: the database failed. On MySQL, which commits each change of a table at once,
        what was done so far stays.
    """
    # Building an index may take longer than a worker would wait.
    patient = Database(database.url.render_as_string(hide_password=False), timeout=None)
    try:
        return patient.write(_upgrade)
    finally:
        patient.close()


def upgrade_sql(database: Database, since: str | None = None) -> str:
    """The SQL that brings a schema at version ``since`` (None: an empty one) to :data:`HEAD`; nothing
    is connected."""
    from alembic import command

    buffer = io.StringIO()
    config = _config(buffer=buffer, dialect=database.url.get_dialect()())
    command.upgrade(config, f"{since or 'base'}:head", sql=True)
    return buffer.getvalue()


def _upgrade(connection: Connection) -> str | None:
    from alembic import command

    with _alone(connection):
        found = current(connection)
        if found != HEAD:
            command.upgrade(_config(connection=connection), "head")
        return found


@contextmanager
def _alone(connection: Connection) -> Iterator[None]:
    dialect = connection.dialect.name
    if dialect == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _LOCK_NUMBER})
    if dialect != "mysql":
        # On SQLite the transaction itself began with the write lock.
        yield
        return
    connection.execute(text("SELECT GET_LOCK(:name, -1)"), {"name": _LOCK_NAME})
    try:
        yield
    finally:
        connection.execute(text("SELECT RELEASE_LOCK(:name)"), {"name": _LOCK_NAME})


def _config(**attributes: Any) -> Any:
    from alembic.config import Config

    config = Config(attributes=attributes)
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
