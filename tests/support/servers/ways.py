"""The ways from the store to a database. Its tests run on each chosen one in turn."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from chaos.clusters import Galera
from support.servers.clusters import running
from support.servers.databases import (
    create_database,
    mysql_database,
    postgres_database,
    sqlite_file,
)
from support.servers.pgbouncer import pgbouncer, sessions
from support.servers.pgpool import pgpool
from support.servers.postgres_versions import RELEASES, PostgresOfVersion

#: The names of the ways to use, with commas in between.
VARIABLE = "CELERY_DLQ_TEST_DATABASES"

#: An upgrade, a worker that waits for it, and the test that looks at both need one server connection each.
_SERVERS = 3

#: The name of a database on servers that a test has to itself.
_NAME = "dlq_test"


@contextlib.contextmanager
def _through_pgbouncer() -> Iterator[str]:
    """Few server connections, so that each is used by many tests. What the store has left in their sessions
    is found when all tests have run."""
    with postgres_database() as direct, pgbouncer(direct, _SERVERS) as url:
        before = sessions(url, _SERVERS)
        yield url
        after = sessions(url, _SERVERS)
        assert after == before, f"the store left something in its sessions: {after}, not {before}"


@contextlib.contextmanager
def _through_pgpool() -> Iterator[str]:
    with postgres_database() as direct, pgpool(direct) as url:
        yield url


@contextlib.contextmanager
def _on_galera() -> Iterator[str]:
    """All nodes serve, and the first one is used."""
    with running(Galera) as cluster:
        create_database(cluster.nodes[0].url, _NAME, " CHARACTER SET utf8mb4")
        yield cluster.url_of(_NAME)


@contextlib.contextmanager
def _on_postgresql(version: int) -> Iterator[str]:
    with running(partial(PostgresOfVersion, version=version)) as server:
        create_database(server.url, _NAME)
        yield server.url_of(_NAME)


#: By name: yields the URL of a new database, and removes it in the end.
WAYS: dict[str, Callable[[], contextlib.AbstractContextManager[str]]] = {
    "sqlite": sqlite_file,
    "postgresql": postgres_database,
    "mysql": mysql_database,
    "pgbouncer": _through_pgbouncer,
    "pgpool": _through_pgpool,
    "galera": _on_galera,
    **{f"postgresql-{version}": partial(_on_postgresql, version) for version in RELEASES},
}


def chosen() -> list[str]:
    """The ways of this run: without :data:`VARIABLE`, those that reach a database directly."""
    names = [name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip()]
    if unknown := set(names) - set(WAYS):
        raise pytest.UsageError(
            f"{VARIABLE} names {', '.join(sorted(unknown))}; it may name {', '.join(WAYS)}"
        )
    return names or ["sqlite", "postgresql", "mysql"]
