"""Services and apps for all tests. A missing service skips on a laptop and fails in CI."""

from __future__ import annotations

import os
import socket
import uuid
from urllib.parse import urlsplit

import pytest

REDIS = os.environ.get("CELERY_DLQ_TEST_REDIS", "redis://127.0.0.1:6379")
RABBITMQ = os.environ.get("CELERY_DLQ_TEST_RABBITMQ", "amqp://guest:guest@127.0.0.1:5672//")
POSTGRES = os.environ.get("CELERY_DLQ_TEST_POSTGRES", "postgresql+psycopg://root@127.0.0.1:5432")
MYSQL = os.environ.get("CELERY_DLQ_TEST_MYSQL", "mysql+pymysql://root@127.0.0.1:3306")


def need(url: str) -> str:
    """``url``, once something listens there."""
    parts = urlsplit(url)
    ports = {"redis": 6379, "amqp": 5672, "postgresql+psycopg": 5432, "mysql+pymysql": 3306}
    address = (parts.hostname or "127.0.0.1", parts.port or ports[parts.scheme])
    try:
        socket.create_connection(address, timeout=2).close()
    except OSError as error:
        message = f"{parts.scheme} does not answer at {address[0]}:{address[1]} ({error})"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return url


@pytest.fixture(scope="session")
def redis_url() -> str:
    return need(REDIS)


@pytest.fixture(scope="session")
def rabbitmq_url() -> str:
    return need(RABBITMQ)


def _create_database(url: str, name: str, options: str = "") -> None:
    from sqlalchemy import create_engine, text

    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}{options}"))
    engine.dispose()


def _drop_database(url: str, name: str, options: str = "") -> None:
    from sqlalchemy import create_engine, text

    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"DROP DATABASE IF EXISTS {name}{options}"))
    engine.dispose()


@pytest.fixture(scope="session")
def postgres_url():
    """A PostgreSQL database of this session's own."""
    name = f"dlq_test_{uuid.uuid4().hex[:12]}"
    server = need(POSTGRES)
    _create_database(f"{server}/postgres", name)
    yield f"{server}/{name}"
    _drop_database(f"{server}/postgres", name, " WITH (FORCE)")


@pytest.fixture(scope="session")
def mysql_url():
    """A MySQL or MariaDB database of this session's own."""
    name = f"dlq_test_{uuid.uuid4().hex[:12]}"
    server = need(MYSQL)
    _create_database(f"{server}/mysql", name, " CHARACTER SET utf8mb4")
    yield f"{server}/{name}"
    _drop_database(f"{server}/mysql", name)
