"""Letters are removed from the archive, and nothing else is."""

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
    ids_of,
    kills,
    lines,
    search,
    segment_id,
    verified,
    watched,
)

from celery_dlq.archive.reading import Problem, holders
from celery_dlq.archive.segment import pack, segment_key, unpack

FIRST, SECOND, THIRD = map(segment_id, (1, 2, 3))


def forget(bucket, store, *ids):
    """Remove these letters from all segments, as an erasure does."""
    made = archiver(bucket, store)
    made.clean()
    found = search(bucket, store, ids=ids)
    segments = dict.fromkeys(one.segment for one in found.copies())
    return [made.rewrite(one, found.wanted.matches) for one in segments]


def traces(bucket, task_id):
    """The files that hold a letter, whether a row names them or not."""
    return [
        key for key in bucket.list("segments") if task_id in ids_of(unpack(bucket.files[key], key))
    ]


def test_a_letter_is_removed_and_the_others_stay(bucket, store):
    (after,) = forget(bucket, store, "id-000003")
    assert (after.id, after.letters) == (segment_id(2, 4), 1)
    assert archived_ids(bucket, store) == [one for one in ids_of(lines(6)) if one != "id-000003"]
    assert traces(bucket, "id-000003") == []
    assert verified(bucket, store).findings == ()
    assert store.states() == ["own"] * 3


def test_a_segment_of_which_nothing_is_left_is_gone(bucket, store):
    assert forget(bucket, store, "id-000003", "id-000004") == [None]
    assert archived_ids(bucket, store) == ["id-000001", "id-000002", "id-000005", "id-000006"]
    assert [one.id for one in store.segments()] == [FIRST, THIRD]


def test_letters_of_several_segments_are_removed(bucket, store):
    assert len(forget(bucket, store, "id-000001", "id-000006")) == 2
    assert archived_ids(bucket, store) == ids_of(lines(4, start=2))


def test_a_segment_can_be_rewritten_again(bucket, store):
    forget(bucket, store, "id-000001")
    forget(bucket, store, "id-000002")
    assert archived_ids(bucket, store) == ids_of(lines(4, start=3))


def test_a_replacement_keeps_the_place_of_its_segment():
    bucket, store = MemoryBucket(), FakeStore([a_line(1, body="first"), a_line(2)])
    archive_all(bucket, store)
    store.letters["id-000001"] = a_line(1, failed_at=NOW, body="last")
    archive_all(bucket, store)
    forget(bucket, store, "id-000002")
    (found,) = search(bucket, store, ids=["id-000001"])
    assert found.line["content"]["body"] == "last"


def test_all_copies_of_a_letter_are_removed(bucket, store):
    store.letters["id-000003"] = a_line(3, failed_at=NOW)
    archive_all(bucket, store)
    assert len(forget(bucket, store, "id-000003")) == 2
    assert traces(bucket, "id-000003") == []


def test_the_segment_of_another_store_stays_one(bucket, store):
    other = FakeStore()
    archive_of(bucket, other).adopt()
    forget(bucket, other, "id-000003")
    assert other.states() == ["adopted"] * 3


def test_a_letter_that_was_restored_meanwhile_stays_in_the_store(bucket, store):
    found = search(bucket, store, ids=["id-000003", "id-000004"])
    archive_of(bucket, store).restore(found, who="ada")
    forget(bucket, store, "id-000003")
    assert sorted(store.letters) == ["id-000003", "id-000004"]


def test_copies_that_a_killed_process_has_left_are_removed(bucket, store):
    packed = pack(lines(1, start=3))
    bucket.put(segment_key(store.begin(packed.facts, LEASE).id), packed.data)
    forget(bucket, store, "id-000003")
    assert traces(bucket, "id-000003") == []


def test_a_damaged_segment_is_not_rewritten_and_the_others_are(bucket, store):
    bucket.files[segment_key(SECOND)] = damaged = bucket.files[segment_key(SECOND)][:-1]
    assert len(forget(bucket, store, "id-000003", "id-000006")) == 1
    assert bucket.files[segment_key(SECOND)] == damaged


def holding(bucket, store, *ids):
    return holders(search(bucket, store, ids=ids), archive_of(bucket, store).unknown_files())


def test_the_segments_that_hold_a_letter_are_named(bucket, store):
    before = dict(bucket.files)
    found = holding(bucket, store, "id-000003", "id-000004", "id-000001")
    assert found.ids == {FIRST: ("id-000001",), SECOND: ("id-000003", "id-000004")}
    assert found.unread == ()
    assert bucket.files == before


def test_files_that_cannot_be_read_and_those_without_a_row_are_named(bucket, store):
    bucket.files[segment_key(SECOND)] = bucket.files[segment_key(SECOND)][:-1]
    bucket.delete(segment_key(THIRD))
    bucket.put("segments/notes.txt", b"")
    found = holding(bucket, store, "id-000003")
    assert found.ids == {}
    assert [(one.key, one.problem) for one in found.unread] == [
        (segment_key(THIRD), Problem.MISSING),
        (segment_key(SECOND), Problem.DAMAGED),
        ("segments/notes.txt", Problem.UNKNOWN),
    ]


def act(bucket, store):
    forget(bucket, store, "id-000003", "id-000006")


def archived():
    store, bucket = FakeStore(lines(6)), MemoryBucket()
    archive_all(bucket, store, together=2)
    return bucket, store


KILLS = kills(act, *archived())


@pytest.mark.parametrize("steps", KILLS)
def test_a_removal_killed_at_any_step_loses_no_other_letter(steps):
    for step, after in each_kill(steps):
        bucket, store = archived()
        with pytest.raises(KilledError):
            act(*watched(bucket, store, step, after=after)[:2])
        kept = {"id-000001", "id-000002", "id-000004", "id-000005"}
        assert kept <= set(archived_ids(bucket, store))
        assert verified(bucket, store).findings == ()


@pytest.mark.parametrize("steps", KILLS)
def test_the_removal_after_a_kill_ends_the_work(steps):
    for step, after in each_kill(steps):
        bucket, store = archived()
        with pytest.raises(KilledError):
            act(*watched(bucket, store, step, after=after)[:2])
        act(bucket, store)
        assert archived_ids(bucket, store) == ["id-000001", "id-000002", "id-000004", "id-000005"]
        assert traces(bucket, "id-000003") == traces(bucket, "id-000006") == []
        assert verified(bucket, store).findings == ()
        assert store.letters == {}
