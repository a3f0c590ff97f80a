"""Services and apps for all tests. A missing service skips on a laptop and fails in CI."""

from __future__ import annotations

import gc
import os
import re
import weakref
import zlib
from collections import defaultdict
from collections.abc import Iterator

import pytest
from hypothesis import settings
from sqlalchemy import Connection, Engine, event
from support.servers.databases import mysql_database, need, postgres_database
from support.servers.own_sqs import own_sqs, url_of

REDIS = os.environ.get("CELERY_DLQ_TEST_REDIS", "redis://127.0.0.1:6379")
RABBITMQ = os.environ.get("CELERY_DLQ_TEST_RABBITMQ", "amqp://guest:guest@127.0.0.1:5672//")


pytest_plugins = ["support.budget"]

#: Fixtures that open a server.
SERVERS = {
    "redis_url", "rabbitmq_url", "sqs_url", "postgres_url", "own_postgres_url", "mysql_url", "own_mysql_url",
}  # fmt: skip

#: Set to any text, it runs the tests that are marked ``nightly``, too, and the parts that others leave out.
ALL = os.environ.get("CELERY_DLQ_TEST_ALL", "")

#: The words for brokers, databases and pools in the names of tests.
PLACES = {
    "redis", "rabbitmq", "classic", "quorum", "sqs", "sqlite", "postgres", "postgresql", "mysql", "mariadb",
    "prefork", "threads", "solo", "gevent",
}  # fmt: skip

# No property depends on how fast the machine is. The gate and `make unit` try few examples.
settings.register_profile("thorough", deadline=None)
settings.register_profile("quick", max_examples=10, deadline=None)
settings.load_profile("thorough")


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests that need a server, so that ``make unit`` leaves them out."""
    chosen = getattr(item, "callspec", None)
    database = chosen.params.get("database_url", "sqlite") if chosen else "sqlite"
    if database != "sqlite" or SERVERS.intersection(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.service)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that only ``make nightly`` runs, and put files with real workers first. They wait
    more than they compute, and the longest takes minutes: at the end it would keep one process busy while the
    others have nothing left."""
    if not ALL:
        left_out = {item for item in items if item.get_closest_marker("nightly")}
        left_out |= repeated_at_other_places([item for item in items if item not in left_out])
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def repeated_at_other_places(items: list[pytest.Item]) -> set[pytest.Item]:
    """Tests with real workers that differ from another one only in broker, database or pool. The gate runs
    one of them, which its name decides, so that all places are visited, and the same ones in each run."""
    alike: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("slow") and "matrix" not in item.path.stem:
            case = [word for word in re.split(r"[-_\[\]]", item.nodeid) if word not in PLACES]
            alike[" ".join(case)].append(item)
    return {
        item
        for case, group in alike.items()
        # Items come in an order that the seed decides.
        for number, item in enumerate(sorted(group, key=lambda item: item.nodeid))
        if number != zlib.crc32(case.encode()) % len(group)
    }


def pytest_collection_finish() -> None:
    """Spare the garbage collector the tests themselves. There are thousands, which stay to the end. It
    walked through them again and again, which took a tenth of the time."""
    gc.collect()
    gc.freeze()


#: The databases that this process has used.
_databases: weakref.WeakSet[Engine] = weakref.WeakSet()


@event.listens_for(Engine, "engine_connect")
def _note_database(connection: Connection) -> None:
    _databases.add(connection.engine)


@pytest.fixture(autouse=True)
def _close_databases() -> Iterator[None]:
    """Close the databases that a test has opened and left open: Python 3.13 and later warn of SQLite's. The
    warning would fail the test during which they happen to be collected."""
    before = set(_databases)
    yield
    for database in set(_databases) - before:
        database.dispose()


@pytest.fixture(scope="session")
def redis_url() -> str:
    return need(REDIS)


@pytest.fixture(scope="session")
def rabbitmq_url() -> str:
    return need(RABBITMQ)


@pytest.fixture(scope="session")
def sqs_url() -> Iterator[str]:
    """A stand-in for Amazon SQS of this session's own."""
    with own_sqs() as port:
        yield url_of(port)


@pytest.fixture(scope="session")
def postgres_url():
    """A PostgreSQL database of this session's own."""
    with postgres_database() as url:
        yield url


@pytest.fixture(scope="module")
def own_postgres_url():
    """A PostgreSQL database of this module's own, for what looks at all that is in it."""
    with postgres_database() as url:
        yield url


@pytest.fixture(scope="session")
def mysql_url():
    """A MySQL or MariaDB database of this session's own."""
    with mysql_database() as url:
        yield url


@pytest.fixture(scope="module")
def own_mysql_url():
    """A MySQL or MariaDB database of this module's own, for tables that are not the store's."""
    with mysql_database() as url:
        yield url
