"""Every change to the archive's files is named."""

from __future__ import annotations

import pytest
from support.stores.archives import segment_id, verified

from celery_dlq.archive.reading import Problem
from celery_dlq.archive.segment import segment_key

FIRST, SECOND, THIRD = (segment_key(segment_id(number)) for number in (1, 2, 3))


def problems(bucket, store):
    return {(finding.key, finding.problem) for finding in verified(bucket, store).findings}


def test_a_whole_archive_has_no_findings(bucket, store):
    result = verified(bucket, store)
    assert result.findings == ()
    assert (result.segments, result.letters) == (3, 6)
    assert result.size == sum(len(bucket.files[one]) for one in (FIRST, SECOND, THIRD))
    assert result.is_whole


@pytest.mark.parametrize("key", [FIRST, THIRD])
def test_one_flipped_bit_at_any_place_of_a_file_is_named(bucket, store, key):
    whole = bucket.files[key]
    for offset in range(len(whole)):
        changed = bytearray(whole)
        changed[offset] ^= 1 << (offset % 8)
        bucket.files[key] = bytes(changed)
        assert problems(bucket, store) == {(key, Problem.DAMAGED)}


def test_a_file_that_grew_is_named(bucket, store):
    bucket.files[SECOND] += b"\0"
    assert problems(bucket, store) == {(SECOND, Problem.DAMAGED)}


@pytest.mark.parametrize("key", [SECOND, THIRD])
def test_a_missing_segment_is_named(bucket, store, key):
    bucket.delete(key)
    result = verified(bucket, store)
    assert problems(bucket, store) == {(key, Problem.MISSING)}
    assert (result.is_whole, result.segments, result.letters) == (False, 2, 4)


@pytest.mark.parametrize("key", ["segments/notes.txt", segment_key(segment_id(9))])
def test_a_file_without_a_row_is_named_and_harmless(bucket, store, key):
    bucket.put(key, b"half")
    result = verified(bucket, store)
    assert problems(bucket, store) == {(key, Problem.UNKNOWN)}
    assert result.is_whole
    assert "dlq archive adopt" in result.findings[0].reason


def test_a_part_of_a_file_that_is_being_written_is_not_named(bucket, store):
    bucket.put(f"{THIRD}.part", b"half")
    assert problems(bucket, store) == set()
