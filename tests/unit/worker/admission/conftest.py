"""Workers with a breaker. Tests of other guards have apps and workers of their own."""

import pytest
from support.workers.with_breaker import Worker, World, breaking_app


@pytest.fixture
def world():
    return World()


@pytest.fixture
def app(tmp_path):
    app = breaking_app(str(tmp_path / "spool"))
    yield app
    app.close()


@pytest.fixture
def worker(app, world):
    return Worker(app, world)
