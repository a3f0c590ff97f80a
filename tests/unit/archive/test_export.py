"""The archive as a Parquet file, as other programs read it."""

from __future__ import annotations

from datetime import timedelta

import duckdb
import pyarrow
import pytest
from pyarrow import parquet
from support.stores.archives import (
    NOW,
    FakeStore,
    MemoryBucket,
    a_line,
    archive_all,
    failing,
    ids_of,
    lines,
    search,
)

from celery_dlq.archive.reading import export, need_pyarrow
from celery_dlq.errors import ArchiveError, MissingExtra


@pytest.fixture
def store():
    return FakeStore([*lines(5), a_line(6, task="shop.ship")])


@pytest.fixture
def target(tmp_path):
    return tmp_path / "letters.parquet"


def test_every_letter_is_a_row(bucket, store, target):
    result = export(search(bucket, store), target)
    assert (result.letters, result.findings) == (6, ())
    assert sorted(parquet.read_table(target)["task_id"].to_pylist()) == ids_of(lines(6))


def test_each_segment_is_a_row_group(bucket, store, target):
    export(search(bucket, store), target)
    assert parquet.ParquetFile(target).num_row_groups == 3


def test_times_and_numbers_have_types(bucket, store, target):
    export(search(bucket, store), target)
    schema = parquet.read_schema(target)
    assert schema.field("closed_at").type == pyarrow.timestamp("us", tz="UTC")
    assert schema.field("attempt_count").type == pyarrow.int32()


def test_duckdb_reads_the_file(bucket, store, target):
    export(search(bucket, store), target)
    first = (NOW - timedelta(days=400) + timedelta(minutes=1)).isoformat()
    counted = duckdb.execute(
        "select task, count(*), sum(attempt_count), bool_or(last_failed_at = ?::timestamptz) "
        "from read_parquet(?) group by task order by task",
        [first, str(target)],
    ).fetchall()
    assert counted == [("shop.charge", 5, 25, True), ("shop.ship", 1, 5, False)]


def test_messages_are_left_out_unless_they_are_asked_for(bucket, store, target):
    export(search(bucket, store), target)
    assert {"body", "args", "traceback", "message"}.isdisjoint(parquet.read_schema(target).names)
    export(search(bucket, store), target, opened=dict)
    table = parquet.read_table(target)
    assert set(table["body"].to_pylist()) == {b"[]"}
    assert set(table["message"].to_pylist()) == {"refused"}


def test_only_the_wanted_letters_are_written(bucket, store, target):
    wanted = search(bucket, store, where=lambda line: line["letter"]["task"] == "shop.ship")
    assert export(wanted, target).letters == 1


def test_fields_that_an_older_release_did_not_have_are_null(target):
    line = a_line(1)
    del line["letter"]["route"]
    bucket, store = MemoryBucket(), FakeStore([line])
    archive_all(bucket, store)
    export(search(bucket, store), target)
    assert parquet.read_table(target)["route"].to_pylist() == [None]


def test_any_text_can_be_written(target):
    bucket, store = MemoryBucket(), FakeStore([a_line(1, task="a\ud800b", body="no base64!")])
    archive_all(bucket, store)
    export(search(bucket, store), target, opened=dict)
    table = parquet.read_table(target)
    assert table["task"].to_pylist() == ["a\\ud800b"]
    assert table["body"].to_pylist() == [None]


def test_a_damaged_segment_is_named_and_the_others_are_written(bucket, store, target):
    key = bucket.list("segments")[1]
    bucket.files[key] = b"x"
    result = export(search(bucket, store), target)
    assert result.letters == 4
    assert [finding.key for finding in result.findings] == [key]


def test_no_file_appears_if_the_archive_fails(bucket, store, target):
    wanted = search(bucket, store)
    bucket.read = failing
    with pytest.raises(ArchiveError, match="away"):
        export(wanted, target)
    assert list(target.parent.iterdir()) == []


def test_a_file_that_cannot_be_written_is_named(bucket, store, target):
    with pytest.raises(ArchiveError, match="choose another file"):
        export(search(bucket, store), target.parent / "gone" / "letters.parquet")


def test_without_segments_the_file_has_columns_and_no_rows(target):
    assert export(search(MemoryBucket(), FakeStore()), target).letters == 0
    assert parquet.read_table(target).num_rows == 0


def test_an_archive_without_a_segment_file_still_has_its_others(bucket, store, target):
    bucket.delete(bucket.list("segments")[0])
    assert export(search(bucket, store), target).letters == 4


def test_the_extra_is_named_if_pyarrow_is_missing(monkeypatch):
    monkeypatch.setattr("celery_dlq.archive.reading.find_spec", lambda _name: None)
    with pytest.raises(MissingExtra, match=r"celery-dlq\[parquet\]"):
        need_pyarrow()
