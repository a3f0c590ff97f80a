"""The way of letters into the archive, ended at every step."""

from __future__ import annotations

import contextlib

import pytest
from support.stores.archives import (
    LEASE,
    NOW,
    FakeStore,
    KilledError,
    MemoryBucket,
    a_line,
    archive_all,
    archiver,
    each_kill,
    failing,
    ids_of,
    kills,
    lines,
    watched,
)

from celery_dlq.archive.chain import read_chains, verify
from celery_dlq.archive.files import (
    Problem,
    encode_manifest,
    make_manifest,
    manifest_key,
    segment_key,
)
from celery_dlq.archive.reading import Search, Wanted
from celery_dlq.archive.segment import write_segment
from celery_dlq.errors import ArchiveDamaged, ArchiveError, ArchiveFileMissing, StoreError


@pytest.fixture
def bucket():
    return MemoryBucket()


@pytest.fixture
def store():
    return FakeStore(lines(5))


def archived_ids(bucket):
    search = Search(bucket, read_chains(bucket), Wanted())
    ids = sorted(found.task_id for found in search)
    assert search.findings == []
    return ids


def test_letters_move_into_one_segment(bucket, store):
    done = archiver(bucket, store).archive(list(store.letters))
    assert (done.manifest.facts.letters, done.deleted) == (5, 5)
    assert store.letters == {}
    assert store.acts == {1: 5}
    assert archived_ids(bucket) == ids_of(lines(5))
    assert store.states() == ["closed"]


def test_all_segments_of_one_archiver_are_one_act(bucket, store):
    made = archiver(bucket, store)
    made.archive(ids_of(lines(3)))
    made.archive(ids_of(lines(2, start=4)))
    assert store.acts == {1: 5}


def test_the_next_segment_names_the_one_before_it(bucket, store):
    first, second = archive_all(bucket, store, together=3)
    assert second.manifest.previous.segment == first.manifest.segment
    assert second.manifest.previous.sha256 == store.manifests[first.manifest.segment]
    assert verify(bucket, store.committed()).findings == ()


def test_letters_that_are_open_or_gone_are_left_out(bucket, store):
    store.open = {"id-000002"}
    done = archiver(bucket, store).archive([*store.letters, "id-gone"])
    assert done.deleted == 4
    assert list(store.letters) == ["id-000002"]


def test_without_letters_no_segment_is_begun(bucket, store):
    assert archiver(bucket, store).archive(["id-gone"]) is None
    assert store.rows == {}
    assert bucket.files == {}


def test_an_id_that_is_given_twice_is_archived_once(bucket, store):
    done = archiver(bucket, store).archive(["id-000001", "id-000001"])
    assert done.manifest.facts.letters == 1


def test_a_letter_that_fails_again_in_the_meantime_is_not_deleted(bucket, store):
    read = store.read

    def reopened(task_ids):
        found = read(task_ids)
        store.letters["id-000003"] = a_line(3, failed_at=NOW)
        return found

    store.read = reopened
    done = archiver(bucket, store).archive(list(store.letters))
    assert done.deleted == 4
    assert list(store.letters) == ["id-000003"]


def archive_in_two(bucket, store):
    first = archiver(bucket, store)
    first.finish()
    first.archive(ids_of(lines(3)))
    first.archive(ids_of(lines(2, start=4)))


KILLS = kills(archive_in_two, MemoryBucket(), FakeStore(lines(5)))


@pytest.mark.parametrize("steps", KILLS)
def test_a_run_killed_at_any_step_leaves_each_letter_in_one_place(steps):
    for step, after in each_kill(steps):
        bucket, store = MemoryBucket(), FakeStore(lines(5))
        with pytest.raises(KilledError):
            archive_in_two(*watched(bucket, store, step, after=after)[:2])
        # Between the commit and the deletion, a letter is in both places, and the store's row says so.
        archiver(bucket, store).finish()
        assert store.unfinished() == []
        assert sorted([*store.letters, *archived_ids(bucket)]) == ids_of(lines(5))
        assert verify(bucket, store.committed()).is_whole


@pytest.mark.parametrize("steps", KILLS)
def test_the_run_after_a_kill_ends_the_work(steps):
    for step, after in each_kill(steps):
        bucket, store = MemoryBucket(), FakeStore(lines(5))
        with pytest.raises(KilledError):
            archive_in_two(*watched(bucket, store, step, after=after)[:2])
        archive_in_two(bucket, store)
        assert store.letters == {}
        assert archived_ids(bucket) == ids_of(lines(5))
        assert verify(bucket, store.committed()).is_whole
        assert sum(store.acts.values()) == 5


@pytest.mark.parametrize("error", [ArchiveError, StoreError, ArchiveFileMissing])
@pytest.mark.parametrize("steps", KILLS)
def test_an_error_at_any_step_loses_nothing(steps, error):
    for step, after in each_kill(steps):
        bucket, store = MemoryBucket(), FakeStore(lines(5))
        with contextlib.suppress(
            error
        ):  # a manifest that is said to be missing is looked for again
            archive_in_two(*watched(bucket, store, step, after=after, error=error)[:2])
        archive_in_two(bucket, store)
        assert store.letters == {}
        assert archived_ids(bucket) == ids_of(lines(5))


@pytest.mark.parametrize("steps", KILLS)
def test_a_second_kill_while_the_work_is_ended_loses_nothing(steps):
    for step, after in each_kill(steps):
        bucket, store = MemoryBucket(), FakeStore(lines(5))
        for kill_at in (step, 3, 4, 5):
            with contextlib.suppress(KilledError):
                archive_in_two(*watched(bucket, store, kill_at, after=after)[:2])
        archive_in_two(bucket, store)
        assert store.letters == {}
        assert archived_ids(bucket) == ids_of(lines(5))


def test_a_segment_without_a_manifest_is_abandoned(bucket, store):
    segment = store.begin(LEASE, now=NOW)
    bucket.put(segment_key(segment.id), write_segment(lines(5))[0])
    assert archiver(bucket, store).finish() == []
    assert store.states() == ["dropped"]
    assert bucket.files == {}
    assert len(store.letters) == 5


def test_the_files_of_a_segment_that_was_abandoned_before_a_kill_are_deleted(bucket, store):
    segment = store.begin(LEASE, now=NOW)
    bucket.put(segment_key(segment.id), write_segment(lines(5))[0])
    store.abandon(segment.id, LEASE)
    assert archiver(bucket, store).finish() == []
    assert store.states() == ["dropped"]
    assert bucket.files == {}


def test_parts_of_files_of_an_abandoned_segment_are_deleted(bucket, store):
    segment = store.begin(LEASE, now=NOW)
    other = segment_key("ffffffff-00000001-00000001") + ".0a1b2c3d.part"
    for key in (segment_key(segment.id), manifest_key(segment.id)):
        bucket.put(f"{key}.0a1b2c3d.part", b"half")
    bucket.put(other, b"half")
    archiver(bucket, store).finish()
    assert list(bucket.files) == [other]


def test_a_cut_manifest_of_a_segment_that_was_begun_counts_as_none(bucket, store):
    segment = store.begin(LEASE, now=NOW)
    data, facts = write_segment(lines(5))
    bucket.put(segment_key(segment.id), data)
    bucket.put(
        manifest_key(segment.id), encode_manifest(make_manifest(segment, facts, now=NOW))[:-9]
    )
    archiver(bucket, store).finish()
    assert store.states() == ["dropped"]
    assert bucket.files == {}


def test_a_segment_is_not_abandoned_while_the_archive_is_away(bucket, store):
    store.begin(LEASE, now=NOW)
    bucket.read = failing
    with pytest.raises(ArchiveError, match="away"):
        archiver(bucket, store).finish()
    assert store.states() == ["begun"]


def committed(bucket, store):
    """A segment whose letters are not deleted yet."""
    store.delete = failing
    with pytest.raises(ArchiveError):
        archiver(bucket, store).archive(list(store.letters))
    del store.delete
    (segment,) = store.unfinished()
    return segment


@pytest.mark.parametrize("key", [segment_key, manifest_key])
def test_no_letter_is_deleted_for_a_committed_segment_that_is_damaged(bucket, store, key):
    segment = committed(bucket, store)
    file = key(segment.id)
    bucket.files[file] = bucket.files[file][:-1]
    with pytest.raises(ArchiveDamaged, match=segment.id):
        archiver(bucket, store).finish()
    assert len(store.letters) == 5


@pytest.mark.parametrize("key", [segment_key, manifest_key])
def test_no_letter_is_deleted_for_a_committed_segment_that_is_missing(bucket, store, key):
    segment = committed(bucket, store)
    bucket.delete(key(segment.id))
    with pytest.raises(ArchiveFileMissing):
        archiver(bucket, store).finish()
    assert len(store.letters) == 5
    assert store.states() == ["committed"]


def test_no_letter_goes_to_a_place_without_the_earlier_ones(bucket, store):
    archiver(bucket, store).archive(ids_of(lines(2)))
    elsewhere = MemoryBucket()
    with pytest.raises(ArchiveError, match=r"which was archived last\. Mount its disk"):
        archiver(elsewhere, store).archive(ids_of(lines(3, start=3)))
    with pytest.raises(ArchiveError, match="which was archived last"):
        archiver(elsewhere, store).finish()
    assert elsewhere.files == {}
    assert len(store.letters) == 3
    assert store.states() == ["closed", "begun"]
    archive_in_two(bucket, store)
    assert archived_ids(bucket) == ids_of(lines(5))


def test_a_damaged_manifest_does_not_keep_later_letters_out_of_the_archive(bucket, store):
    first = archiver(bucket, store).archive(ids_of(lines(2)))
    bucket.files[manifest_key(first.manifest.segment)] += b"x"
    assert archiver(bucket, store).archive(ids_of(lines(3, start=3))).deleted == 3


@pytest.mark.parametrize("folder", ["segments", "manifests"])
def test_no_letter_is_deleted_if_other_bytes_come_back(bucket, store, folder):
    read = bucket.read

    def other_bytes(key):
        return read(key)[::-1] if key.startswith(folder) else read(key)

    bucket.read = other_bytes
    with pytest.raises(ArchiveDamaged, match=f"other bytes for {folder}/"):
        archiver(bucket, store).archive(list(store.letters))
    assert len(store.letters) == 5
    assert store.states() == ["begun"]


def test_no_letter_is_deleted_if_the_archive_is_full(bucket, store):
    bucket.put = failing
    with pytest.raises(ArchiveError, match="away"):
        archiver(bucket, store).archive(list(store.letters))
    assert len(store.letters) == 5


def test_no_letter_is_deleted_once_the_lease_is_lost(bucket, store):
    put = bucket.put

    def put_late(key, data):
        put(key, data)
        store.lease_is_lost = True

    bucket.put = put_late
    with pytest.raises(StoreError, match="lease"):
        archiver(bucket, store).archive(list(store.letters))
    assert len(store.letters) == 5


def test_an_abandoned_segment_stays_so_when_its_writer_comes_late(bucket, store):
    late = store.begin(LEASE, now=NOW)
    archive_all(bucket, store)
    archiver(bucket, store).finish()
    data, facts = write_segment(lines(5))
    bucket.put(segment_key(late.id), data)
    bucket.put(manifest_key(late.id), encode_manifest(make_manifest(late, facts, now=NOW)))
    archiver(bucket, store).finish()
    assert archived_ids(bucket) == ids_of(lines(5))
    result = verify(bucket, store.committed())
    assert [(one.key, one.problem) for one in result.findings] == [
        (manifest_key(late.id), Problem.LEFTOVER)
    ]
    assert (result.is_whole, result.letters) == (True, 5)
