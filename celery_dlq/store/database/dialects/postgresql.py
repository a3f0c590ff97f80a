"""PostgreSQL through psycopg 3, also behind PgBouncer.

No state is left in a session, because behind PgBouncer the next transaction on the same server connection may
be another program's. So the settings of a transaction are sent with its BEGIN, in one message, and no
statement is prepared in the server.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.types import UserDefinedType

from celery_dlq.errors import SchemaError
from celery_dlq.store.database.client import Client
from celery_dlq.store.database.dialects.dialect import MUCH, Fault, Server, whole_seconds
from celery_dlq.store.database.servers import hosts_of

#: Bytes that are read at once, and the key in a connection's ``info`` that says so.
_READ_BUFFER, _WIDE = 1_048_576, "celery_dlq_wide"

# Bytes that arrive in a second over a slow network, or at a process that gets little of the machine's time.
_SLOW = 1_048_576

_MORE_TIME = sa.text(
    "SELECT set_config('statement_timeout',"
    " (1000 * extract(epoch from known::interval)::numeric + :more)::bigint::text, true)"
    " FROM current_setting('statement_timeout') AS known WHERE known <> '0'"
)

# Connection, authorization, no such database, resources, shutdown.
_AWAY_CLASSES = frozenset({"08", "28", "3D", "53", "57"})


class PostgreSQL(Server):
    """A PostgreSQL database."""

    name = "postgresql"
    schemes = frozenset({"postgres", "postgresql", "postgresql+psycopg"})
    scheme = "postgresql+psycopg"
    extra = "postgres"
    port = 5432
    apart = "SCHEMA"
    drop_apart = "DROP SCHEMA IF EXISTS {name} CASCADE"
    grant_apart = "GRANT CREATE ON DATABASE {database} TO {user}"
    clock = "SELECT clock_timestamp()"
    # Held until the transaction ends.
    lock = sa.text("SELECT pg_advisory_xact_lock(6581361)")
    insert = staticmethod(postgresql.insert)
    short_text = partial(sa.String, collation="C")
    moment = sa.DateTime(timezone=True)
    keeps_zones = True
    meanings = {
        "40001": Fault.CONFLICT,  # serialization_failure
        "40P01": Fault.CONFLICT,  # deadlock_detected
        "42P01": Fault.SCHEMA,  # undefined_table
        "42703": Fault.SCHEMA,  # undefined_column
        "3F000": Fault.SCHEMA,  # invalid_schema_name
        "57014": Fault.LATE,  # query_canceled, which statement_timeout does
        "55P03": Fault.LATE,  # lock_not_available
        "25006": Fault.READ_ONLY,  # read_only_sql_transaction
        "42501": Fault.FORBIDDEN,  # insufficient_privilege
        "54000": Fault.TOO_LARGE,  # program_limit_exceeded
    }

    def within(self, url: URL, name: str) -> URL:
        given = url.query.get("options", "")
        return url.update_query_dict({"options": f"{given} -csearch_path={name}".strip()})

    def _options(self, url: URL, timeout: float | None, client: Client) -> dict[str, Any]:
        seconds = whole_seconds(timeout)
        arguments = {
            # A database in another encoding is also read and written as UTF-8.
            "client_encoding": "utf8",
            "connect_timeout": max(2, seconds),
            "keepalives_idle": seconds,
            "keepalives_interval": seconds,
            "keepalives_count": 2,
            "tcp_user_timeout": 2_000 * seconds,
            "autocommit": True,
            "prepare_threshold": None,
        }
        if "application_name" not in url.query:
            arguments["application_name"] = client.name
        if hosts_of(url) and "target_session_attrs" not in url.query:
            arguments["target_session_attrs"] = "read-write"
        return {
            **self._pool(timeout, client),
            "connect_args": arguments,
            # The hstore type would be looked up in each new session, and is not used.
            "use_native_hstore": False,
        }

    def _listen(self, engine: Engine, timeout: float | None, client: Client) -> None:
        super()._listen(engine, timeout, client)
        # Times are needed in UTC. In another zone, the driver would compute each time from the table of the
        # zone's changes.
        first = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL timezone = 'UTC'"
        if timeout is not None:
            first += f"; SET LOCAL statement_timeout = {math.ceil(timeout * 1000)}"
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(first))
        event.listen(engine, "before_cursor_execute", _choose_format)

    def oldest(self, connection: Connection) -> tuple[str, tuple[int, ...]]:
        return "PostgreSQL", (13,)  # autovacuum_vacuum_insert_scale_factor

    def why_read_only(self, connection: Connection) -> str:
        if connection.scalar(sa.text("SELECT pg_is_in_recovery()")):
            return "is a standby"
        is_read_only = connection.scalar(sa.text("SHOW transaction_read_only")) == "on"
        return "runs with default_transaction_read_only" if is_read_only else ""

    def code(self, error: exc.DBAPIError) -> str | None:
        state = getattr(error.orig, "sqlstate", None)
        return state if isinstance(state, str) else None

    def fault(self, error: exc.DBAPIError) -> Fault | None:
        code = self.code(error) or ""
        if code not in self.meanings and code[:2] in _AWAY_CLASSES:
            return Fault.AWAY
        return super().fault(error)

    def check_encoding(self, connection: Connection) -> None:
        encoding = connection.execute(sa.text("SHOW server_encoding")).scalar_one()
        if encoding != "UTF8":
            raise SchemaError(
                f"The database is encoded in {encoding}, which cannot hold every letter; "
                "create one with: CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0"
            )

    def one_of(self, column: sa.Column[Any], values: Sequence[Any]) -> sa.ColumnElement[bool]:
        element = "VARCHAR" if isinstance(column.type, sa.String) else "BIGINT"
        return column == sa.any_(sa.literal(values, Many(element)))

    def ascii_lower(self, column: sa.Column[str]) -> sa.ColumnElement[str]:
        # In the collation of a language, PostgreSQL takes three times as long for each letter.
        return sa.func.lower(column.collate("C"))

    def read_first(self, query: sa.CTE) -> sa.CTE:
        return query.prefix_with("MATERIALIZED")

    def give_time(self, connection: Connection, size: int) -> None:
        # PostgreSQL measures the time of a statement until the client has taken the last part of its answer,
        # however large the answer is.
        connection.execute(_MORE_TIME, {"more": math.ceil(1000 * size / _SLOW)})


def _choose_format(
    connection: Connection, cursor: Any, _statement: str, _given: Any, context: Any, _many: bool
) -> None:
    """Read bodies as bytes, not as twice as many digits, and times in a form that need not be parsed."""
    if context.execution_options.get(MUCH):
        from psycopg.pq import Format

        _widen(connection)
        cursor.format = Format.BINARY


def _widen(connection: Connection) -> None:
    """Make libpq read large pieces: a piece is as long as the longest answer before. Otherwise a claim is
    read in hundreds of pieces of 16 kB, with a wait for the interpreter before and after each piece."""
    if not connection.info.get(_WIDE):
        connection.info[_WIDE] = True
        connection.connection.driver_connection.execute(f"SELECT repeat(' ', {_READ_BUFFER})")  # type: ignore[union-attr]


class Many(UserDefinedType[Sequence[Any]]):
    """Many numbers, or texts, as one parameter: an array, written here as PostgreSQL reads it. The driver
    would write value by value, which takes seven times as long.

    :param element: ``BIGINT`` or ``VARCHAR``.
    """

    cache_ok = True
    # This gives the type to the parameter itself. A text that is cast would be read again for each row.
    render_bind_cast = True

    def __init__(self, element: str) -> None:
        self.element = element

    def get_col_spec(self, **_options: Any) -> str:
        return f"{self.element}[]"

    def bind_processor(self, dialect: sa.Dialect) -> Callable[[Any], str] | None:
        if dialect.driver == "asyncpg":  # an application's, which takes arrays only
            return None
        written = str if self.element == "BIGINT" else _quoted
        return lambda values: f"{{{','.join(map(written, values))}}}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", r"\\").replace('"', r"\"")
    return f'"{escaped}"'
