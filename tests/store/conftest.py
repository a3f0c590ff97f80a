"""The store on each database, empty at the start of each test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.servers.databases import delete_all, drop_all
from support.servers.ways import WAYS, chosen
from support.stores.rollup_checks import assert_counts_hold

from celery_dlq.store.database import schema
from celery_dlq.store.sql import SQLStore

#: If it is set, all tests run on servers, also those without the mark ``on_servers``.
EVERYTHING = "CELERY_DLQ_TEST_ALL"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Skip what does not hold on a way, for the reason that its mark gives."""
    for mark in item.iter_markers("not_through"):
        if _way(item) in mark.args:
            item.add_marker(pytest.mark.skip(reason=mark.kwargs["reason"]))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the tests that are not special to servers on SQLite only, unless everything is asked for."""
    if os.environ.get(EVERYTHING):
        return
    left_out = [item for item in items if _runs_on_sqlite_only(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        names = {item.nodeid for item in left_out}
        items[:] = [item for item in items if item.nodeid not in names]


def _runs_on_sqlite_only(item: pytest.Item) -> bool:
    is_ours = Path(__file__).parent in item.path.parents
    on_server = _way(item) not in (None, "sqlite")
    return is_ours and on_server and item.get_closest_marker("on_servers") is None


def _way(item: pytest.Item) -> str | None:
    """The way to the database that a test takes; None if it takes none of the chosen ones."""
    return item.callspec.params.get("database_url") if hasattr(item, "callspec") else None


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
