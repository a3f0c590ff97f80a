"""SQLite: a file, opened by each process for itself, with one writer at a time."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from sqlalchemy import Column, ColumnElement, Integer, event, exc, func, select
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import URL, Connection, Engine

from celery_dlq.errors import SchemaError, StoreError, StoreUnavailable
from celery_dlq.settings import Settings
from celery_dlq.store.database.client import Client
from celery_dlq.store.database.dialects.dialect import (
    UPGRADE,
    WRITES,
    Dialect,
    W,
    said_by,
    schema_error,
)
from celery_dlq.store.database.servers import address

#: Seconds that a caller without a time limit waits for a lock, because the driver cannot wait for ever.
_LONGEST_S = 3_600.0

#: Seconds between two tries to switch a file that is locked.
_WAL_PAUSE_S = 0.01

#: Bytes of a page of a new file. A letter of 10 kB takes up two of them, and four pages of SQLite's own size
#: of 4 kB, so half as many pages are written when it changes.
_PAGE = 8_192

#: Room for the pages that a batch writes; with SQLite's own 2 MB, they are written to the disk twice.
_CACHE_KB = 16_384

#: The next step, by a part of the message; SQLite's codes say less.
_STEPS = {
    "readonly": "make the file and its directory writable, or set another dlq_store_url.",
    "unable to open": "check that its directory exists and is writable, or set another dlq_store_url.",
    "not a database": "set dlq_store_url to a new file, or to an SQLite database.",
    "malformed": "restore the file from a backup, or set dlq_store_url to a new one.",
    "full": "free space on the disk.",
}


class SQLite(Dialect):
    """An SQLite file."""

    name = "sqlite"
    schemes = frozenset({"sqlite", "sqlite+pysqlite"})
    scheme = "sqlite"
    is_file = True
    has_one_writer = True
    # SQLite counts up by itself only in a column declared INTEGER.
    big_id = Integer()
    # Characters, for a text: SQLite has octet_length() only since 3.43.
    byte_count = func.length
    insert = staticmethod(sqlite.insert)

    def why_unfit(self, url: URL) -> str:
        if (url.database or ":memory:") != ":memory:":
            return ""
        return (
            "names a database in memory, which ends with its process; name a file, like "
            "sqlite:///celery_dlq.sqlite3"
        )

    def _options(self, url: URL, timeout: float | None, client: Client) -> dict[str, Any]:
        directory = Path(url.database or "").parent
        if not str(url.database).startswith("file:") and not directory.is_dir():
            raise StoreError(
                f"The directory {str(directory)!r} of dlq_store_url does not exist; "
                "create it, or set another dlq_store_url."
            )
        return {"connect_args": {"timeout": _patience(timeout)}}

    def _listen(self, engine: Engine, timeout: float | None, client: Client) -> None:
        @event.listens_for(engine, "connect")
        def prepare(connection: Any, _record: object) -> None:
            # The driver would begin transactions late and never with a write lock: _begin_locked does it.
            connection.isolation_level = None
            connection.execute(f"PRAGMA page_size = {_PAGE}")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
            set_wal(connection, _patience(timeout))

        event.listen(engine, "do_connect", partial(_make_private_file, client))
        event.listen(engine, "begin", _begin_locked)

    def _error(self, error: exc.DBAPIError, url: URL) -> StoreError:
        said, where = said_by(error, url), address(url)
        if "locked" in said or "busy" in said:
            return StoreUnavailable(
                f"The dead-letter store at {where} is locked by another process ({said}); try again, "
                "or use PostgreSQL or MySQL when many processes write."
            )
        if "no such table" in said or "no column" in said or "no such column" in said:
            return schema_error(said)
        for part, step in _STEPS.items():
            if part in said:
                return StoreError(f"The dead-letter store at {where} failed ({said}); {step}")
        return StoreUnavailable(
            f"The dead-letter store at {where} failed ({said}); check dlq_store_url and the disk."
        )

    def lock_schema(self, connection: Connection) -> None:
        """Does nothing, because a transaction that writes already excludes all others."""

    def now(self, connection: Connection) -> datetime:
        return datetime.now(timezone.utc)

    def one_of(self, column: Column[Any], values: Sequence[Any]) -> ColumnElement[bool]:
        given = func.json_each(json.dumps(list(values))).table_valued("value")
        return column.in_(select(given.c.value))

    def contains(self, column: Column[str], text: str) -> ColumnElement[bool]:
        # SQLite's LIKE ignores case.
        return func.instr(column, text) > 0

    def in_bulk(self, statement: W) -> W:
        # Otherwise SQLite would copy every page to a file before it changes, to be able to undo this one
        # statement.
        return statement.prefix_with("OR ROLLBACK")


def _patience(timeout: float | None) -> float:
    return _LONGEST_S if timeout is None else timeout


def _make_private_file(
    client: Client, _dialect: object, _record: object, arguments: list[Any], options: dict[str, Any]
) -> None:
    """Make the file of a new store for its owner only: it holds whole messages. SQLite would use the umask.
    It gives the files next to this one (``-wal``, ``-shm``) the same mode. The mode of an existing file is
    not changed.

    :raises SchemaError: the file does not exist, and ``client`` makes none.
    """
    path = _new_file(str(arguments[0]), is_uri=bool(options.get("uri")))
    # If the file cannot be made, or its directory cannot be read, SQLite reports it.
    with contextlib.suppress(OSError):
        if path is not None and client.makes_file:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        elif path is not None and not Path(path).exists():
            raise SchemaError(_why_missing(path))


def _why_missing(path: str) -> str:
    is_default = f"sqlite:///{os.path.relpath(path)}" == Settings.store_url
    what = f"No store is set: looked for {path}, which" if is_default else f"The store {path}"
    return (
        f"{what} does not exist; set CELERY_DLQ_STORE_URL, or dlq_store_url in the app, to the store of the "
        f"workers. To make this one, start a worker, or {UPGRADE}"
    )


def _new_file(database: str, *, is_uri: bool) -> str | None:
    """The file that SQLite would make for ``database``; None if it would not make one."""
    if not (is_uri and database.startswith("file:")):
        return database
    parts = urlsplit(database)
    mode = parse_qs(parts.query).get("mode", ["rwc"])[-1]
    return unquote(parts.path) if mode == "rwc" else None


def set_wal(connection: Any, seconds: float) -> None:
    """Switch the file to a write-ahead log, so that readers and a writer do not wait for each other. SQLite's
    own time limit for locks does not apply: if several processes open a new file at the same time, all but
    one fail immediately."""
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


def _begin_locked(connection: Connection) -> None:
    # A transaction that starts by reading and then writes fails at once if another one wrote in between; one
    # that takes the lock first waits for the other.
    writes = connection.get_execution_options().get(WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
