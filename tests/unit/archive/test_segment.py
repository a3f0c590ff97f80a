"""Segments: lines in, the same lines out."""

from __future__ import annotations

import io
import json

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from support.stores.archives import NOW, a_line, ids_of, keys_of, lines, segment_id

from celery_dlq.archive.segment import (
    encode_line,
    facts_of,
    letter_key,
    pack,
    segment_key,
    segment_of,
    unpack,
)
from celery_dlq.errors import ArchiveDamaged

KEY = "segments/x.jsonl.zst"

any_text = st.text(st.characters(exclude_categories=())) | st.just("\ud800")
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=10,
)  # fmt: skip


@st.composite
def any_lines(draw):
    line = a_line(task_id=draw(any_text), task=draw(any_text))
    line["letter"]["message"] = draw(any_text)
    line["content"] = draw(st.dictionaries(any_text, values, max_size=4))
    line["audit"] = draw(st.lists(values, max_size=3))
    return line


@given(st.lists(any_lines(), min_size=1, max_size=20))
def test_any_lines_come_back_as_they_were(some):
    packed = pack(some)
    assert list(unpack(packed.data, KEY)) == some
    assert facts_of(packed.data, KEY) == packed.facts
    assert packed.facts.letters == len(some)


def test_without_lines_there_is_no_segment():
    assert pack([]) is None
    assert facts_of(zstandard.compress(b""), KEY) is None


def test_a_segment_ends_at_its_size_before_compression():
    packed = pack(lines(3), max_size=2 * len(encode_line(a_line(1))))
    assert packed.keys == tuple(keys_of(lines(2)))
    assert packed.facts.letters == 2


def test_a_letter_above_the_size_has_a_segment_of_its_own():
    assert pack(lines(2), max_size=10).facts.letters == 1


def test_the_facts_describe_the_letters():
    some = [a_line(3), a_line(1), a_line(2)]
    facts = pack(some).facts
    assert facts.first_failed_at.isoformat() == some[1]["letter"]["last_failed_at"]
    assert facts.last_failed_at.isoformat() == some[0]["letter"]["last_failed_at"]


def test_other_programs_read_a_segment():
    data = pack(lines(2)).data
    text = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data)).read().decode()
    assert [json.loads(line)["letter"]["task_id"] for line in text.splitlines()] == ids_of(lines(2))


def test_a_line_names_the_letter_as_the_store_knows_it():
    key = letter_key(a_line(7, failed_at=NOW))
    assert (key.task_id, key.last_failed_at) == ("id-000007", NOW)


def test_times_without_a_zone_are_utc():
    line = a_line(1)
    line["letter"]["last_failed_at"] = "2026-11-01T12:00:00"
    assert letter_key(line).last_failed_at == NOW


def test_a_line_of_another_format_is_refused():
    with pytest.raises(ArchiveDamaged, match="its format is 2, and this release reads 1"):
        list(unpack(pack([{**a_line(1), "format": 2}]).data, KEY))


@pytest.mark.parametrize("content", [b"{}\n", b"[]\n", b"no json\n", b"\n", b'{"format":"x"}\n'])
def test_a_line_that_is_not_one_is_named(content):
    data = zstandard.compress(content)
    with pytest.raises(ArchiveDamaged, match=r"Line 1 of segments/x\.jsonl\.zst"):
        list(unpack(data, KEY))


def test_a_line_without_a_letter_is_named():
    data = zstandard.compress(encode_line(a_line(1)) + b'{"format":1}\n')
    with pytest.raises(ArchiveDamaged, match="Line 2 of"):
        facts_of(data, KEY)


def test_bytes_that_zstd_does_not_know_are_named():
    with pytest.raises(ArchiveDamaged, match="decompressed"):
        list(unpack(b"nothing that was compressed", KEY))


@pytest.mark.parametrize("end", ["", ".part"])
def test_a_file_belongs_to_its_segment(end):
    assert segment_of(segment_key(segment_id(1)) + end) == segment_id(1)


@pytest.mark.parametrize("key", [
    "segments/notes.txt", f"segments/deep/{segment_id(1)}.jsonl.zst", f"segments/{segment_id(1)}.json",
    f"{segment_key(segment_id(1))}\n", segment_key(segment_id(171).upper()),
])  # fmt: skip
def test_other_files_belong_to_none(key):
    assert segment_of(key) is None
