"""For every unit test."""

import pytest
from celery.backends.cache import _DUMMY_CLIENT_CACHE
from kombu.transport.memory import Channel


@pytest.fixture(autouse=True)
def _empty_memory():
    """All apps on the memory broker, and all with the memory backend, share what is in it."""
    Channel.queues.clear()
    _DUMMY_CLIENT_CACHE.clear()
