"""The schema's version: which one is there, which one this release needs, and the way between.

Alembic is imported by what changes the schema only; a worker just compares two strings.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import inspect, select, text
from sqlalchemy.engine import Connection

from celery_dlq.errors import SchemaError
from celery_dlq.store import tables
from celery_dlq.store.engine import Database
from celery_dlq.store.faults import UPGRADE

#: The newest migration: the schema that this release reads and writes.
HEAD = "0010"

_MIGRATIONS = Path(__file__).with_name("migrations")

# Held until the connection ends. SQLite needs none: a transaction that writes is alone anyway.
_LOCKS = {
    "postgresql": "SELECT pg_advisory_xact_lock(6581361)",
    "mysql": "SELECT GET_LOCK('celery_dlq_upgrade', 3600)",
}


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
        return patient.read(partial(_upgrade_alone, patient))
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


def _upgrade_alone(database: Database, guard: Connection) -> str | None:
    # A connection of its own holds the lock: MySQL commits in the middle of an upgrade.
    if database.dialect in _LOCKS:
        guard.execute(text(_LOCKS[database.dialect]))
    return database.write(_upgrade)


def _upgrade(connection: Connection) -> str | None:
    from alembic import command

    _check_encoding(connection)
    found = current(connection)
    if found != HEAD:
        with _quiet_alembic():
            command.upgrade(_config(connection=connection), "head")
    return found


@contextmanager
def _quiet_alembic() -> Iterator[None]:
    # A worker that makes its SQLite file would log Alembic's every step as its own news.
    logger = logging.getLogger("alembic")
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)


def _check_encoding(connection: Connection) -> None:
    if connection.dialect.name != "postgresql":
        return
    encoding = connection.execute(text("SHOW server_encoding")).scalar_one()
    if encoding != "UTF8":
        raise SchemaError(
            f"The database is encoded in {encoding}, which cannot hold every letter; "
            "create one with: CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0"
        )


def _config(**attributes: Any) -> Any:
    from alembic.config import Config

    config = Config(attributes=attributes)
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
