"""The pytest plugin of celery_dlq. It is outside of the package, because pytest imports it in every project
of the environment: it imports neither celery nor celery_dlq before a test uses one of its fixtures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from celery_dlq.testing import DeadLetters


@pytest.fixture
def dlq_app(request: pytest.FixtureRequest) -> Any:
    """The Celery app under test. Override it in conftest.py to return yours; otherwise it is the one of the
    fixture ``celery_app``."""
    try:
        return request.getfixturevalue("celery_app")
    except pytest.FixtureLookupError:
        pytest.fail(
            "The fixture dlq needs your Celery app. Add this to conftest.py:\n\n"
            "    @pytest.fixture\n"
            "    def dlq_app():\n"
            "        from shop import app\n"
            "        return app",
            pytrace=False,
        )


@pytest.fixture
def dlq(dlq_app: Any, tmp_path: Path) -> Iterator[DeadLetters]:
    """The dead letters of ``dlq_app``, whose tasks run in a thread on a broker in memory."""
    from celery_dlq.testing import in_a_thread

    with in_a_thread(dlq_app, tmp_path / "dlq") as letters:
        yield letters


@pytest.fixture
def dlq_worker(tmp_path: Path) -> Iterator[Callable[..., DeadLetters]]:
    """Starts a real worker, as in ``dlq_worker("shop", "--pool=prefork", broker="redis://localhost/15")``.
    Returns the dead letters of its app."""
    from celery_dlq.testing.processes import in_processes

    with in_processes(tmp_path / "dlq") as start:
        yield start
