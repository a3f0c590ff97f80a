"""The store on each database, empty at the start of each test."""

from __future__ import annotations

import pytest
from databases import drop_all, mysql_database, postgres_database
from sqlalchemy import delete

from celery_dlq.store import schema, tables
from celery_dlq.store.sql import SQLStore


@pytest.fixture(scope="session", params=["sqlite", "postgresql", "mysql"])
def database_url(request, tmp_path_factory):
    """The URL of a database of these tests' own, on each kind of server in turn."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path_factory.mktemp('store') / 'dlq.sqlite3'}"
        return
    with {"postgresql": postgres_database, "mysql": mysql_database}[request.param]() as url:
        yield url


@pytest.fixture(scope="session")
def session_store(database_url):
    store = SQLStore(database_url)
    schema.upgrade(store.database)
    yield store
    store.close()


@pytest.fixture(scope="session")
def emptied(session_store):
    """Gives the store with all rows deleted."""

    def delete_rows(connection):
        for table in tables.metadata.tables.values():
            connection.execute(delete(table))

    def empty():
        session_store.database.write(delete_rows)
        return session_store

    return empty


@pytest.fixture
def store(emptied):
    """An empty store."""
    return emptied()


@pytest.fixture
def sqlite_store(tmp_path):
    """A new SQLite file, not yet connected to."""
    store = SQLStore(f"sqlite:///{tmp_path / 'dlq.sqlite3'}")
    yield store
    store.close()


@pytest.fixture
def bare(database_url, session_store):
    """The database without any table of ours, put back in the end."""
    session_store.close()
    drop_all(session_store.database)
    store = SQLStore(database_url)
    yield store
    drop_all(store.database)
    schema.upgrade(store.database)
    store.close()
