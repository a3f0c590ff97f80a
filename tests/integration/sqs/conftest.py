from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqs_project import SQSProject
from support.servers.own_sqs import Front, url_of


@pytest.fixture
def make_sqs(tmp_path: Path, sqs_url: str) -> Iterator[Callable[..., SQSProject]]:
    """Projects on the stand-in, or on what stands before it."""
    made: list[SQSProject] = []

    def make(broker: str = sqs_url, **options: str) -> SQSProject:
        made.append(SQSProject(tmp_path, broker, f"sqlite:///{tmp_path}/store.sqlite3", **options))
        made[-1].dlq.store.check_schema()
        return made[-1]

    yield make
    for project in made:
        project.close()


@pytest.fixture
def project(make_sqs: Callable[..., SQSProject]) -> SQSProject:
    return make_sqs()


@pytest.fixture
def front(sqs_url: str) -> Iterator[Front]:
    """Stands before the stand-in."""
    front = Front(int(sqs_url.rpartition(":")[2]))
    yield front
    front.close()


@pytest.fixture
def fronted(front: Front, make_sqs: Callable[..., SQSProject]) -> SQSProject:
    """A project whose requests pass the front."""
    return make_sqs(url_of(front.port))
