"""The way of letters into the archive, ended at every step."""

from __future__ import annotations

import pytest
from support.stores.archives import (
    LEASE,
    NOW,
    FakeStore,
    KilledError,
    MemoryBucket,
    a_line,
    archive_all,
    archive_of,
    archived_ids,
    archiver,
    each_kill,
    failing,
    ids_of,
    keys_of,
    kills,
    lines,
    verified,
    watched,
)

from celery_dlq.archive import segment
from celery_dlq.archive.segment import pack, segment_key
from celery_dlq.errors import (
    ArchiveDamaged,
    ArchiveError,
    ArchiveFileMissing,
    StoreError,
    StoreUnavailable,
)


@pytest.fixture
def bucket():
    return MemoryBucket()


@pytest.fixture
def store():
    return FakeStore(lines(5))


def archive(bucket, store, some):
    return sum(archiver(bucket, store).archive(keys_of(some)))


def begun(bucket, store, some=None):
    """A segment whose writer was killed before it could commit it."""
    packed = pack(lines(5) if some is None else some)
    made = store.begin(packed.facts, LEASE)
    bucket.put(segment_key(made.id), packed.data)
    return made


def test_letters_move_into_one_segment(bucket, store):
    assert archive(bucket, store, lines(5)) == 5
    assert store.letters == {}
    assert store.acts == {1: 5}
    assert archived_ids(bucket, store) == ids_of(lines(5))
    assert store.states() == ["own"]


def test_all_segments_of_one_archiver_are_one_act(bucket, store):
    made = archiver(bucket, store)
    for some in (lines(3), lines(2, start=4)):
        list(made.archive(keys_of(some)))
    assert store.acts == {1: 5}


def test_letters_that_are_open_or_gone_are_left_out(bucket, store):
    store.open = {"id-000002"}
    assert archive(bucket, store, [*lines(5), a_line(9)]) == 4
    assert list(store.letters) == ["id-000002"]


def test_without_letters_no_segment_is_begun(bucket, store):
    assert archive(bucket, store, [a_line(9)]) == 0
    assert store.rows == {}
    assert bucket.files == {}


def test_a_letter_that_has_changed_since_it_was_chosen_stays(bucket, store):
    keys = keys_of(lines(5))
    store.letters["id-000003"] = a_line(3, failed_at=NOW)
    assert sum(archiver(bucket, store).archive(keys)) == 4
    assert "id-000003" not in archived_ids(bucket, store)


def test_a_letter_that_fails_again_in_the_meantime_is_not_deleted(bucket, store):
    read = store.read

    def reopened(task_ids):
        found = read(task_ids)
        store.letters["id-000003"] = a_line(3, failed_at=NOW)
        return found

    store.read = reopened
    assert archive(bucket, store, lines(5)) == 4
    assert list(store.letters) == ["id-000003"]


def test_letters_that_are_too_large_together_get_several_segments(bucket, store, monkeypatch):
    monkeypatch.setattr(pack, "__defaults__", (2 * len(segment.encode_line(a_line(1))),))
    assert list(archiver(bucket, store).archive(keys_of(lines(5)))) == [2, 2, 1]
    assert archived_ids(bucket, store) == ids_of(lines(5))


def test_if_the_store_is_too_slow_the_next_segments_are_smaller(bucket):
    store = FakeStore(lines(1_000))
    commit = store.commit

    def slow(made, keys, lease, act):
        if len(keys) > 250:
            raise StoreUnavailable
        return commit(made, keys, lease, act)

    store.commit = slow
    assert list(archiver(bucket, store).archive(keys_of(lines(1_000)))) == [250] * 4
    assert archived_ids(bucket, store) == ids_of(lines(1_000))


def archive_in_two(bucket, store):
    for some in (lines(3), lines(2, start=4)):
        archive(bucket, store, some)


KILLS = kills(archive_in_two, MemoryBucket(), FakeStore(lines(5)))


@pytest.mark.parametrize("steps", KILLS)
def test_a_run_killed_at_any_step_leaves_each_letter_in_one_place(steps):
    for step, after in each_kill(steps):
        bucket, store = MemoryBucket(), FakeStore(lines(5))
        with pytest.raises(KilledError):
            archive_in_two(*watched(bucket, store, step, after=after)[:2])
        assert sorted([*store.letters, *archived_ids(bucket, store)]) == ids_of(lines(5))
        assert verified(bucket, store).findings == ()


@pytest.mark.parametrize("error", [KilledError, ArchiveError, StoreError, ArchiveFileMissing])
@pytest.mark.parametrize("steps", KILLS)
def test_the_run_after_a_kill_or_an_error_ends_the_work(steps, error):
    for step, after in each_kill(steps):
        bucket, store = MemoryBucket(), FakeStore(lines(5))
        with pytest.raises(error):
            archive_in_two(*watched(bucket, store, step, after=after, error=error)[:2])
        archive_in_two(bucket, store)
        assert store.letters == {}
        assert archived_ids(bucket, store) == ids_of(lines(5))
        assert {*bucket.files} == {segment_key(one.id) for one in store.segments()}
        assert sum(store.acts.values()) == 5


def test_the_file_of_a_killed_writer_does_not_count_and_is_deleted(bucket, store):
    begun(bucket, store)
    assert archived_ids(bucket, store) == []
    assert verified(bucket, store).findings == ()
    archiver(bucket, store).clean()
    assert (store.rows, bucket.files) == ({}, {})
    assert len(store.letters) == 5


def test_a_leftover_is_not_dropped_while_its_file_cannot_be_deleted(bucket, store):
    begun(bucket, store)
    bucket.delete = failing
    with pytest.raises(ArchiveError, match="away"):
        archiver(bucket, store).clean()
    assert store.states() == ["leftover"]


def test_a_leftover_is_not_dropped_while_its_disk_is_away(bucket, store):
    archive(bucket, store, lines(2))
    begun(bucket, store)
    with pytest.raises(ArchiveFileMissing, match="Mount its disk"):
        archiver(MemoryBucket(), store).clean()
    assert store.states() == ["own", "leftover"]


def test_a_process_without_the_lease_deletes_no_file(bucket, store):
    made = begun(bucket, store)
    store.lease_is_lost = True
    with pytest.raises(StoreError, match="lease"):
        archiver(bucket, store).clean()
    assert segment_key(made.id) in bucket.files


def test_no_letter_goes_to_a_place_without_the_earlier_ones(bucket, store):
    archive(bucket, store, lines(2))
    elsewhere = MemoryBucket()
    with pytest.raises(ArchiveFileMissing, match=r"which was archived last\. Mount its disk"):
        archive(elsewhere, store, lines(3, start=3))
    assert elsewhere.files == {}
    assert len(store.letters) == 3
    assert store.states() == ["own"]


def test_no_letter_is_deleted_if_other_bytes_come_back(bucket, store):
    read = bucket.read
    bucket.read = lambda key: read(key)[::-1]
    with pytest.raises(ArchiveDamaged, match="other bytes for segments/"):
        archive(bucket, store, lines(5))
    assert len(store.letters) == 5
    assert store.states() == ["leftover"]


def test_no_letter_is_deleted_if_the_archive_is_full(bucket, store):
    bucket.put = failing
    with pytest.raises(ArchiveError, match="away"):
        archive(bucket, store, lines(5))
    assert len(store.letters) == 5


def test_no_letter_is_deleted_once_the_lease_is_lost(bucket, store):
    put = bucket.put

    def put_late(key, data):
        put(key, data)
        store.lease_is_lost = True

    bucket.put = put_late
    with pytest.raises(StoreError, match="lease"):
        archive(bucket, store, lines(5))
    assert len(store.letters) == 5


def test_the_files_of_another_store_are_adopted(bucket, store):
    archive_all(bucket, store, together=2)
    begun(bucket, store, lines(1, start=9))
    others = [
        "segments/99999999T999999999999-00000001.jsonl.zst",
        f"{segment_key('20991101T120000000000-00000001')}.part", "segments/notes.txt",
    ]  # fmt: skip
    for key in others:
        bucket.put(key, b"")
    other = FakeStore()
    assert len(archive_of(bucket, other).adopt()) == 4
    assert archived_ids(bucket, other) == [*ids_of(lines(5)), "id-000009"]
    assert [vars(one) | {"state": "own"} for one in other.segments()[:3]] == [
        vars(one) | {"state": "own"} for one in store.segments()[:3]
    ]
    assert other.states() == ["adopted"] * 4
    assert [one.key for one in verified(bucket, other).findings] == sorted(others)
    assert archive_of(bucket, other).adopt() == []


def test_a_file_that_cannot_be_read_is_not_adopted(bucket, store):
    made = begun(bucket, store)
    bucket.files[segment_key(made.id)] = b"half"
    other = FakeStore()
    with pytest.raises(ArchiveDamaged, match=made.id):
        archive_of(bucket, other).adopt()
    assert other.rows == {}
