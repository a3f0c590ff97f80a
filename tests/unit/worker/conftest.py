import functools

import pytest
from celery import Celery
from celery.app.trace import reset_worker_optimizations
from celery.worker import state


@pytest.fixture(autouse=True)
def _no_requests():
    """What is revoked, or expired, is known to the whole process."""
    yield
    state.reset_state()


@pytest.fixture
def app(tmp_path):
    """An app whose tasks the tracer may run here."""
    app = Celery("unit", broker="memory://", backend="cache+memory://", set_as_current=False)
    app.conf.update(task_ignore_result=True, dlq_spool_dir=str(tmp_path / "spool"))
    # Celery would register a task of one test in the apps of all.
    app.task = functools.partial(app.task, shared=False)
    yield app
    reset_worker_optimizations(app)
    # Celery would register shared tasks of later tests in this app for as long as it lives.
    app.close()
