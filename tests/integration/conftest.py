from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from matrix.run import Theatre
from project import Project
from support.servers.databases import delete_all

from celery_dlq.store.database import schema
from celery_dlq.store.sql import SQLStore


@pytest.fixture
def postgres_url(postgres_url: str) -> str:
    """An empty store on PostgreSQL, without even the lease of a worker that another test has killed."""
    return _emptied(postgres_url)


@pytest.fixture
def mysql_url(mysql_url: str) -> str:
    """An empty store on MySQL or MariaDB."""
    return _emptied(mysql_url)


def _emptied(url: str) -> str:
    store = SQLStore(url, timeout=30)
    schema.upgrade(store.database)
    delete_all(store.database)
    store.close()
    return url


@pytest.fixture
def urls_of(
    request: pytest.FixtureRequest, tmp_path: Path, redis_url: str
) -> Callable[[str], tuple[str, str]]:
    """The URLs of a broker and a database that are named like ``redis-postgres``."""

    def urls(broker_and_store: str) -> tuple[str, str]:
        broker, store = broker_and_store.split("-")
        broker_url = (
            f"{redis_url}/9" if broker == "redis" else request.getfixturevalue(f"{broker}_url")
        )
        if store == "sqlite":
            return broker_url, f"sqlite:///{tmp_path}/store.sqlite3"
        return broker_url, request.getfixturevalue(f"{store}_url")

    return urls


@pytest.fixture
def make_project(tmp_path: Path) -> Iterator[Callable[..., Project]]:
    """Projects in this test's directory, by default on a SQLite store."""
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
    """A project on Redis and SQLite, the pair that is quickest to set up."""
    return make_project(f"{redis_url}/9", backend=f"{redis_url}/9")


@pytest.fixture(scope="session")
def theatre(tmp_path_factory: pytest.TempPathFactory, redis_url: str, rabbitmq_url: str) -> Theatre:
    """Plays the scenes of the matrix."""
    urls = {"redis": f"{redis_url}/9", "backend": f"{redis_url}/9", "rabbitmq": rabbitmq_url}
    return Theatre(tmp_path_factory.mktemp("matrix"), urls)


@pytest.fixture(scope="session")
def sqs_theatre(tmp_path_factory: pytest.TempPathFactory, redis_url: str, sqs_url: str) -> Theatre:
    """Plays the scenes of the matrix on Amazon SQS."""
    urls = {"sqs": sqs_url, "backend": f"{redis_url}/9"}
    return Theatre(tmp_path_factory.mktemp("matrix"), urls)
