"""For every unit test."""

import contextlib
import logging
import shutil
import threading
from functools import partial

import pytest
from celery import Celery, _state
from celery.backends.cache import _DUMMY_CLIENT_CACHE
from kombu.transport.memory import Channel
from kombu.utils import functional
from sqlalchemy import create_engine
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from support.servers.databases import delete_all

from celery_dlq.classify import guarded
from celery_dlq.redrive import plan
from celery_dlq.store.database.dialects import dialect
from celery_dlq.store.sql import SQLStore
from celery_dlq.worker.body.log import RunLogHandler
from celery_dlq.worker.task import DLQTask


@pytest.fixture(autouse=True)
def _empty_memory():
    """All apps on the memory broker, and all with the memory backend, share what is in it."""
    Channel.queues.clear()
    _DUMMY_CLIENT_CACHE.clear()


@pytest.fixture(autouse=True)
def _own_tasks(monkeypatch):
    """Celery registers an app's tasks in all apps that are made later, unless they are not shared."""
    monkeypatch.setattr(_state, "_on_app_finalizers", set(_state._on_app_finalizers))


@pytest.fixture(autouse=True)
def _may_wait_for_results(monkeypatch):
    """A worker that a test built in this process forbids tasks to wait for results, in all later tests."""
    monkeypatch.setattr(_state, "_task_join_will_block", False)


@pytest.fixture(autouse=True)
def _no_listener_to_runs():
    """A worker of a test that did not shut down would keep the log lines of later tests."""
    yield
    for handler in list(logging.getLogger().handlers):
        if isinstance(handler, RunLogHandler):
            handler.leave()


@pytest.fixture(autouse=True)
def _patient_plans(monkeypatch):
    """On a busy machine, too, a plan has the time to check all letters."""
    monkeypatch.setattr(plan, "PATIENCE_S", 600.0)


#: Compiled statements of the SQLite engines in this process.
_compiled: dict = {}


@pytest.fixture(scope="module", autouse=True)
def _compile_each_statement_once():
    """An engine compiles each statement at its first use, by its dialect. Nearly every test has an engine of
    its own, and compiled for a third of its time. The other rings, which use servers, do without this."""
    shared = partial(create_engine, execution_options={"compiled_cache": _compiled})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dialect, "create_engine", shared)
        patch.setattr(SQLiteDialect_pysqlite, "__eq__", lambda one, other: type(one) is type(other))
        patch.setattr(SQLiteDialect_pysqlite, "__hash__", lambda one: hash(type(one)))
        yield


@pytest.fixture(autouse=True)
def _patient_decisions(monkeypatch):
    """On a busy machine, too, foreign code has the time to answer. A test of code that hangs sets its own."""
    monkeypatch.setattr(guarded, "PATIENCE_S", 60.0)
    monkeypatch.setattr(guarded, "DECISION_S", 600.0)


@pytest.fixture
def no_pauses(monkeypatch):
    """kombu tries again at once where it pauses for seconds."""
    monkeypatch.setattr(functional, "sleep", lambda _seconds: None)


@pytest.fixture
def no_thread():
    """Within its ``with`` block, the system has no thread to spare."""

    @contextlib.contextmanager
    def no_thread():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(threading.Thread, "start", _refuse)
            yield

    return no_thread


def _refuse(thread):
    raise RuntimeError("can't start new thread")


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory):
    """An SQLite file with the schema: copying it is faster than migrating for each test."""
    path = tmp_path_factory.mktemp("store") / "empty.sqlite3"
    store = SQLStore(f"sqlite:///{path}")
    store.check_schema()
    store.close()
    return path


@pytest.fixture(scope="module")
def store_of_the_module(tmp_path_factory, empty_store):
    path = tmp_path_factory.mktemp("store") / "own.sqlite3"
    shutil.copy(empty_store, path)
    store = SQLStore(f"sqlite:///{path}")
    yield store
    store.close()


@pytest.fixture
def own_store(store_of_the_module):
    """An empty store. With an engine for each test, every statement would be compiled for each test."""
    delete_all(store_of_the_module.database)
    return store_of_the_module


@pytest.fixture
def shop_app(tmp_path, empty_store):
    """An app with one task, its store and its spool in the test's own directory."""
    shutil.copy(empty_store, tmp_path / "letters.sqlite3")
    app = Celery("shop", broker="memory://", set_as_current=False)
    app.conf.dlq_store_url = f"sqlite:///{tmp_path}/letters.sqlite3"
    app.conf.dlq_spool_dir = str(tmp_path / "spool")

    @app.task(name="shop.charge", base=DLQTask, shared=False)
    def charge(order_id, currency="EUR"):
        return order_id

    yield app
    queue = app.__dict__.get("dead_letter_queue")
    if queue is not None and "store" in vars(queue):
        queue.store.close()
    app.close()
