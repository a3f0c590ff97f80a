"""Every change to the archive's files is named."""

from __future__ import annotations

import hashlib

import pytest
from support.stores.archives import CHAIN, FakeStore, archive_all, archiver, lines, resealed

from celery_dlq.archive.chain import verify
from celery_dlq.archive.files import Problem, manifest_key, segment_key
from celery_dlq.archive.reading import Wanted
from celery_dlq.archive.rewrite import forget


@pytest.fixture
def committed(bucket, store):
    return store.manifests


FIRST, SECOND, THIRD = (f"{CHAIN}-{number:08}-{number:08x}" for number in (1, 2, 3))


def problems(bucket):
    return {(finding.key, finding.problem) for finding in verify(bucket, {}).findings}


def test_a_whole_archive_has_no_findings(bucket):
    result = verify(bucket, {})
    assert result.findings == ()
    assert (result.segments, result.letters) == (3, 6)
    assert result.size == sum(len(bucket.files[segment_key(one)]) for one in (FIRST, SECOND, THIRD))
    assert result.is_whole


@pytest.mark.parametrize("name", [segment_key, manifest_key])
@pytest.mark.parametrize("segment", [FIRST, THIRD])
def test_one_flipped_bit_at_any_place_of_a_file_is_named(bucket, name, segment):
    key = name(segment)
    whole = bucket.files[key]
    for offset in range(len(whole)):
        changed = bytearray(whole)
        changed[offset] ^= 1 << (offset % 8)
        bucket.files[key] = bytes(changed)
        assert (key, Problem.DAMAGED) in problems(bucket)


def test_a_file_that_grew_is_named(bucket):
    bucket.files[segment_key(SECOND)] += b"\0"
    assert problems(bucket) == {(segment_key(SECOND), Problem.DAMAGED)}


def test_a_missing_segment_is_named(bucket):
    bucket.delete(segment_key(SECOND))
    result = verify(bucket, {})
    assert problems(bucket) == {(segment_key(SECOND), Problem.MISSING)}
    assert not result.is_whole
    assert result.segments == 2


def test_a_missing_manifest_leaves_a_gap(bucket):
    bucket.delete(manifest_key(SECOND))
    assert problems(bucket) == {
        (manifest_key(THIRD), Problem.GAP),
        (segment_key(SECOND), Problem.UNNAMED),
    }


def test_a_manifest_that_was_exchanged_for_another_whole_one_leaves_a_gap(bucket):
    key = manifest_key(SECOND)
    bucket.files[key] = resealed(SECOND)
    found = problems(bucket)
    assert (manifest_key(THIRD), Problem.GAP) in found
    assert (segment_key(SECOND), Problem.DAMAGED) in found


def test_a_manifest_that_describes_other_letters_is_noticed(bucket):
    data = bucket.files[segment_key(THIRD)]
    bucket.files[manifest_key(THIRD)] = resealed(
        THIRD,
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
    )
    (finding,) = (one for one in verify(bucket, {}).findings if one.key == segment_key(THIRD))
    assert finding.problem is Problem.DAMAGED
    assert "ids" in finding.reason


def test_a_segment_without_a_manifest_is_named_and_harmless(bucket):
    key = segment_key(f"{CHAIN}-00000009-00000009")
    bucket.put(key, b"half")
    result = verify(bucket, {})
    assert problems(bucket) == {(key, Problem.UNNAMED)}
    assert result.is_whole
    [finding] = result.findings
    assert finding.reason == (
        f"No manifest names {key}: it is being written now, its writer was killed, or its manifest is gone. "
        "This store has not committed it, so it deleted no letter for it; others may have."
    )


def test_a_committed_segment_without_its_manifest_is_not_called_harmless(bucket):
    bucket.delete(manifest_key(THIRD))
    result = verify(bucket, {THIRD: "0" * 64})
    assert not result.is_whole
    missing, unnamed = sorted(result.findings, key=lambda finding: finding.problem.value)
    assert (missing.problem, unnamed.problem) == (Problem.MISSING, Problem.UNNAMED)
    assert unnamed.reason == (
        f"No manifest names {segment_key(THIRD)}: it is being written now, its writer was killed, or its "
        "manifest is gone. The store has committed it, so keep it: it may hold the only copy of its letters."
    )


@pytest.mark.parametrize("key", ["segments/notes.txt", "manifests/notes.txt"])
def test_a_file_that_does_not_belong_there_is_named(bucket, key):
    bucket.put(key, b"")
    assert problems(bucket) == {(key, Problem.UNNAMED)}


def test_a_newer_manifest_is_named_and_left_alone(bucket):
    fourth = f"{CHAIN}-00000004-00000004"
    bucket.put(manifest_key(fourth), resealed(fourth, format=2))
    bucket.put(segment_key(fourth), b"of a newer format")
    assert problems(bucket) == {(manifest_key(fourth), Problem.NEWER)}
    assert verify(bucket, {}).is_whole


def put_after_first(bucket, segment_id=f"{CHAIN}-00000004-00000004", **changes):
    """Put a manifest that follows the first segment, as the second one does. It has no lines."""
    sha256 = hashlib.sha256(bucket.files[manifest_key(FIRST)]).hexdigest()
    before = {"segment": FIRST, "sha256": sha256}
    bucket.put(manifest_key(segment_id), resealed(segment_id, previous=before, **changes))
    return segment_id


def test_two_manifests_after_the_same_one_are_named(bucket):
    other = put_after_first(bucket)
    found = problems(bucket)
    assert {(manifest_key(SECOND), Problem.FORK), (manifest_key(other), Problem.FORK)} <= found


def test_a_manifest_that_the_store_never_committed_is_named_and_harmless(bucket, committed):
    other = put_after_first(bucket)
    result = verify(bucket, committed)
    (finding,) = result.findings
    assert (finding.key, finding.problem) == (manifest_key(other), Problem.LEFTOVER)
    assert f"Delete {manifest_key(other)} and {segment_key(other)}." in finding.reason
    assert (result.is_whole, result.segments, result.letters) == (True, 3, 6)


def test_several_such_manifests_are_all_harmless(bucket, committed):
    others = {put_after_first(bucket, f"{CHAIN}-0000000{n}-0000000{n}") for n in (4, 5)}
    result = verify(bucket, committed)
    assert {(one.key, one.problem) for one in result.findings} == {
        (manifest_key(other), Problem.LEFTOVER) for other in others
    }


def test_a_manifest_that_alone_replaces_a_segment_is_not_harmless(bucket, committed):
    other = put_after_first(bucket, replaces=THIRD)
    result = verify(bucket, committed)
    assert (manifest_key(other), Problem.FORK) in {
        (one.key, one.problem) for one in result.findings
    }
    assert not result.is_whole


def test_of_two_manifests_that_replace_a_segment_the_uncommitted_one_is_harmless(bucket, store):
    forget(bucket, archiver(bucket, store), Wanted(ids=frozenset({"id-000005"})), chain=CHAIN)
    other = put_after_first(bucket, f"{CHAIN}-00000009-00000009", replaces=THIRD)
    assert [(one.key, one.problem) for one in verify(bucket, store.manifests).findings] == [
        (manifest_key(other), Problem.LEFTOVER)
    ]


def test_the_stores_of_one_place_have_chains_of_their_own(bucket):
    archive_all(bucket, FakeStore(lines(3, start=7), chain="ffffffff"))
    result = verify(bucket, {})
    assert result.findings == ()
    assert (result.segments, result.letters) == (4, 9)


def test_the_store_knows_when_the_end_of_a_chain_is_missing(bucket, committed):
    for key in (manifest_key(THIRD), segment_key(THIRD)):
        bucket.delete(key)
    assert problems(bucket) == set()
    (finding,) = verify(bucket, committed).findings
    assert (finding.key, finding.problem) == (manifest_key(THIRD), Problem.MISSING)


def test_the_store_knows_when_the_last_manifest_was_exchanged(bucket, committed):
    bucket.files[manifest_key(THIRD)] = resealed(THIRD)
    found = {(one.key, one.problem) for one in verify(bucket, committed).findings}
    assert (manifest_key(THIRD), Problem.DAMAGED) in found


def test_a_whole_archive_is_what_the_store_has_committed(bucket, committed):
    assert verify(bucket, committed).findings == ()


def test_a_committed_manifest_that_cannot_be_read_is_named_once(bucket, committed):
    bucket.files[manifest_key(THIRD)] += b"x"
    found = [one.key for one in verify(bucket, committed).findings]
    assert found == [manifest_key(THIRD)]
