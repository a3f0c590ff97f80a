"""The whole way on real places: a directory, and an S3 server."""

from __future__ import annotations

import fsspec
import pytest
from support.stores.archives import (
    FakeStore,
    archive_all,
    archive_of,
    archived_ids,
    archiver,
    ids_of,
    lines,
    s3_environment,
    s3_server,
    search,
    verified,
)

from celery_dlq.archive.bucket import open_bucket


@pytest.fixture
def s3_url(monkeypatch):
    with s3_server() as address:
        for name, value in s3_environment(address).items():
            monkeypatch.setenv(name, value)
        fsspec.filesystem("s3", skip_instance_cache=True).mkdir("letters")
        yield "s3://letters/shop"


@pytest.fixture(params=["file", "s3"])
def bucket(request, tmp_path):
    url = f"file://{tmp_path}" if request.param == "file" else request.getfixturevalue("s3_url")
    return open_bucket(url)


def test_letters_go_there_and_come_back(bucket):
    store = FakeStore(lines(30))
    archive_all(bucket, store, together=10)
    assert store.letters == {}
    assert verified(bucket, store).findings == ()

    archiver(bucket, store).rewrite(
        store.segments()[1], lambda line: line["letter"]["task_id"] == "id-000015"
    )
    assert verified(bucket, store).findings == ()
    left = [one for one in ids_of(lines(30)) if one != "id-000015"]
    assert archived_ids(bucket, store) == left

    result = archive_of(bucket, store).restore(search(bucket, store), who="ada")
    assert result.findings == ()
    assert sorted(store.letters) == left
