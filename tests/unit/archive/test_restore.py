"""Letters come back from the archive."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.stores.archives import (
    NOW,
    FakeStore,
    KilledError,
    MemoryBucket,
    a_line,
    archive_all,
    archive_of,
    ids_of,
    lines,
    search,
    segment_id,
    watched,
)

from celery_dlq.archive.reading import Problem
from celery_dlq.archive.segment import segment_key

FIRST, SECOND, THIRD = map(segment_id, (1, 2, 3))


def bring_back(bucket, store, *, reopen=False, **wanted):
    return archive_of(bucket, store).restore(
        search(bucket, store, **wanted), who="ada", reopen=reopen
    )


def test_letters_come_back_by_id_as_they_were(bucket, store):
    result = bring_back(bucket, store, ids=["id-000002", "id-000005"])
    assert sorted(result.restored) == ["id-000002", "id-000005"]
    assert store.letters["id-000002"] == a_line(2)
    assert (result.missing, result.findings) == ((), ())


def test_the_store_hears_from_which_segment_they_come(bucket, store):
    bring_back(bucket, store, ids=["id-000002"])
    assert store.audit == [("ada", FIRST, ("id-000002",))]


def test_a_second_restore_changes_nothing(bucket, store):
    bring_back(bucket, store)
    again = bring_back(bucket, store)
    assert again.restored == ()
    assert sorted(again.living) == ids_of(lines(6))


def test_an_id_that_the_archive_does_not_have_is_missing(bucket, store):
    assert bring_back(bucket, store, ids=["id-000002", "nowhere"]).missing == ("nowhere",)


def test_letters_come_back_by_the_time_of_their_failure(bucket, store):
    start = NOW - timedelta(days=400)
    span = {
        "failed_since": start + timedelta(minutes=2),
        "failed_until": start + timedelta(minutes=4),
    }
    assert sorted(bring_back(bucket, store, **span).restored) == ["id-000002", "id-000003"]


def test_segments_that_cannot_hold_a_wanted_letter_are_not_read(bucket, store):
    for one in (FIRST, THIRD):
        bucket.delete(segment_key(one))
    start = NOW - timedelta(days=400)
    span = {
        "failed_since": start + timedelta(minutes=3),
        "failed_until": start + timedelta(minutes=5),
    }
    result = bring_back(bucket, store, **span)
    assert result.findings == ()
    assert sorted(result.restored) == ["id-000003", "id-000004"]


def test_letters_come_back_by_a_predicate(bucket, store):
    result = bring_back(bucket, store, where=lambda line: line["letter"]["task_id"].endswith("6"))
    assert result.restored == ("id-000006",)


def test_reopened_letters_can_be_redriven(bucket, store):
    bring_back(bucket, store, ids=["id-000001"], reopen=True)
    assert store.open == {"id-000001"}


def test_of_a_letter_that_was_archived_twice_the_later_copy_comes_back(bucket, store):
    store.letters["id-000001"] = a_line(1, failed_at=NOW, body="newer")
    archive_all(bucket, store)
    result = bring_back(bucket, store, ids=["id-000001"])
    assert result.restored == ("id-000001",)
    assert store.letters["id-000001"]["content"]["body"] == "newer"


def test_a_damaged_segment_is_named_and_the_others_come_back(bucket, store):
    bucket.files[segment_key(SECOND)] = bucket.files[segment_key(SECOND)][:-1]
    result = bring_back(bucket, store)
    assert sorted(result.restored) == ["id-000001", "id-000002", "id-000005", "id-000006"]
    assert [(one.key, one.problem) for one in result.findings] == [
        (segment_key(SECOND), Problem.DAMAGED)
    ]


def test_large_letters_come_back_in_small_portions():
    bucket, store = (
        MemoryBucket(),
        FakeStore([a_line(one, body="x" * (3 << 20)) for one in range(1, 6)]),
    )
    archive_all(bucket, store)
    assert len(bring_back(bucket, store).restored) == 5
    assert [len(ids) for _who, _origin, ids in store.audit] == [2, 2, 1]


def test_many_letters_come_back_in_portions():
    bucket, store = MemoryBucket(), FakeStore(lines(450))
    archive_all(bucket, store)
    assert len(bring_back(bucket, store).restored) == 450
    assert [len(ids) for _who, _origin, ids in store.audit] == [200, 200, 50]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", [1, 2, 3, 4, 5, 6, 7])
def test_a_restore_killed_at_any_step_is_ended_by_the_next_one(bucket, store, step, after):
    with pytest.raises(KilledError):
        bring_back(*watched(bucket, store, step, after=after)[:2])
    result = bring_back(bucket, store)
    assert sorted([*result.restored, *result.living]) == ids_of(lines(6))
    assert sorted(store.letters) == ids_of(lines(6))
