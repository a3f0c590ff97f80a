import pytest
from support.clock import Clock
from support.stores.writing import FakeStore

from celery_dlq.spool.directory import Spool
from celery_dlq.worker.writing.writer import Writer


@pytest.fixture
def store():
    return FakeStore()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def writer(store, clock, tmp_path):
    writer = Writer(
        lambda: store, Spool(tmp_path / "spool"), size=1_000, batch_size=100, monotonic=clock
    )
    yield writer
    writer.stop()
