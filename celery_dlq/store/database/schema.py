"""The version of the schema: the stored one, the one that this release needs, and the upgrade between them.

Only code that changes the schema imports Alembic; a worker just compares two strings.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import inspect, select
from sqlalchemy.engine import Connection

from celery_dlq.errors import SchemaError, page
from celery_dlq.store.database import tables
from celery_dlq.store.database.dialects import dialect_of
from celery_dlq.store.database.dialects.dialect import UPGRADE
from celery_dlq.store.database.engine import Database

logger: logging.Logger = logging.getLogger(__name__)

#: The newest migration: the schema that this release reads and writes.
HEAD = "0025"

#: The migration that makes the tables of a new database, as they are at :data:`HEAD`.
INITIAL = "0025"

#: The versions that no release had. No migration leads from them to a later one.
UNRELEASED = frozenset(f"{number:04}" for number in range(1, 25))

_MIGRATIONS = Path(__file__).parents[1] / "migrations"


def current(connection: Connection) -> str | None:
    """The version of the stored schema; None if the database has no schema."""
    if not inspect(connection).has_table(tables.VERSION_TABLE):
        return None
    return connection.scalar(select(tables.version.c.version_num))


def check(database: Database) -> None:
    """Check that the schema is the one this release needs. A new file gets it at once, unless this process
    only shows the store: no administrator runs the command for a file that does not exist yet.

    :raises SchemaError: it is missing, older or newer.
    """
    found = database.read(current)
    refuse_unreleased(found)
    if found is None and database.dialect.is_file and database.client.makes_file:
        upgrade(database)
        logger.info(
            "created the schema %s of the dead-letter store %s", HEAD, database.url.database
        )
    elif found is None:
        raise SchemaError(f"The dead-letter store has no schema yet; {UPGRADE}")
    elif found < HEAD:
        raise SchemaError(
            f"The schema of the dead-letter store is at {found} and this release needs {HEAD}; {UPGRADE}"
        )
    refuse_newer(found)


def refuse_unreleased(found: str | None) -> None:
    """:raises SchemaError: no release made the version ``found``, so none can upgrade it."""
    if found in UNRELEASED:
        raise SchemaError(
            f"The schema of the dead-letter store is at {found}, which an unreleased state of celery-dlq "
            "made and this release cannot upgrade. Redrive or discard the open letters with that state, and "
            f"then set dlq_store_url to a new database; see {page('install-on-postgresql-or-mysql')}."
        )


def refuse_newer(found: str | None) -> None:
    """:raises SchemaError: the version ``found`` is newer than this release."""
    if found is not None and found > HEAD:
        raise SchemaError(
            f"The schema of the dead-letter store is at {found}, newer than the {HEAD} of this "
            "release; run: pip install --upgrade celery-dlq"
        )


def upgrade(database: Database) -> str | None:
    """Bring the schema to :data:`HEAD`; returns the version it was at. If several processes do this at the
    same time, each waits for the one before it.

    :raises SchemaError: the schema is newer than this release, or at a version that it cannot upgrade;
        nothing was changed.
    :raises StoreError: the database failed. On MySQL, which commits each change of a table at once,
        the changes that were made so far stay.
    """
    # Building an index may take longer than a worker would wait.
    url = database.url.render_as_string(hide_password=False)
    patient = Database(url, timeout=None, client=replace(database.client, makes_file=True))
    try:
        if patient.dialect.undoes_ddl:
            return patient.write(_upgrade_locked)
        return patient.read(partial(_upgrade_guarded, patient))
    finally:
        patient.close()


def upgrade_sql(database: Database, since: str | None = None) -> str:
    """The SQL that brings a schema at version ``since`` (None: an empty one) to :data:`HEAD`. Does not
    connect.

    :param since: one of :func:`versions`.
    """
    buffer = io.StringIO()
    with _alembic() as command:
        config = _config(buffer=buffer, dialect=database.dialect)
        command.upgrade(config, f"{since}:head" if since else f"base:{INITIAL}", sql=True)
        if since is None and INITIAL != HEAD:
            command.stamp(config, f"{INITIAL}:head", sql=True)
    return buffer.getvalue()


def versions() -> list[str]:
    """The versions of the schema that this release knows, the oldest first."""
    with _alembic():
        from alembic.script import ScriptDirectory

        scripts = ScriptDirectory.from_config(_config())
        return sorted(script.revision for script in scripts.walk_revisions())


def _upgrade_locked(connection: Connection) -> str | None:
    dialect_of(connection).lock_schema(connection)
    return _upgrade(connection)


def _upgrade_guarded(database: Database, guard: Connection) -> str | None:
    # A separate connection holds the lock, because the transaction is committed in the middle of the upgrade.
    database.dialect.lock_schema(guard)
    return database.write(_upgrade)


def _upgrade(connection: Connection) -> str | None:
    dialect_of(connection).check_encoding(connection)
    found = current(connection)
    refuse_unreleased(found)
    refuse_newer(found)
    if found != HEAD:
        _migrate(connection, found)
    return found


def _migrate(connection: Connection, found: str | None) -> None:
    with _alembic() as command:
        from alembic.util import CommandError

        try:
            config = _config(connection=connection)
            command.upgrade(config, INITIAL if found is None else "head")
            if found is None and INITIAL != HEAD:
                command.stamp(config, "head")
        except CommandError as error:
            raise SchemaError(
                f"The schema of the dead-letter store is at {found}, which this release cannot upgrade "
                f"({error}); restore the table {tables.VERSION_TABLE} from a backup."
            ) from error


@contextmanager
def _alembic() -> Iterator[Any]:
    """Alembic's commands, without the INFO lines that Alembic logs, also on its import: a worker that creates
    its SQLite file would log each step as its own."""
    alembic = logging.getLogger("alembic")
    before = alembic.level
    alembic.setLevel(logging.WARNING)
    try:
        from alembic import command

        yield command
    finally:
        alembic.setLevel(before)


def _config(**attributes: Any) -> Any:
    from alembic.config import Config

    config = Config(attributes=attributes)
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
