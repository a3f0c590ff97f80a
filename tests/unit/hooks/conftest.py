from datetime import timedelta

import pytest
from support.factories import T0, letter, operation

from celery_dlq.hooks import Event, EventKind
from celery_dlq.model.group import Group
from celery_dlq.model.worker import Stall


@pytest.fixture
def event():
    """Makes an event."""

    def make(kind=EventKind.DEAD_LETTER, value=None):
        return Event(kind=kind, at=T0, value=value or letter())

    return make


@pytest.fixture
def group():
    return Group(
        fingerprint="9c1e0000deadbeef",
        task="shop.charge",
        exception_type="ValueError",
        message="bad <currency> & more",
        open_count=3,
        letter_count=5,
        total_count=17,
        first_seen_at=T0,
        last_seen_at=T0,
        owner="ann",
    )


@pytest.fixture
def stall():
    return Stall(
        worker="w@host", since=T0 - timedelta(seconds=300), noticed_at=T0, queues=("a", "b"), messages=1_017,
    )  # fmt: skip


@pytest.fixture
def aborted():
    return operation(cause="3 in a row came back")
