"""The store on each database, empty at the start of each test."""

from __future__ import annotations

import pytest
from support.servers.databases import delete_all, drop_all
from support.servers.ways import WAYS, chosen
from support.stores.rollup_checks import assert_counts_hold

from celery_dlq.store.database import schema
from celery_dlq.store.sql import SQLStore


def pytest_itemcollected(item: pytest.Item) -> None:
    """Skip what does not hold on a way, for the reason that its mark gives."""
    chosen_way = item.callspec.params.get("database_url") if hasattr(item, "callspec") else None
    for mark in item.iter_markers("not_through"):
        if chosen_way in mark.args:
            item.add_marker(pytest.mark.skip(reason=mark.kwargs["reason"]))


@pytest.fixture(scope="session", params=chosen())
def database_url(request):
    """The URL of a database of these tests' own, by each chosen way in turn."""
    with WAYS[request.param]() as url:
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
