"""Manifests: their bytes, and what is said about changed ones."""

from __future__ import annotations

import hashlib
import json

import pytest
from support.stores.archives import CHAIN, NOW, lines, resealed

from celery_dlq.archive.files import (
    decode_manifest,
    encode_manifest,
    make_manifest,
    manifest_key,
    part_of,
    segment_key,
    segment_of,
)
from celery_dlq.archive.segment import write_segment
from celery_dlq.errors import ArchiveDamaged, ArchiveNewer
from celery_dlq.store.base import Segment

ID = f"{CHAIN}-00000002-00000002"
KEY = f"manifests/{ID}.json"
SEGMENT = Segment(
    id=ID, chain=CHAIN, number=2, previous_id=f"{CHAIN}-00000001-00000001", previous="ab" * 32,
    committed=False,
)  # fmt: skip


@pytest.fixture
def manifest():
    return make_manifest(SEGMENT, write_segment(lines(3))[1], now=NOW)


def test_a_manifest_comes_back_as_it_was(manifest):
    data = encode_manifest(manifest)
    stored = decode_manifest(data, KEY)
    assert stored.manifest == manifest
    assert stored.sha256 == hashlib.sha256(data).hexdigest()
    assert stored.key == KEY


def test_the_first_manifest_of_a_chain_has_none_before_it():
    first = Segment(**{**vars(SEGMENT), "previous_id": "", "previous": ""})
    made = make_manifest(first, write_segment(lines(1))[1], now=NOW)
    assert made.previous is None
    assert decode_manifest(encode_manifest(made), KEY).manifest == made


def test_the_manifest_names_the_segment_and_its_bytes(manifest):
    fields = json.loads(encode_manifest(manifest))
    assert fields["key"] == f"segments/{ID}.jsonl.zst"
    assert fields["letters"] == 3
    assert fields["previous"] == {"segment": SEGMENT.previous_id, "sha256": SEGMENT.previous}
    assert fields["ids"]["first"] == "id-000001"


def test_one_flipped_bit_at_any_place_is_noticed(manifest):
    data = encode_manifest(manifest)
    for offset in range(len(data)):
        for bit in (0, 5, 7):
            changed = bytearray(data)
            changed[offset] ^= 1 << bit
            with pytest.raises(ArchiveDamaged, match=ID):
                decode_manifest(bytes(changed), KEY)


def test_a_cut_manifest_is_noticed(manifest):
    data = encode_manifest(manifest)
    for length in range(len(data)):
        with pytest.raises(ArchiveDamaged):
            decode_manifest(data[:length], KEY)


def test_the_manifest_of_another_segment_is_noticed(manifest):
    key = f"manifests/{SEGMENT.previous_id}.json"
    with pytest.raises(ArchiveDamaged, match=f"it is the manifest of {ID}"):
        decode_manifest(encode_manifest(manifest), key)


def test_a_manifest_of_a_newer_format_is_left_alone():
    with pytest.raises(ArchiveNewer, match="left alone"):
        decode_manifest(resealed(ID, format=2, unheard_of=True), KEY)


@pytest.mark.parametrize(
    "changes", [{"ids": {}}, {"closed": None}, {"made_at": "soon"}, {"key": "x"}]
)
def test_a_manifest_with_other_fields_is_damaged(changes):
    with pytest.raises(ArchiveDamaged):
        decode_manifest(resealed(ID, **changes), KEY)


@pytest.mark.parametrize("key", [segment_key, manifest_key])
def test_a_file_belongs_to_its_segment(key):
    assert segment_of(key(ID)) == ID
    assert part_of(key(ID)) is None


@pytest.mark.parametrize("key", [
    "segments/notes.txt", f"segments/deep/{ID}.jsonl.zst", f"segments/{ID}.json",
    f"segments/{ID}.jsonl.zst\n",
    f"segments/{ID.upper()}.jsonl.zst", f"{segment_key(ID)}.0a1b2c3d.part",
])  # fmt: skip
def test_other_files_belong_to_none(key):
    assert segment_of(key) is None


def test_a_part_of_a_file_is_known():
    assert part_of(f"{segment_key(ID)}.0a1b2c3d.part") == ID
    assert part_of(f"{manifest_key(ID)}.0a1b2c3d.part") == ID
