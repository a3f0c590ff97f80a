"""A pooler on the way to the database is found, and PgPool-II's settings are read."""

from __future__ import annotations

import pytest
from sqlalchemy.engine import make_url
from support.servers.databases import postgres_database
from support.servers.pgpool import pgpool
from support.servers.ways import chosen

from celery_dlq.store.database.dialects.dialect import Server
from celery_dlq.store.database.engine import Database

pytestmark = pytest.mark.on_servers

with_pgpool = pytest.mark.skipif(
    "pgpool" not in chosen(), reason="needs PgPool-II; run: make databases DATABASES=pgpool"
)


@pytest.fixture
def way(request):
    """The chosen way, by its name."""
    return request.node.callspec.params["database_url"]


@pytest.fixture
def through_pgpool():
    """Gives what is found through a PgPool-II with two servers and these settings. The second one is the
    same as the first; PgPool-II takes it for a standby."""

    def through_pgpool(**settings):
        with postgres_database() as direct:
            given = make_url(direct)
            second = {
                "backend_hostname1": given.host, "backend_port1": str(given.port or 5432),
                "backend_flag1": "DISALLOW_TO_FAILOVER", "backend_weight0": "1", "backend_weight1": "1",
            }  # fmt: skip
            with pgpool(direct, load_balance_mode="on", **{**second, **settings}) as url:
                return pooler_of(url)

    return through_pgpool


def pooler_of(url):
    """The pooler that is found behind this URL."""
    database = Database(url)
    try:
        dialect = database.dialect
        return database.ask_raw(dialect.pooler) if isinstance(dialect, Server) else None
    finally:
        database.close()


def test_a_pooler_is_found_on_its_way_and_on_no_other(way, database_url):
    found = pooler_of(database_url)
    assert (found is not None) == (way in ("pgbouncer", "pgpool"))
    if found:
        assert (found.name, bool(found.version)) == (
            ("PgPool-II", True) if way == "pgpool" else ("", False)
        )
        assert (found.refuses, found.balances, found.caches) == ("", False, False)


@with_pgpool
@pytest.mark.parametrize(
    ("settings", "balances"),
    [
        ({}, True),
        ({"disable_load_balance_on_write": "always"}, True),
        ({"statement_level_load_balance": "on"}, True),
        ({"app_name_redirect_preference_list": "celery_dlq.*:standby"}, True),
        ({"app_name_redirect_preference_list": "celery_dlq.*:primary"}, False),
        ({"database_redirect_preference_list": "dlq_test_.*:primary"}, False),
        ({"backend_weight1": "0"}, False),
        ({"backend_clustering_mode": "raw"}, False),
    ],
)
def test_pgpool_says_whether_it_balances_the_stores_queries(through_pgpool, settings, balances):
    assert through_pgpool(**settings).balances is balances


@with_pgpool
def test_pgpool_says_whether_it_has_a_cache(through_pgpool):
    assert through_pgpool(memory_cache_enabled="on").caches
