"""The store on each database, empty at the start of each test."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from functools import cache
from pathlib import Path

import pytest
from support.servers.databases import delete_all, drop_all
from support.servers.ways import WAYS, chosen
from support.stores.rollup_checks import assert_counts_hold

from celery_dlq.base.sealing import Keyring
from celery_dlq.errors import FilterError, SchemaError
from celery_dlq.store.database import schema
from celery_dlq.store.sql import SQLStore

#: If it is set, all tests run on servers, also those without the mark ``on_servers``.
EVERYTHING = "CELERY_DLQ_TEST_ALL"

#: The ring of the stores, if ``CELERY_DLQ_TEST_RING`` is set: then all of these tests hold for letters that
#: are encrypted, except those with the mark ``clear``.
RING = Keyring({"test": b"t" * 32}) if os.environ.get("CELERY_DLQ_TEST_RING") else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Skip what does not hold on a way, for the reason that its mark gives."""
    for mark in item.iter_markers("not_through"):
        if _way(item) in mark.args:
            item.add_marker(pytest.mark.skip(reason=mark.kwargs["reason"]))
    if RING is not None:
        for mark in item.iter_markers("clear"):
            item.add_marker(pytest.mark.skip(reason=mark.args[0]))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    """Skip the rest of a test that looks for parts of texts, if letters are encrypted."""
    try:
        return (yield)
    except FilterError as error:
        if RING is None or "Letters are encrypted" not in str(error):
            raise
        pytest.skip("encrypted letters are found by whole values only")


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


@pytest.fixture(scope="session")
def url_of():
    """Gives the URL of a database of these tests' own by a way. Each file of tests uses all ways in turn, and
    a new database takes some seconds, so the databases stay until the end."""
    with contextlib.ExitStack() as databases:
        yield cache(lambda way: databases.enter_context(WAYS[way]()))


@pytest.fixture(scope="session")
def store_at(url_of):
    """Gives the store at a URL."""
    with contextlib.ExitStack() as stores:
        yield cache(lambda url: stores.enter_context(contextlib.closing(SQLStore(url, ring=RING))))


@pytest.fixture(scope="session", params=chosen())
def database_url(request, url_of):
    """The URL of a database of these tests' own, by each chosen way in turn."""
    return url_of(request.param)


@pytest.fixture(scope="session")
def session_store(database_url, store_at):
    """The store. :func:`emptied` makes its tables."""
    return store_at(database_url)


@pytest.fixture(scope="session")
def emptied(session_store):
    """Gives the store with all its tables, and without any row."""

    def empty():
        try:
            delete_all(session_store.database)
        except SchemaError:  # it is new, or bare
            schema.upgrade(session_store.database)
        return session_store

    return empty


@pytest.fixture(scope="session")
def renewed(session_store, emptied):
    """Gives the store with new tables. The server's statistics of them, and the room that they take up, do
    not depend on the tests before."""

    def renew():
        session_store.close()
        drop_all(session_store.database)
        return emptied()

    return renew


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
    store = SQLStore(f"sqlite:///{tmp_path / 'dlq.sqlite3'}", ring=RING)
    yield store
    store.close()


@pytest.fixture
def bare(database_url, session_store):
    """The database without any of our tables, which the next test that needs them makes again."""
    session_store.close()
    drop_all(session_store.database)
    store = SQLStore(database_url, ring=RING)
    yield store
    drop_all(store.database)
    store.close()
