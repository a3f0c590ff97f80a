"""The whole way on real places: a directory, and an S3 server."""

from __future__ import annotations

import fsspec
import pytest
from support.stores.archives import (
    CHAIN,
    NOW,
    FakeStore,
    archive_all,
    archiver,
    ids_of,
    lines,
    s3_environment,
    s3_server,
)

from celery_dlq.archive.bucket import open_bucket
from celery_dlq.archive.chain import read_chains, verify
from celery_dlq.archive.reading import Search, Wanted, restore
from celery_dlq.archive.rewrite import forget


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
    assert verify(bucket, store.manifests).findings == ()

    forgotten = Wanted(ids=frozenset({"id-000015"}))
    forget(bucket, archiver(bucket, store), forgotten, chain=CHAIN)
    assert verify(bucket, store.manifests).findings == ()

    result = restore(
        Search(bucket, read_chains(bucket), Wanted()), store, who="ada", reopen=False, now=NOW
    )
    assert result.findings == ()
    assert sorted(store.letters) == [one for one in ids_of(lines(30)) if one != "id-000015"]
