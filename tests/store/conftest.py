"""The store on each database, empty at the start of each test."""

from __future__ import annotations

import pytest
from support.databases import delete_all, drop_all, mysql_database, postgres_database
from support.rollup_checks import assert_counts_hold

from celery_dlq.store.database import schema
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

    def empty():
        delete_all(session_store.database)
        return session_store

    return empty


@pytest.fixture
def store(emptied):
    """An empty store."""
    return emptied()


@pytest.fixture
def counts_hold_in_the_end(store):
    """Whatever the test has done, the kept counts are those of the letters."""
    yield
    assert_counts_hold(store)


@pytest.fixture
def sqlite_store(tmp_path):
    """A new SQLite file, not yet connected to."""
    store = SQLStore(f"sqlite:///{tmp_path / 'dlq.sqlite3'}")
    yield store
    store.close()


@pytest.fixture
def bare(database_url, session_store):
    """The database without any of our tables, which come back at the end."""
    session_store.close()
    drop_all(session_store.database)
    store = SQLStore(database_url)
    yield store
    drop_all(store.database)
    schema.upgrade(store.database)
    store.close()
