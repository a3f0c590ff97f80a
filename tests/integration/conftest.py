from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from matrix.run import Theatre
from project import Project


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
