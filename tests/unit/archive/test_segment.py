"""Segments: lines in, the same lines out."""

from __future__ import annotations

import io
import json

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from support.stores.archives import NOW, a_line, ids_of, lines

from celery_dlq.archive.segment import (
    SegmentWriter,
    encode_line,
    facts_of,
    letter_key,
    read_lines,
    write_segment,
)
from celery_dlq.errors import ArchiveDamaged, ArchiveNewer

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


@given(st.lists(any_lines(), max_size=20))
def test_any_lines_come_back_as_they_were(some):
    data, facts = write_segment(some)
    assert list(read_lines(data, KEY)) == some
    assert facts_of(data, KEY) == facts
    assert facts.letters == len(some)


def test_a_segment_ends_at_its_number_of_letters():
    writer = SegmentWriter(max_letters=3)
    assert [writer.add(line) for line in lines(4)] == [True, True, True, False]
    data, facts = writer.finish()
    assert facts.letters == len(list(read_lines(data, KEY))) == 3


def test_a_segment_ends_at_its_size_before_compression():
    size = len(encode_line(a_line(1)))
    writer = SegmentWriter(max_size=2 * size)
    assert [writer.add(line) for line in lines(3)] == [True, True, False]
    assert writer.finish()[1].raw_size == 2 * size


def test_a_letter_above_the_size_has_a_segment_of_its_own():
    writer = SegmentWriter(max_size=10)
    assert writer.add(a_line(1))
    assert not writer.add(a_line(2))


def test_the_facts_describe_the_letters():
    some = [a_line(3), a_line(1, task="shop.ship"), a_line(2)]
    _data, facts = write_segment(some)
    assert (facts.ids.first, facts.ids.last) == ("id-000001", "id-000003")
    assert facts.tasks == {"shop.charge": 2, "shop.ship": 1}
    assert facts.failed.from_ == some[1]["letter"]["last_failed_at"]
    assert facts.failed.until == some[0]["letter"]["last_failed_at"]
    assert facts.schema == "0015"


def test_the_order_of_lines_does_not_change_the_hash_of_the_ids():
    one, other = lines(3), lines(3)[::-1]
    assert write_segment(one)[1].ids == write_segment(other)[1].ids


def test_other_programs_read_a_segment():
    data, _facts = write_segment(lines(2))
    text = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data)).read().decode()
    assert [json.loads(line)["letter"]["task_id"] for line in text.splitlines()] == ids_of(lines(2))


def test_a_line_names_the_letter_as_the_store_knows_it():
    key = letter_key(a_line(7, failed_at=NOW))
    assert (key.task_id, key.last_failed_at) == ("id-000007", NOW)


def test_times_without_a_zone_are_utc():
    line = a_line(1)
    line["letter"]["last_failed_at"] = "2026-11-01T12:00:00"
    assert letter_key(line).last_failed_at == NOW


def test_a_line_of_a_newer_format_is_refused():
    data, _facts = write_segment([{**a_line(1), "format": 2}])
    with pytest.raises(ArchiveNewer, match="upgrade"):
        list(read_lines(data, KEY))


@pytest.mark.parametrize("content", [b"{}\n", b"[]\n", b"no json\n", b"\n", b'{"format":"x"}\n'])
def test_a_line_that_is_not_one_is_named(content):
    data = zstandard.compress(content)
    with pytest.raises(ArchiveDamaged, match=r"Line 1 of segments/x\.jsonl\.zst"):
        list(read_lines(data, KEY))


def test_a_line_without_a_letter_is_named():
    data = zstandard.compress(encode_line(a_line(1)) + b'{"format":1}\n')
    with pytest.raises(ArchiveDamaged, match="Line 2 of"):
        facts_of(data, KEY)


def test_bytes_that_zstd_does_not_know_are_named():
    with pytest.raises(ArchiveDamaged, match="decompressed"):
        list(read_lines(b"nothing that was compressed", KEY))
