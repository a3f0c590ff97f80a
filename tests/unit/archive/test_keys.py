"""The names of the archive's files."""

from __future__ import annotations

import pytest
from support.stores.archives import CHAIN

from celery_dlq.archive.files import manifest_key, part_of, segment_key, segment_of

ID = f"{CHAIN}-00000001-00000002"


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
