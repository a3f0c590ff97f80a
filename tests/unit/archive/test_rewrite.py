"""Letters are removed from the archive, and nothing else is."""

from __future__ import annotations

import pytest
from support.stores.archives import (
    CHAIN,
    LEASE,
    NOW,
    FakeStore,
    KilledError,
    MemoryBucket,
    archive_all,
    archiver,
    each_kill,
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
from celery_dlq.archive.reading import Search, Wanted, restore
from celery_dlq.archive.rewrite import forget, holders
from celery_dlq.archive.segment import read_lines, write_segment
from celery_dlq.errors import ArchiveFileMissing

FIRST, SECOND, THIRD, FOURTH = (f"{CHAIN}-{number:08}-{number:08x}" for number in (1, 2, 3, 4))


def forget_ids(bucket, store, *ids):
    return forget(bucket, archiver(bucket, store), Wanted(ids=frozenset(ids)), chain=CHAIN)


def held(bucket):
    search = Search(bucket, read_chains(bucket), Wanted())
    ids = sorted(found.task_id for found in search)
    assert search.findings == []
    return ids


def traces(bucket, task_id):
    """The segments whose file holds a letter, whether a manifest names the file or not."""
    return [
        key
        for key in bucket.list("segments")
        if task_id in ids_of(read_lines(bucket.files[key], key))
    ]


def test_a_letter_is_removed_and_the_others_stay(bucket, store):
    (rewritten,) = forget_ids(bucket, store, "id-000003")
    assert rewritten.removed == ("id-000003",)
    assert (rewritten.before, rewritten.after.segment) == (SECOND, FOURTH)
    assert rewritten.after.replaces == SECOND
    assert held(bucket) == [one for one in ids_of(lines(6)) if one != "id-000003"]
    assert traces(bucket, "id-000003") == []


def test_the_chain_holds_and_the_old_manifest_stays(bucket, store):
    forget_ids(bucket, store, "id-000003")
    assert verify(bucket, store.committed()).findings == ()
    assert manifest_key(SECOND) in bucket.files
    assert segment_key(SECOND) not in bucket.files
    assert store.states() == ["closed"] * 4


def test_a_segment_of_which_nothing_is_left_is_empty(bucket, store):
    forget_ids(bucket, store, "id-000003", "id-000004")
    assert held(bucket) == ["id-000001", "id-000002", "id-000005", "id-000006"]
    assert verify(bucket, store.committed()).findings == ()


def test_letters_of_several_segments_are_removed(bucket, store):
    result = forget_ids(bucket, store, "id-000001", "id-000006")
    assert [one.before for one in result] == [FIRST, THIRD]
    assert held(bucket) == ids_of(lines(4, start=2))


def test_a_segment_can_be_rewritten_again(bucket, store):
    forget_ids(bucket, store, "id-000003")
    forget_ids(bucket, store, "id-000004")
    assert held(bucket) == ["id-000001", "id-000002", "id-000005", "id-000006"]
    assert verify(bucket, store.committed()).findings == ()
    assert read_chains(bucket).segment(SECOND).number == 5


def test_letters_are_removed_by_a_predicate(bucket, store):
    wanted = Wanted(where=lambda line: line["letter"]["task_id"] == "id-000005")
    forget(bucket, archiver(bucket, store), wanted, chain=CHAIN)
    assert traces(bucket, "id-000005") == []


def test_without_such_a_letter_nothing_changes(bucket, store):
    before = dict(bucket.files)
    assert forget_ids(bucket, store, "nowhere") == ()
    assert bucket.files == before


def test_the_segments_of_other_stores_are_left_alone(bucket, store):
    archive_all(bucket, FakeStore(lines(1, start=3), chain="ffffffff"))
    other = segment_key("ffffffff-00000001-00000001")
    forget_ids(bucket, store, "id-000003")
    assert traces(bucket, "id-000003") == [other]


def test_a_letter_that_was_restored_meanwhile_stays_in_the_store(bucket, store):
    search = Search(bucket, read_chains(bucket), Wanted(segment=SECOND))
    restore(search, store, who="ada", reopen=False, now=NOW)
    forget_ids(bucket, store, "id-000003")
    assert sorted(store.letters) == ["id-000003", "id-000004"]


def test_copies_that_a_killed_process_has_left_are_removed(bucket, store):
    stray = store.begin(LEASE, now=NOW)
    bucket.put(segment_key(stray.id), write_segment(lines(1, start=3))[0])
    store.abandon(stray.id, LEASE)
    forget_ids(bucket, store, "id-000003")
    assert traces(bucket, "id-000003") == []


def test_parts_of_files_that_a_killed_process_has_left_are_removed(bucket, store):
    part, other = segment_key(FIRST) + ".0a1b2c3d.part", "segments/notes.txt"
    for key in (part, other):
        bucket.put(key, b"half")
    forget_ids(bucket, store, "id-000003")
    assert part not in bucket.files
    assert other in bucket.files


def test_a_damaged_segment_is_not_rewritten_and_the_others_are(bucket, store):
    bucket.files[segment_key(SECOND)] = damaged = bucket.files[segment_key(SECOND)][:-1]
    (rewritten,) = forget_ids(bucket, store, "id-000003", "id-000006")
    assert rewritten.before == THIRD
    assert bucket.files[segment_key(SECOND)] == damaged


def test_the_segment_that_another_process_has_begun_meanwhile_stays(bucket, store):
    late = archiver(bucket, store)
    begun = []

    def begin_another():
        begun.append(store.begin(LEASE, now=NOW))
        bucket.put(segment_key(begun[0].id), write_segment(lines(1, start=9))[0])
        return []

    late.finish = begin_another
    forget(bucket, late, Wanted(ids=frozenset({"nowhere"})), chain=CHAIN)
    assert segment_key(begun[0].id) in bucket.files


def test_the_segment_of_a_manifest_that_cannot_be_read_stays(bucket, store):
    bucket.files[manifest_key(FIRST)] = b"{}"
    forget_ids(bucket, store, "id-000003")
    assert segment_key(FIRST) in bucket.files


def test_a_committed_segment_that_has_lost_its_manifest_stays(bucket, store):
    del bucket.files[manifest_key(THIRD)]
    archive_all(bucket, FakeStore(lines(1, start=9), chain="ffffffff"))
    with pytest.raises(ArchiveFileMissing):  # a new segment would follow the lost one
        forget_ids(bucket, store, "id-000003")
    assert segment_key(THIRD) in bucket.files


def test_each_segment_is_told_before_and_after_it_is_replaced(bucket, store):
    told = []
    wanted = Wanted(ids=frozenset({"id-000001", "id-000006"}))
    forget(
        bucket, archiver(bucket, store), wanted, chain=CHAIN,
        before=lambda removed: told.append((ids_of(removed), held(bucket))),
        after=lambda rewritten: told.append((rewritten.removed, held(bucket))),
    )  # fmt: skip
    one, every = ids_of(lines(5, start=2)), ids_of(lines(6))
    assert told == [
        (["id-000001"], every), (("id-000001",), one),
        (["id-000006"], one), (("id-000006",), ids_of(lines(4, start=2))),
    ]  # fmt: skip


def holding_ids(bucket, store, *ids):
    return holders(bucket, Wanted(ids=frozenset(ids)), chain=CHAIN, committed=store.committed())


def test_the_segments_that_hold_a_letter_are_named(bucket, store):
    archive_all(bucket, FakeStore(lines(1, start=3), chain="ffffffff"))
    before = dict(bucket.files)
    found = holding_ids(bucket, store, "id-000003", "id-000004")
    assert found.own == {SECOND: ("id-000003", "id-000004")}
    assert found.others == {"ffffffff-00000001-00000001": 1}
    assert found.unread == ()
    assert bucket.files == before


def test_files_that_cannot_be_read_are_named(bucket, store):
    bucket.files[manifest_key(FIRST)] = b"{}"
    bucket.files[segment_key(SECOND)] = bucket.files[segment_key(SECOND)][:-1]
    del bucket.files[manifest_key(THIRD)]
    found = holding_ids(bucket, store, "id-000003")
    assert found.own == {}
    assert [(one.key, one.problem) for one in found.unread] == [
        (manifest_key(FIRST), Problem.DAMAGED),
        (manifest_key(THIRD), Problem.MISSING),
        (segment_key(SECOND), Problem.DAMAGED),
    ]


def test_a_segment_stays_while_the_one_that_replaces_it_is_missing(bucket, store):
    late = store.begin(LEASE, now=NOW)
    store.abandon(late.id, LEASE)
    store.drop(late.id, LEASE)
    facts = write_segment(lines(1, start=4))[1]
    manifest = make_manifest(late, facts, now=NOW, replaces=SECOND)
    bucket.put(manifest_key(late.id), encode_manifest(manifest))
    with pytest.raises(ArchiveFileMissing):
        forget_ids(bucket, store, "id-000001")
    assert segment_key(SECOND) in bucket.files


def act(bucket, store):
    forget_ids(bucket, store, "id-000003", "id-000006")


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
        assert kept <= set(held(bucket))
        assert verify(bucket, store.committed()).is_whole


@pytest.mark.parametrize("steps", KILLS)
def test_the_removal_after_a_kill_ends_the_work(steps):
    for step, after in each_kill(steps):
        bucket, store = archived()
        with pytest.raises(KilledError):
            act(*watched(bucket, store, step, after=after)[:2])
        act(bucket, store)
        assert held(bucket) == ["id-000001", "id-000002", "id-000004", "id-000005"]
        assert traces(bucket, "id-000003") == traces(bucket, "id-000006") == []
        assert verify(bucket, store.committed()).findings == ()
        assert store.letters == {}
