"""Where the benchmarks find their broker and database."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator

from sqlalchemy import create_engine, text

from celery_dlq.store.database import schema
from celery_dlq.store.database.engine import Database

BROKER = os.environ.get("CELERY_DLQ_TEST_REDIS", "redis://127.0.0.1:6379") + "/8"
RABBITMQ = os.environ.get("CELERY_DLQ_TEST_RABBITMQ", "amqp://guest:guest@127.0.0.1:5672//")
POSTGRES = os.environ.get("CELERY_DLQ_TEST_POSTGRES", "postgresql+psycopg://root@127.0.0.1:5432")
MARIADB = os.environ.get("CELERY_DLQ_TEST_MYSQL", "mysql+pymysql://root@127.0.0.1:3306")


@contextlib.contextmanager
def fresh_postgres() -> Iterator[str]:
    """A PostgreSQL database of this run's own, its schema in place."""
    with _fresh(f"{POSTGRES}/postgres", POSTGRES, " WITH (FORCE)") as url:
        yield url


@contextlib.contextmanager
def fresh_mariadb() -> Iterator[str]:
    """A MariaDB database of this run's own, its schema in place."""
    with _fresh(f"{MARIADB}/mysql", MARIADB, "") as url:
        yield url


@contextlib.contextmanager
def _fresh(administration: str, server_url: str, dropping: str) -> Iterator[str]:
    name = f"dlq_bench_{uuid.uuid4().hex[:8]}"
    server = create_engine(administration, isolation_level="AUTOCOMMIT")
    with server.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    try:
        database = Database(f"{server_url}/{name}", timeout=30)
        schema.upgrade(database)
        database.close()
        yield f"{server_url}/{name}"
    finally:
        with server.connect() as connection:
            connection.execute(text(f"DROP DATABASE {name}{dropping}"))
        server.dispose()
