"""Two programs share the server connections of a PgBouncer in transaction mode; one of them is the store."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from support.factories import T0, letter
from support.servers.pgbouncer import connect, pgbouncer, sessions

from celery_dlq import Filter
from celery_dlq.model.states import State
from celery_dlq.store.database import schema
from celery_dlq.store.sql import SQLStore

pytestmark = pytest.mark.service

#: More often than psycopg waits before it prepares a statement in the server.
OFTEN = 8


@pytest.fixture(scope="module")
def pooled_url(own_postgres_url):
    with pgbouncer(own_postgres_url) as url:
        yield url


@pytest.fixture(scope="module")
def pooled(pooled_url):
    """The store through PgBouncer, with a short time limit for its statements."""
    store = SQLStore(pooled_url, timeout=1.0)
    schema.upgrade(store.database)
    yield store
    store.close()


def use(store, prefix):
    """Use the store as workers, commands and Flower do."""
    for number in range(OFTEN):
        name = f"{prefix}{number}"
        store.letters.save([letter(name)])
        store.letters.get(name)
        store.letters.find(Filter(), limit=5)
        store.letters.read([name])
        store.groups.find(Filter(), now=T0)
        store.monitoring.stats(T0)
        store.monitoring.measures()
        store.operations.find()
        lease = store.leases.take(f"lease.{name}", holder="me", seconds=9)
        store.leases.give_up(lease)
        store.leases.to_do(f"lease.{name}")
        store.sendings.expire(sent_before=T0, now=T0 + timedelta(days=1))
        store.closing.discard(Filter(ids=(name,)), who="tester", why="test", now=T0)


def test_it_leaves_no_setting_and_no_prepared_statement_behind(pooled, pooled_url):
    before = sessions(pooled_url)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda prefix: use(pooled, prefix), "abcd"))
    assert {pooled.letters.get(name).state for name in ("a0", "d7")} == {State.DISCARDED}
    assert sessions(pooled_url) == before


def test_a_neighbours_long_statement_is_not_ended(pooled, pooled_url):
    """It takes longer than the store's own may take, on connections that the store has used."""
    use(pooled, "before")
    with connect(pooled_url) as neighbour:
        done = threading.Event()

        def sleep():
            neighbour.execute(f"SELECT pg_sleep({2 * pooled.database.timeout})")
            done.set()

        thread = threading.Thread(target=sleep)
        thread.start()
        use(pooled, "during")
        thread.join(60)
        assert done.is_set()
        assert neighbour.execute("SHOW statement_timeout").fetchone() == ("0",)


def test_the_stores_own_statements_are_bounded_there_too(pooled):
    with pytest.raises(Exception, match="took too long"):
        pooled.database.read(lambda connection: connection.exec_driver_sql("SELECT pg_sleep(30)"))
    assert pooled.letters.get("none") is None


def test_the_servers_connections_bear_the_stores_name(pooled):
    def name(connection):
        return connection.exec_driver_sql("SHOW application_name").scalar_one()

    assert pooled.database.read(name) == pooled.database.client.name
