"""What a database's error means: to be repeated, to be waited out, or to be mended by somebody."""

from __future__ import annotations

from typing import Any

from sqlalchemy import exc
from sqlalchemy.engine import URL

from celery_dlq.errors import RecordRefused, SchemaError, StoreError, StoreUnavailable

#: The next step when the schema does not fit.
UPGRADE = "run: celery -A <app> dlq db upgrade"

_GRANT = "give the user of dlq_store_url the rights that docs/howto/install-on-postgresql-or-mysql.md names."

# An error is known by PostgreSQL's SQLSTATE or MySQL's number (its SQLSTATEs say too little).

# PostgreSQL: serialization_failure, deadlock_detected. MySQL: a record changed since it was read,
# deadlock.
_REPEATABLE = frozenset({"40001", "40P01", 1020, 1213})

# PostgreSQL: undefined_table, undefined_column, invalid_schema_name. MySQL: unknown column, no such
# table.
_SCHEMA = frozenset({"42P01", "42703", "3F000", 1054, 1146})

# PostgreSQL: query_canceled, which statement_timeout does; lock_not_available. MySQL: lock wait
# timeout; a statement's time is up on MariaDB, on MySQL.
_LATE = frozenset({"57014", "55P03", 1205, 1969, 3024})

# PostgreSQL: read_only_sql_transaction. MySQL: --read-only, and the same of a whole server.
_READ_ONLY = frozenset({"25006", 1290, 1836})

# PostgreSQL: insufficient_privilege. MySQL: no such right in a database, to a table, or to a column.
_FORBIDDEN = frozenset({"42501", 1044, 1142, 1143})

# PostgreSQL: program_limit_exceeded.
_TOO_LARGE = "54000"

# PostgreSQL's classes: connection, authorization, no such database, resources, shutdown. MySQL: too
# many connections, access denied, unknown database, shutting down, too many of a user, and the
# client's own connection errors.
_AWAY_CLASSES = ("08", "28", "3D", "53", "57")
_AWAY = frozenset({1040, 1045, 1049, 1053, 1203, *range(2000, 2100)})


def is_repeatable(error: exc.DBAPIError) -> bool:
    """Whether the same transaction may succeed when it is begun again at once: another writer was
    in the way."""
    if isinstance(error, exc.IntegrityError):
        return True
    return _mark(error) in _REPEATABLE


def store_error(error: exc.SQLAlchemyError, url: URL) -> StoreError:
    """The error to raise instead of ``error``: one line, without SQL, values or password."""
    where = url.render_as_string(hide_password=True)
    if isinstance(error, exc.TimeoutError):
        return StoreUnavailable(
            f"The dead-letter store at {where} has no connection free; try again."
        )
    if not isinstance(error, exc.DBAPIError):
        cause = error.orig if isinstance(error, exc.StatementError) else error
        return RecordRefused(_refusal(where, str(cause).partition("\n")[0]))
    said = _first_line(error, url)
    if isinstance(error, (exc.DataError, exc.IntegrityError)) or _mark(error) == _TOO_LARGE:
        return RecordRefused(_refusal(where, said))
    if url.get_backend_name() == "sqlite":
        return _sqlite_error(said, where)
    return _server_error(error, said, where)


def _server_error(error: exc.DBAPIError, said: str, where: str) -> StoreError:
    mark = _mark(error)
    if mark in _SCHEMA:
        return SchemaError(f"The schema of the dead-letter store does not fit ({said}); {UPGRADE}")
    if mark in _LATE:
        return StoreUnavailable(
            f"The dead-letter store at {where} took too long ({said}); ask for less, "
            "or raise dlq_store_timeout."
        )
    if _is_away(error, mark):
        return StoreUnavailable(
            f"The dead-letter store at {where} does not answer ({said}); "
            "check dlq_store_url and that the database is up."
        )
    if mark in _READ_ONLY:
        return StoreError(
            f"The dead-letter store at {where} is read-only ({said}); let the user of dlq_store_url "
            "write, or set another one."
        )
    if mark in _FORBIDDEN:
        return StoreError(f"The dead-letter store at {where} refused ({said}); {_GRANT}")
    return StoreError(_refusal(where, said))


def _refusal(where: str, said: str) -> str:
    return f"The dead-letter store at {where} refused ({said}); run: celery -A <app> dlq doctor"


def _is_away(error: exc.DBAPIError, mark: str | int | None) -> bool:
    if error.connection_invalidated or isinstance(error, exc.InterfaceError):
        return True
    if mark is None:
        # A connection that could not be made, or broke.
        return isinstance(error, exc.OperationalError)
    if isinstance(mark, str) and mark.startswith(_AWAY_CLASSES):
        return True
    return mark in _AWAY or mark in _REPEATABLE


def _sqlite_error(said: str, where: str) -> StoreError:
    if "locked" in said or "busy" in said:
        return StoreUnavailable(
            f"The dead-letter store at {where} is locked by another process ({said}); try again, "
            "or use PostgreSQL or MySQL when many processes write."
        )
    if "no such table" in said or "no column" in said or "no such column" in said:
        return SchemaError(f"The schema of the dead-letter store does not fit ({said}); {UPGRADE}")
    for part, step in _SQLITE_STEPS.items():
        if part in said:
            return StoreError(f"The dead-letter store at {where} failed ({said}); {step}")
    return StoreUnavailable(
        f"The dead-letter store at {where} failed ({said}); check dlq_store_url and the disk."
    )


_SQLITE_STEPS = {
    "readonly": "make the file and its directory writable, or set another dlq_store_url.",
    "unable to open": "check that its directory exists and is writable, or set another dlq_store_url.",
    "not a database": "set dlq_store_url to a new file, or to an SQLite database.",
    "malformed": "restore the file from a backup, or set dlq_store_url to a new one.",
    "full": "free space on the disk.",
}


def _mark(error: exc.DBAPIError) -> str | int | None:
    number, *_ = (*_driver_args(error), None)
    if isinstance(number, int):
        return number
    state = getattr(error.orig, "sqlstate", None)
    return state if isinstance(state, str) else None


def _driver_args(error: exc.DBAPIError) -> tuple[Any, ...]:
    return error.orig.args if error.orig is not None else ()


def _first_line(error: exc.DBAPIError, url: URL) -> str:
    args = _driver_args(error)
    text = str(args[1] if len(args) > 1 else error.orig).strip().partition("\n")[0]
    # Drivers may quote the connection string.
    return text.replace(str(url.password), "***") if url.password else text
