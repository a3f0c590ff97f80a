"""Searches for expired letters, and deletions, read the tables by their indexes, on each database."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import partial

import pytest
from sqlalchemy import insert, text
from support.factories import T0, attempt, letter
from support.stores.statements import plans_of, statements_of

from celery_dlq.model.states import State
from celery_dlq.store.archiving import row_of
from celery_dlq.store.base import Expiry, Filter, LetterKey, OngoingAct
from celery_dlq.store.database import tables
from celery_dlq.store.letters import acts

pytestmark = pytest.mark.on_servers

LETTERS = 2_000
LATER = T0 + timedelta(days=9)
ACT = OngoingAct(who="retention", act="expire", detail={}, at=LATER)

#: The tables that are as large as the store has letters.
LARGE = (
    tables.letter, tables.content, tables.attempt, tables.sending, tables.change, tables.handling,
    tables.auto_hold,
)  # fmt: skip

#: How each database says that it reads a table, or an index, from one end to the other.
FULL_SCANS = {
    "sqlite": r"SCAN (celery\w+)",
    "postgresql": r"Seq Scan on (celery\w+)",
    "mysql": r"'(celery\w+)', (?:None, )?'(?:ALL|index)'",
}

EXPIRIES = (
    Expiry(where=Filter(task="task7"), before=None),
    Expiry(where=Filter(), before=LATER),
)


def minutes(number):
    return T0 + timedelta(minutes=number)


@pytest.fixture(scope="module")
def large(emptied, renewed):
    """A store with 2,000 letters of 60 tasks, most of them closed, and rows of each table for all of them."""
    store = renewed()
    ids = [f"{number:05}" for number in range(LETTERS)]
    store.letters.save(
        [
            letter(
                name,
                attempt(minutes=number),
                task=f"shop.task{number % 60}",
                fingerprint=f"{number % 80:016x}",
            )
            for number, name in enumerate(ids)
        ]
    )
    closed = Filter(until=minutes(LETTERS - 500))
    store.closing.discard(closed, who="ann", why="", now=T0)
    store.database.write(lambda connection: fill(connection, ids))
    yield store
    emptied()


def fill(connection, ids):
    """Rows as repairs, handlers and redrives leave them, and statistics."""
    for table in LARGE[3:]:
        rows = [row_of(table, {"task_id": name}) for name in ids]
        connection.execute(insert(table), rows)
    if connection.dialect.name == "mysql":
        for table in LARGE:
            connection.execute(text(f"ANALYZE TABLE {table.name}")).all()
    else:
        connection.execute(text("ANALYZE"))


def scanned(store, use) -> set[str]:
    """The large tables that ``use`` reads from one end to the other."""
    asked = [one for one in statements_of(store, use) if re.match("SELECT|UPDATE|DELETE", one[0])]
    assert asked
    plans = "\n".join(plans_of(store, asked))
    found = re.findall(FULL_SCANS[store.database.dialect.name], plans)
    return set(found) & {table.name for table in LARGE}


def keys(store, ids):
    found = map(store.letters.get, ids)
    return [
        LetterKey(task_id=one.task_id, last_failed_at=one.last_failed_at, closed_at=one.closed_at)
        for one in found
    ]


@pytest.mark.parametrize("name", ["find", "count"])
def test_a_step_through_the_closed_letters_scans_no_table(large, name):
    read = large.expiring.find if name == "find" else partial(large.expiring.count, now=LATER)
    first = read(EXPIRIES, None, 50)
    after = first.next if name == "find" else first[1]
    assert scanned(large, lambda: read(EXPIRIES, None, 50)) == set()
    assert scanned(large, lambda: read(EXPIRIES, after, 50)) == set()


def test_a_deletion_of_expired_letters_scans_no_table(large):
    these = keys(large, ["00100", "00101", "00102"])
    lease = large.leases.take("retention", holder="me", seconds=600)

    def delete():
        assert large.deleting.delete_closed(these, lease, ACT)[0] == 3

    assert scanned(large, delete) == set()


@pytest.mark.parametrize(
    ("wanted", "deleted"),
    [
        (Filter(ids=("00200", "00201")), 2),
        (Filter(until=minutes(3)), 3),
        (Filter(task="task7", since=minutes(300), until=minutes(450)), 3),
        (Filter(ids=("01999",), states=frozenset({State.DEAD})), 1),
    ],
    ids=str,
)
def test_a_deletion_by_a_person_scans_no_table(large, wanted, deleted):
    def delete():
        assert large.deleting.delete(wanted, who="ann", why="", now=LATER) == deleted

    assert scanned(large, delete) == set()


def test_the_newest_of_the_closed_letters_is_read_at_the_end_of_the_index(large, monkeypatch):
    if large.database.dialect.name != "postgresql":
        pytest.skip("only PostgreSQL's plan says that it reads one entry")
    monkeypatch.setattr(acts.Act, "change_chunk", lambda *_args, **_options: (0, None))
    asked = statements_of(
        large, lambda: large.deleting.delete(Filter(), who="ann", why="", now=LATER)
    )
    plan = "\n".join(plans_of(large, (one for one in asked if "max(" in one[0])))
    assert "Limit" in plan
    assert "Index Only Scan Backward" in plan
