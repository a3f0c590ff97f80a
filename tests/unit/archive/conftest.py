"""An archive of three segments with two letters each. Tests of other places have their own."""

from __future__ import annotations

import pytest
from support.stores.archives import FakeStore, MemoryBucket, archive_all, lines


@pytest.fixture
def store():
    return FakeStore(lines(6))


@pytest.fixture
def bucket(store):
    bucket = MemoryBucket()
    archive_all(bucket, store, together=2)
    return bucket
