from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from matrix.run import Theatre
from project import Project
from sqlalchemy import Connection, delete

from celery_dlq.store import schema, tables
from celery_dlq.store.sql import SQLStore


@pytest.fixture
def postgres_url(postgres_url: str) -> str:
    """A store in which is nothing of other tests: no lease, either, of a worker that they have killed."""
    return _emptied(postgres_url)


@pytest.fixture
def mysql_url(mysql_url: str) -> str:
    """The same, on MySQL or MariaDB."""
    return _emptied(mysql_url)


def _emptied(url: str) -> str:
    store = SQLStore(url, timeout=30)
    schema.upgrade(store.database)

    def delete_rows(connection: Connection) -> None:
        for table in tables.metadata.tables.values():
            connection.execute(delete(table))

    store.database.write(delete_rows)
    store.close()
    return url


@pytest.fixture
def make_project(tmp_path: Path) -> Iterator[Callable[..., Project]]:
    """Projects in this test's directory, on a SQLite store unless told otherwise."""
    made: list[Project] = []

    def make(
        broker: str, store_url: str = f"sqlite:///{tmp_path}/store.sqlite3", **options: str
    ) -> Project:
        made.append(Project(tmp_path, broker, store_url, **options))
        return made[-1]

    yield make
    for project in made:
        project.close()


@pytest.fixture
def project(make_project: Callable[..., Project], redis_url: str) -> Project:
    """Redis and SQLite: the quickest to have."""
    return make_project(f"{redis_url}/9", backend=f"{redis_url}/9")


@pytest.fixture(scope="session")
def theatre(tmp_path_factory: pytest.TempPathFactory, redis_url: str, rabbitmq_url: str) -> Theatre:
    """Plays the scenes of the matrix."""
    urls = {"redis": f"{redis_url}/9", "backend": f"{redis_url}/9", "rabbitmq": rabbitmq_url}
    return Theatre(tmp_path_factory.mktemp("matrix"), urls)
