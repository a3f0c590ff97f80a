"""Archived letters as they are shown."""

from __future__ import annotations

import pytest
from support.stores.archives import FakeStore, MemoryBucket, a_line, archive_all, search

from celery_dlq.base.redact import Redactor
from celery_dlq.view.records import archived_record, segment_record

SECRET = "hunter2"


def shown(line):
    bucket, store = MemoryBucket(), FakeStore([line])
    archive_all(bucket, store)
    (found,) = search(bucket, store)
    return archived_record(found, Redactor())


@pytest.mark.parametrize("place", ["letter", "content"])
@pytest.mark.parametrize("text", [
    f'{{"password": "{SECRET}"}}', f'[["api_key", "{SECRET}"]]', f"postgresql://user:{SECRET}@host/db",
])  # fmt: skip
def test_a_secret_in_any_text_is_hidden(place, text):
    line = a_line(1)
    line[place]["evidence"] = text
    assert SECRET not in str(shown(line))


@pytest.mark.parametrize("name", ["attempts", "redrives", "changes", "handlings", "audit"])
def test_a_secret_in_the_history_is_hidden(name):
    line = {
        **a_line(1),
        name: [{"detail": f'{{"token": "{SECRET}"}}', "headers": f'{{"pwd":"{SECRET}"}}'}],
    }
    assert SECRET not in str(shown(line))


def test_a_secret_in_a_traceback_is_hidden():
    record = shown(a_line(1, traceback=f"Traceback\n  password = '{SECRET}'\nValueError: x"))
    assert SECRET not in record["content"]["traceback"]
    assert "ValueError: x" in record["content"]["traceback"]


def test_the_body_is_shown_as_it_is():
    assert shown(a_line(1, body="W10="))["content"]["body"] == "W10="


def test_a_message_that_looks_like_json_stays_a_text():
    line = a_line(1)
    line["letter"]["message"] = "[1]"
    assert shown(line)["letter"]["message"] == "[1]"


def test_arguments_are_shown_as_values():
    assert shown(a_line(1, args="[1, 2]"))["content"]["args"] == [1, 2]


def test_a_segment_is_described_by_its_row():
    (segment,) = archive_all(MemoryBucket(), FakeStore([a_line(1)]))
    record = segment_record(segment)
    assert (record["segment"], record["state"], record["letters"]) == (segment.id, "own", 1)
    assert record["first_failed_at"] == a_line(1)["letter"]["last_failed_at"]
