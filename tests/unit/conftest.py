"""For every unit test."""

import pytest
from celery.backends.cache import _DUMMY_CLIENT_CACHE
from kombu.transport.memory import Channel

from celery_dlq.store.sql import SQLStore


@pytest.fixture(autouse=True)
def _empty_memory():
    """All apps on the memory broker, and all with the memory backend, share what is in it."""
    Channel.queues.clear()
    _DUMMY_CLIENT_CACHE.clear()


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory):
    """An SQLite file with the schema: copying it is faster than migrating for each test."""
    path = tmp_path_factory.mktemp("store") / "empty.sqlite3"
    store = SQLStore(f"sqlite:///{path}")
    store.check_schema()
    store.close()
    return path
