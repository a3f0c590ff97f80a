"""A database server sees the number of a process's connections, their name, and how long they stay open."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import psycopg
import pytest
from sqlalchemy.engine import make_url

from celery_dlq.store.database import engine
from celery_dlq.store.database.client import FOR_A_REDRIVE, Client, Role
from celery_dlq.store.database.connections import Connections
from celery_dlq.store.sql import SQLStore

pytestmark = pytest.mark.service

PATIENCE_S = 60


@pytest.fixture
def worker(own_postgres_url, monkeypatch):
    """A worker's store, which closes its connections sooner than others do."""
    monkeypatch.setattr(engine, "Connections", partial(Connections, idle_s=0.5))
    store = SQLStore(own_postgres_url, client=Client(Role.WORKER, "w@here"))
    yield store
    store.close()


@pytest.fixture
def count(own_postgres_url):
    """How many connections there are under the worker's name."""
    at = make_url(own_postgres_url)
    with psycopg.connect(
        host=at.host, port=at.port, dbname=at.database, user=at.username, autocommit=True
    ) as monitor:
        named = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
        yield lambda: monitor.execute(named, ["celery_dlq worker w@here"]).fetchone()[0]


def use(worker, threads, count):
    """Make a slow query from this many threads; returns the most connections that were seen."""

    def ask(_):
        worker.database.read(lambda connection: connection.exec_driver_sql("SELECT pg_sleep(0.05)"))
        return count()

    with ThreadPoolExecutor(threads) as pool:
        return max(pool.map(ask, range(2 * threads)))


def test_a_worker_has_two_connections_at_most_and_none_when_it_is_idle(worker, count):
    assert use(worker, 8, count) == worker.database.client.most == 2
    deadline = time.monotonic() + PATIENCE_S
    while count():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_while_it_redrives_it_has_some_more(worker, count):
    with worker.claims.while_redriving():
        assert use(worker, 8, count) == 2 + FOR_A_REDRIVE


def test_a_name_in_the_url_is_used_instead(own_postgres_url):
    named = f"{own_postgres_url}?application_name=shop"
    store = SQLStore(named, client=Client(Role.WORKER, "w@here"))
    name = store.database.read(
        lambda connection: connection.exec_driver_sql("SHOW application_name").scalar_one()
    )
    store.close()
    assert name == "shop"
