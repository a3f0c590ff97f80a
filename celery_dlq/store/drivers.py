"""What is particular to each database: its URL, its driver, and how a connection is set up."""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Insert, Update, event, exc, text
from sqlalchemy.engine import URL, Connection, Engine, create_engine, make_url

from celery_dlq.errors import SettingsError, StoreError

_DOCS = "docs/reference/settings.md"

_DRIVERS = {
    "sqlite": "sqlite",
    "sqlite+pysqlite": "sqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mysql+pymysql": "mysql+pymysql",
    "mariadb": "mysql+pymysql",
    "mariadb+pymysql": "mysql+pymysql",
}
_EXTRAS = {"postgresql": "postgres", "mysql": "mysql"}

#: Seconds between two tries to switch a file that is locked.
_WAL_PAUSE_S = 0.01

#: Bytes of a page of a new file. A letter of 10 kB is on two of them, and on four of SQLite's own 4 kB: half
#: as many are written when it changes.
_PAGE = 8_192

#: Room for the pages that a batch writes; with SQLite's own 2 MB, they go to the disk twice.
_CACHE_KB = 16_384

#: Bytes that are read from PostgreSQL at once.
_READ_BUFFER = 1_048_576

#: Execution option of a connection whose transaction will write.
WRITES = "celery_dlq_writes"

#: Execution option of a query for much: PostgreSQL gives bodies as they are, and not as twice as many digits,
#: and moments that need not be parsed.
MUCH = "celery_dlq_much"

# Bytes that come in a second over a slow network, or to a process that gets little of its machine.
_SLOW = 1_048_576

_MORE_TIME = text(
    "SELECT set_config('statement_timeout',"
    " (1000 * extract(epoch from known::interval)::numeric + :more)::bigint::text, true)"
    " FROM current_setting('statement_timeout') AS known WHERE known <> '0'"
)

W = TypeVar("W", Insert, Update)


def parse_url(text: str) -> URL:
    """The store's URL, naming the driver that is used.

    :raises SettingsError: not a URL, or not of a database that is supported.
    """
    try:
        url = make_url(text)
    except (exc.ArgumentError, ValueError):
        # The parser's own message repeats the URL, password and all.
        raise _wrong(
            "is not a database URL; write it like postgresql://user:password@host/name"
        ) from None
    if "@" in (url.host or ""):
        # What is behind it would be shown, and looked up, as a part of the host's name.
        raise _wrong("has an @ in its user or password; write it as %40")
    if url.drivername not in _DRIVERS:
        raise _wrong(
            f"names {url.drivername!r}, which is not supported; use sqlite, postgresql (with psycopg) "
            "or mysql (with pymysql)"
        )
    url = url.set(drivername=_DRIVERS[url.drivername])
    if url.drivername == "sqlite" and (url.database or ":memory:") == ":memory:":
        raise _wrong(
            "names a database in memory, which ends with its process; name a file, like "
            "sqlite:///celery_dlq.sqlite3"
        )
    return url


def _wrong(what: str) -> SettingsError:
    return SettingsError(f"dlq_store_url {what}. See {_DOCS}.")


def open_engine(url: URL, timeout: float | None) -> Engine:
    """An engine for ``url``; nothing is connected yet.

    :param timeout: seconds that connecting, waiting for a lock, or one statement may take; None for
        no bound but that of connecting.
    :raises StoreError: the driver is not installed, or the SQLite file's directory does not exist.
    """
    plan = _PLANS[url.get_backend_name()](url, timeout)
    try:
        engine = create_engine(url, hide_parameters=True, **plan.options)
    except ImportError as error:
        extra = _EXTRAS[url.get_backend_name()]
        raise StoreError(
            f"The driver {url.get_driver_name()} of dlq_store_url cannot be imported ({error}); "
            f"run: pip install 'celery-dlq[{extra}]'"
        ) from error
    event.listen(engine, "connect", lambda connection, _record: plan.prepare(connection))
    if engine.dialect.name == "sqlite":
        event.listen(engine, "begin", _begin)
    if engine.dialect.name == "postgresql":
        event.listen(engine, "before_cursor_execute", _choose_format)
    return engine


@dataclass(frozen=True)
class _Plan:
    """How to create an engine, and what each new driver connection is told."""

    options: dict[str, Any]
    prepare: Callable[[Any], None]


def _sqlite(url: URL, timeout: float | None) -> _Plan:
    directory = Path(url.database or "").parent
    if not str(url.database).startswith("file:") and not directory.is_dir():
        raise StoreError(
            f"The directory {str(directory)!r} of dlq_store_url does not exist; "
            "create it, or set another dlq_store_url."
        )
    wait = 3600.0 if timeout is None else timeout

    def prepare(connection: Any) -> None:
        # The driver would begin transactions late and never with a write lock: _begin does it.
        connection.isolation_level = None
        connection.execute(f"PRAGMA page_size = {_PAGE}")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
        _set_wal(connection, wait)

    return _Plan({"connect_args": {"timeout": wait}}, prepare)


def _set_wal(connection: Any, seconds: float) -> None:
    """Switch the file to a write-ahead log, where readers and a writer do not wait for each other.
    SQLite's own time for locks does not cover it: on a new file that several processes open at once,
    all but one fail at once."""
    deadline = time.monotonic() + seconds
    while not _try_wal(connection, last=time.monotonic() >= deadline):
        time.sleep(_WAL_PAUSE_S)


def _try_wal(connection: Any, *, last: bool) -> bool:
    try:
        connection.execute("PRAGMA journal_mode = WAL")
    except sqlite3.OperationalError as error:
        if last or "locked" not in str(error):
            raise
        return False
    return True


def _begin(connection: Connection) -> None:
    # A transaction that starts by reading and then writes fails at once when another wrote in
    # between; taking the lock first waits for it.
    writes = connection.get_execution_options().get(WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def in_bulk(statement: W) -> W:
    """``statement``, which writes to many rows and ends its transaction when it fails, as our transactions
    do in any case. SQLite would keep every page as it was in a file, to undo this one statement."""
    return statement.prefix_with("OR ROLLBACK", dialect="sqlite")


def give_time(connection: Connection, size: int) -> None:
    """Let the statements of this transaction take as long as so many bytes take to come. PostgreSQL's time
    for a statement ends when the last of its answer is taken from it, however large that is."""
    if connection.dialect.name == "postgresql":
        connection.execute(_MORE_TIME, {"more": math.ceil(1000 * size / _SLOW)})


def _choose_format(
    _connection: Connection, cursor: Any, _statement: str, _given: Any, context: Any, _many: bool
) -> None:
    if context.execution_options.get(MUCH):
        from psycopg.pq import Format

        cursor.format = Format.BINARY


def _postgresql(_url: URL, timeout: float | None) -> _Plan:
    seconds = _whole_seconds(timeout)
    arguments = {
        # A database in another encoding is read and written as UTF-8 all the same.
        "client_encoding": "utf8",
        "connect_timeout": max(2, seconds),
        "keepalives_idle": seconds,
        "keepalives_interval": seconds,
        "keepalives_count": 2,
        "tcp_user_timeout": 2_000 * seconds,
    }

    def prepare(connection: Any) -> None:
        # libpq reads as much at once as its longest answer had: else a claim, which is read in pieces of
        # 16 kB, waits for the interpreter before and after each of hundreds.
        connection.execute(f"SELECT repeat(' ', {_READ_BUFFER})")
        # A plan that was kept from when the table was small reads the whole table ever after.
        connection.execute("SET plan_cache_mode = force_custom_plan")
        # In another zone the driver makes each moment by a table of its changes; it is UTC that is wanted.
        connection.execute("SET timezone = 'UTC'")
        if timeout is not None:
            connection.execute(f"SET statement_timeout = {math.ceil(timeout * 1000)}")
        connection.commit()

    return _Plan(_server_options(arguments, timeout), prepare)


def _mysql(_url: URL, timeout: float | None) -> _Plan:
    seconds = _whole_seconds(timeout)
    patience = None if timeout is None else 2 * seconds
    arguments = {
        "charset": "utf8mb4",
        "connect_timeout": seconds,
        # Later than the server's own limits, whose errors say more.
        "read_timeout": patience,
        "write_timeout": patience,
    }

    def prepare(connection: Any) -> None:
        if timeout is None:
            return
        limit = (
            f"max_statement_time = {timeout:f}"
            if "MariaDB" in connection.get_server_info()
            else f"max_execution_time = {math.ceil(timeout * 1000)}"
        )
        with connection.cursor() as cursor:
            cursor.execute(f"SET SESSION innodb_lock_wait_timeout = {seconds}, SESSION {limit}")

    return _Plan(_server_options(arguments, timeout), prepare)


def _server_options(arguments: dict[str, Any], timeout: float | None) -> dict[str, Any]:
    return {
        "connect_args": arguments,
        "isolation_level": "READ COMMITTED",
        "pool_pre_ping": True,
        "pool_timeout": _whole_seconds(timeout),
    }


def _whole_seconds(timeout: float | None) -> int:
    return 10 if timeout is None else math.ceil(timeout)


_PLANS = {"sqlite": _sqlite, "postgresql": _postgresql, "mysql": _mysql}
