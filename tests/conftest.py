"""Services and apps for all tests. A missing service skips on a laptop and fails in CI."""

from __future__ import annotations

import os

import pytest
from databases import mysql_database, need, postgres_database

REDIS = os.environ.get("CELERY_DLQ_TEST_REDIS", "redis://127.0.0.1:6379")
RABBITMQ = os.environ.get("CELERY_DLQ_TEST_RABBITMQ", "amqp://guest:guest@127.0.0.1:5672//")


@pytest.fixture(scope="session")
def redis_url() -> str:
    return need(REDIS)


@pytest.fixture(scope="session")
def rabbitmq_url() -> str:
    return need(RABBITMQ)


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
