"""The page with questions about an incident: each is asked of an export, and answered as the page says."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path

import duckdb
import pytest
from support.stores.archives import FakeStore, MemoryBucket, a_line, archive_all, search

from celery_dlq.archive.reading import export

PAGE = Path(__file__).parents[3] / "docs/howto/ask-archived-letters.md"
SECTIONS = re.split(r"^## (.+)\n", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
QUESTIONS = {
    heading: sql
    for heading, text in zip(SECTIONS[1::2], SECTIONS[2::2], strict=True)
    for sql in re.findall(r"^```sql\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
}

TEN = datetime(2026, 10, 15, 10, tzinfo=timezone.utc)
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


def closed(number, at, customer, *, task="shop.charge", **changes):
    """A letter whose first attempt failed at ``at``, and its last one two minutes later."""
    content = {"args": json.dumps([{"customer": customer}])}
    line = a_line(number, task=task, failed_at=at + 2 * MINUTE, **content)
    line["letter"] |= {"first_failed_at": at.isoformat(), **changes}
    return line


def incident():
    """Four letters of a new cause within ten minutes, among those of a cause that each day has."""
    new = {
        "release": "2.4",
        "fingerprint": "new",
        "exception_type": "ConnectionError",
        "redrive_count": 3,
    }
    usual = {"release": "2.3", "fingerprint": "old", "exception_type": "KeyError"}
    given_up = {"state": "discarded", "closed_by": "ann", "closed_reason": "paid by hand"}
    yield from (closed(number, TEN + number * MINUTE, 17, **new) for number in (1, 2, 3))
    yield closed(4, TEN + 6 * MINUTE, 18, **new, **given_up)
    yield from (
        closed(10 + day, TEN - day * DAY, 19, task="shop.ship", **usual) for day in range(8)
    )


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """Answers the question under a heading, as rows."""
    folder = tmp_path_factory.mktemp("export")
    bucket, store = MemoryBucket(), FakeStore(incident())
    archive_all(bucket, store, together=5)
    for name, contents in (("letters", False), ("whole", True)):
        export(search(bucket, store), folder / f"{name}.parquet", opened=dict if contents else None)

    def ask(title):
        with duckdb.connect() as connection:
            connection.execute(f"set timezone = 'UTC'; set file_search_path = '{folder}'")
            answer = connection.sql(QUESTIONS[title])
            # As text, because times with a zone need one more package to become Python's.
            texts = ", ".join(f'cast("{name}" as varchar)' for name in answer.columns)
            return answer.project(texts).fetchall()

    return ask


def test_the_page_has_five_questions():
    assert len(QUESTIONS) == 5


def test_the_incident_begins_and_ends(ask):
    assert ask("When did it begin, and when did it end?") == [
        ("2026-10-15 10:00:00+00", "4"),
        ("2026-10-15 10:05:00+00", "1"),
    ]


def test_only_the_new_failures_are_unusual(ask):
    assert ask("Which failures were unusual?") == [("shop.charge", "ConnectionError", "4", "0.0")]


def test_the_new_cause_began_with_a_release(ask):
    assert ask("Did it begin with a release?") == [
        ("new", "shop.charge", "ConnectionError", "2.4", "2026-10-15 10:01:00+00", "4", "1")
    ]


def test_the_ends_are_told_apart(ask):
    took = "01:02:00"
    answer = ask("How did it end, and how long did that take?")
    assert answer[0] == ("shop.charge", "resolved", "a successful run", "3", took, took, "3.0")
    assert sorted(answer[1:]) == [
        ("shop.charge", "discarded", "ann", "1", took, took, "3.0"),
        ("shop.ship", "resolved", "a successful run", "1", took, took, "1.0"),
    ]


def test_the_customers_are_found(ask):
    assert ask("Which customers were affected?") == [("18", "1", "1"), ("17", "3", "0")]
