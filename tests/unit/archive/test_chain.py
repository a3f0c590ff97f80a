"""The order of segments, in one chain and across several, and a segment by its id."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.stores.archives import (
    CHAIN,
    NOW,
    FakeStore,
    MemoryBucket,
    a_line,
    archive_all,
    archiver,
    resealed,
)

from celery_dlq.archive.chain import read_chains
from celery_dlq.archive.files import manifest_key
from celery_dlq.archive.reading import Search, Wanted
from celery_dlq.archive.rewrite import forget
from celery_dlq.errors import ArchiveDamaged, ArchiveNewer, UnknownSegment

FIRST = f"{CHAIN}-00000001-00000001"
ONE = frozenset({"id-000001"})


def later(hours):
    return NOW + timedelta(hours=hours)


@pytest.fixture
def bucket():
    return MemoryBucket()


def archive_copy(bucket, body, *, chain, at):
    """Archive a copy of letter 1 in a chain of its own, together with another letter."""
    store = FakeStore([a_line(1, body=body), a_line(2)], chain=chain)
    archive_all(bucket, store, now=at)
    return store


def found_copy(bucket):
    (found,) = Search(bucket, read_chains(bucket), Wanted(ids=ONE))
    return found.line["content"]["body"]


@pytest.mark.parametrize("chains", [("00000000", "ffffffff"), ("ffffffff", "00000000")])
def test_of_copies_in_several_chains_the_one_that_was_archived_last_is_found(bucket, chains):
    before, after = chains
    archive_copy(bucket, "first", chain=before, at=NOW)
    archive_copy(bucket, "last", chain=after, at=later(1))
    assert found_copy(bucket) == "last"


def test_a_replacement_keeps_the_place_of_its_segment_among_several_chains(bucket):
    store = archive_copy(bucket, "first", chain=CHAIN, at=NOW)
    archive_copy(bucket, "last", chain="ffffffff", at=later(1))
    archive_copy(bucket, "first of all", chain="00000000", at=later(-1))
    wanted = Wanted(ids=frozenset({"id-000002"}))
    forget(bucket, archiver(bucket, store, later(2)), wanted, chain=CHAIN)
    chains = [manifest.chain for manifest in read_chains(bucket).current()]
    assert chains == ["00000000", CHAIN, "ffffffff"]
    assert found_copy(bucket) == "last"


def test_a_clock_that_was_set_back_does_not_change_the_order_of_a_chain(bucket):
    store = FakeStore()
    for number, hours in enumerate((2, 0, 1), 1):
        line = a_line(number)
        store.letters[line["letter"]["task_id"]] = line
        archive_all(bucket, store, now=later(hours))
    archive_copy(bucket, "of another chain", chain="00000000", at=later(-1))
    order = [(manifest.chain, manifest.number) for manifest in read_chains(bucket).current()]
    assert order == [("00000000", 1), (CHAIN, 1), (CHAIN, 2), (CHAIN, 3)]


@pytest.mark.parametrize(
    ("file", "error", "said"),
    [
        (
            b"{}",
            ArchiveDamaged,
            f"{manifest_key(FIRST)} is damaged .*; restore the file from a backup",
        ),
        (resealed(FIRST, format=2), ArchiveNewer, "pip install --upgrade celery-dlq"),
        (None, UnknownSegment, "dlq archive list"),
    ],
)
def test_a_segment_whose_manifest_cannot_be_read_is_not_an_unknown_one(bucket, file, error, said):
    archive_all(bucket, FakeStore([a_line(1), a_line(2)]), together=1)
    if file is None:
        bucket.delete(manifest_key(FIRST))
    else:
        bucket.files[manifest_key(FIRST)] = file
    with pytest.raises(error, match=said):
        read_chains(bucket).segment(FIRST)
