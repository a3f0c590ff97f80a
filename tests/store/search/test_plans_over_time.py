"""Charts read indexes and rollups, on a table that is large enough to need them."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from sqlalchemy import select, text
from support.factories import T0, attempt, letter
from support.stores.statements import plans_of, statements_of

from celery_dlq.store.database import tables

pytestmark = pytest.mark.on_servers

CAUSE = f"{7:016x}"


def at(minutes: float):
    return T0 + timedelta(minutes=minutes)


@pytest.fixture(scope="module")
def large(session_store, emptied, renewed):
    """A store with 3,000 letters of 60 groups."""
    store = renewed()
    letters = [
        letter(
            f"{n:05}", attempt(minutes=n), fingerprint=f"{n % 60:016x}", task=f"shop.task{n % 60}"
        )
        for n in range(3_000)
    ]
    store.letters.save(letters)
    is_mysql = store.database.dialect.name == "mysql"
    analyze = "ANALYZE TABLE celery_dead_letter" if is_mysql else "ANALYZE"
    store.database.write(lambda connection: connection.execute(text(analyze)).close())
    yield store
    emptied()


def plan(store, use) -> str:
    asked = [one for one in statements_of(store, use) if one[0].startswith("SELECT")]
    assert asked
    return "\n".join(plans_of(store, asked))


def scans(plan: str) -> list[str]:
    """The tables of letters that a plan reads as a whole."""
    patterns = (
        r"Seq Scan on celery_dead_letter ",
        r"\bSCAN celery_dead_letter'",
        r"'celery_dead_letter', (?:None, )?'(?:ALL|index)'",
    )
    return [found for pattern in patterns for found in re.findall(pattern, plan)]


def test_a_scan_would_be_noticed(large):
    wanted = select(tables.letter.c.message).where(tables.letter.c.worker == "x")
    assert scans(plan(large, lambda: large.database.read(lambda db: db.execute(wanted).close())))


def test_the_releases_of_a_group_are_read_from_its_index(large):
    found = plan(large, lambda: large.over_time.releases(CAUSE))
    assert scans(found) == []
    assert "ix_celery_dead_letter_fingerprint" in found


def test_arrivals_are_read_from_the_rollups(large):
    def look():
        large.over_time.by_minute(since=at(2_960))
        large.over_time.by_hour(since=at(2_960))

    found = plan(large, look)
    assert scans(found) == []
    assert "celery_dead_letter_arrival" in found
    assert "celery_dead_letter_trend" in found
