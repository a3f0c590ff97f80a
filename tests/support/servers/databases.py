"""Databases on the servers of the tests, each gone with whom it was made for."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import uuid
from urllib.parse import urlsplit

import pytest
from sqlalchemy import (
    Connection,
    create_engine,
    delete,
    exists,
    inspect,
    literal,
    select,
    text,
    union_all,
)

from celery_dlq.store.database import tables
from celery_dlq.store.database.engine import Database

POSTGRES = os.environ.get("CELERY_DLQ_TEST_POSTGRES", "postgresql+psycopg://root@127.0.0.1:5432")
MYSQL = os.environ.get("CELERY_DLQ_TEST_MYSQL", "mysql+pymysql://root@127.0.0.1:3306")


def need(url: str) -> str:
    """``url``, once something listens there."""
    parts = urlsplit(url)
    ports = {"redis": 6379, "amqp": 5672, "postgresql+psycopg": 5432, "mysql+pymysql": 3306}
    address = (parts.hostname or "127.0.0.1", parts.port or ports[parts.scheme])
    try:
        socket.create_connection(address, timeout=2).close()
    except OSError as error:
        message = f"{parts.scheme} does not answer at {address[0]}:{address[1]} ({error})"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return url


def create_database(url: str, name: str, options: str = "") -> None:
    """Create it on the server of ``url``."""
    _run(url, f"CREATE DATABASE {name}{options}")


def _run(url: str, statement: str) -> None:
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statement))
    engine.dispose()


@contextlib.contextmanager
def sqlite_file():
    with tempfile.TemporaryDirectory() as directory:
        yield f"sqlite:///{directory}/dlq.sqlite3"


@contextlib.contextmanager
def postgres_database():
    name = f"dlq_test_{uuid.uuid4().hex[:12]}"
    server = need(POSTGRES)
    create_database(f"{server}/postgres", name)
    try:
        # No test kills this server, so no commit has to wait for its disk.
        _run(f"{server}/postgres", f"ALTER DATABASE {name} SET synchronous_commit = off")
        yield f"{server}/{name}"
    finally:
        _run(f"{server}/postgres", f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@contextlib.contextmanager
def mysql_database():
    name = f"dlq_test_{uuid.uuid4().hex[:12]}"
    server = need(MYSQL)
    create_database(f"{server}/mysql", name, " CHARACTER SET utf8mb4")
    try:
        yield f"{server}/{name}"
    finally:
        _run(f"{server}/mysql", f"DROP DATABASE IF EXISTS {name}")


def delete_all(database: Database) -> None:
    """Delete all rows of the store. Most tables have none, and one question finds those that have some."""

    def delete_rows(connection: Connection) -> None:
        for name in connection.scalars(_WITH_ROWS).all():
            connection.execute(delete(tables.metadata.tables[name]))

    database.write(delete_rows)


#: Selects the names of the store's tables that have rows.
_WITH_ROWS = union_all(
    *(
        select(literal(table.name)).where(exists(select(1).select_from(table)))
        for table in tables.metadata.tables.values()
    )
)


def drop_all(database: Database) -> None:
    def drop(connection: Connection) -> None:
        names = inspect(connection).get_table_names()
        # One statement for all is faster. SQLite's takes one name.
        for some in names if database.dialect.is_file else filter(None, [", ".join(names)]):
            connection.execute(text(f"DROP TABLE {some}"))

    database.write(drop)
