"""The shop's own tests. They need no server: see docs/howto/test-your-tasks.md."""

import pytest
from celery import Celery

from example_project.celery_app import app


@pytest.fixture
def dlq_app() -> Celery:
    return app
