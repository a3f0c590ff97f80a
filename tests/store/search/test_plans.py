"""The hot queries use their indexes, on a table that is large enough to need them."""

from __future__ import annotations

import contextlib
import re
from datetime import timedelta

import pytest
from sqlalchemy import insert, text
from support.factories import T0, attempt, letter
from support.stores import redriving
from support.stores.statements import plans_of, statements_of

from celery_dlq.model.group import NOT_IGNORED, GroupFilter, Mark, Resolve
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter
from celery_dlq.store.database import schema, tables
from celery_dlq.store.sql import SQLStore

pytestmark = pytest.mark.on_servers

INDEX = "ix_celery_dead_letter_"
LATER = T0 + timedelta(days=9)


@pytest.fixture(scope="module", params=["", "shop"])
def large(session_store, database_url, emptied, renewed, request):
    """A store with 2,000 letters of 60 tasks, most of them closed. If the app has a namespace, another app
    has as many letters in the store."""
    if session_store.database.dialect.name == "mysql":
        pytest.skip("MariaDB's plans are not stable enough to be asserted")
    renewed()
    with contextlib.closing(SQLStore(database_url, namespaces=(request.param,))) as store:
        fill(store, request.param)
        if request.param:
            session_store.letters.save(
                [letter(f"o{at}", attempt(minutes=at)) for at in range(2000)]
            )
        store.database.write(lambda connection: connection.execute(text("ANALYZE")))
        yield store
    emptied()


def fill(store, namespace: str) -> None:
    letters = [
        letter(
            f"{number:05}",
            attempt(minutes=number),
            task=f"shop.task{number % 60}",
            exception_type=f"Error{number % 70}",
            fingerprint=f"{number % 80:016x}",
            route=f"route{number % 90}",
            root_id=f"root{number % 90}",
            namespace=namespace,
        )
        for number in range(2000)
    ]
    store.letters.save(letters)
    closed = Filter(until=T0 + timedelta(minutes=1500))
    store.closing.discard(closed, who="ann", why="", now=T0)
    for past in ("one", "two", "three"):
        skip_all(store, past)
    store.claims.rescue(LATER)  # otherwise the first claim would free theirs, too
    # PostgreSQL 13 takes an empty table for one with a hundred rows.
    held = insert(tables.auto_hold).values(task_id="00001", name="nightly", why="", at=T0)
    store.database.write(lambda connection: connection.execute(held))


def skip_all(store, token: str) -> None:
    """An operation that sent none of its letters."""
    now = T0 + timedelta(days=9)
    held = redriving.claim(store, Filter(), token=token, lease_until=now, limit=2000, now=T0)
    why = {item.task_id: "too old" for item in held.letters}
    assert store.claims.skip(token, token, why, now=T0) == 500


def plans(store, use) -> str:
    """The plans of every query that ``use`` makes of the letters."""
    try:
        asked = statements_of(store, use)
    finally:
        store.claims.rescue(LATER)
    of_letters = (
        (statement, parameters)
        for statement, parameters in asked
        if statement.startswith("SELECT") and "FROM celery_dead_letter" in statement
    )
    return "\n".join(plans_of(store, of_letters))


def claim(store, **filters):
    return lambda: redriving.claim(
        store, Filter(**filters), token="t", lease_until=LATER, limit=10, now=LATER
    )


def find(store, **filters):
    page = store.letters.find(Filter(**filters), limit=10)
    return lambda: store.letters.find(Filter(**filters), limit=10, after=page.next)


@pytest.mark.parametrize(
    ("ask", "filters", "index"),
    [
        (find, {}, "state"),
        (find, {"states": frozenset({State.DISCARDED})}, "state"),
        (find, {"task": "task7"}, "task"),
        (find, {"exception": "Error7"}, "exception_type"),
        (find, {"group": f"{7:016x}"}, "fingerprint"),
        (find, {"route": "route7"}, "route"),
        (find, {"root": "root7"}, "root_id"),
        (claim, {}, "state"),
        (claim, {"task": "task7"}, "task"),
        (claim, {"group": f"{7:016x}"}, "fingerprint"),
        (claim, {"route": "route7"}, "route"),
        (claim, {"root": "root7"}, "root_id"),
    ],
    ids=lambda value: getattr(value, "__name__", None) or str(value),
)
def test_lists_and_claims_read_an_index_in_its_order(large, ask, filters, index):
    plan = plans(large, ask(large, **filters))
    assert INDEX + index in plan
    assert "Seq Scan on celery_dead_letter " not in plan
    assert "SCAN celery_dead_letter\n" not in plan + "\n"


def test_the_newest_letters_are_not_sorted_out_of_all(large):
    if large.database.dialect.name != "postgresql":
        pytest.skip("SQLite's plan does not say how much it sorts")
    plan = plans(large, claim(large))
    assert "Sort" not in plan


def test_a_claim_asks_for_the_sending_of_each_letter_by_its_id(large):
    plan = plans(large, claim(large))
    assert "ix_celery_dead_letter_redrive_state" not in plan
    assert "Seq Scan on celery_dead_letter_redrive" not in plan


def test_vanished_messages_are_looked_for_among_the_awaited_ones_only(large):
    redriving.claim(large, Filter(), token="awaited", lease_until=LATER, limit=40, now=T0)
    large.claims.confirm("awaited", "awaited", {}, now=T0, is_all=True)
    large.database.write(lambda connection: connection.execute(text("ANALYZE")))
    find = large.vanished.find
    plan = plans(large, lambda: find("awaited", sent_before=LATER, limit=10, after=None))
    assert f"{INDEX}redrive_state" in plan
    assert "Seq Scan on celery_dead_letter_redrive" not in plan
    assert "Seq Scan on celery_dead_letter " not in plan


def test_copies_are_looked_up_by_their_letters(large):
    plan = plans(large, lambda: large.sendings.accept([("00012", 1, "t"), ("00013", 1, "t")]))
    assert "ix_celery_dead_letter_redrive_task_id" in plan


def test_awaited_sendings_are_looked_up_by_their_letters(sqlite_store):
    """Without statistics, as in a store that was never analyzed, SQLite chose the index of the states."""
    schema.upgrade(sqlite_store.database)
    plan = plans(sqlite_store, lambda: sqlite_store.sendings.count_awaited(Filter()))
    assert f"{INDEX}redrive_task_id" in plan
    assert f"{INDEX}redrive_state" not in plan


def test_ids_are_looked_up_by_prefix_in_the_index(large):
    plan = plans(large, lambda: large.letters.match("0012"))
    assert "uq_celery_dead_letter_task_id" in plan or "task_id>?" in plan


def test_the_store_at_a_glance_reads_letters_from_the_index_only(large):
    if large.database.dialect.name != "sqlite":
        pytest.skip("PostgreSQL reads the index only where a vacuum has been")
    plan = plans(large, lambda: large.monitoring.stats(T0))
    assert plan.count(f"USING COVERING INDEX {INDEX}state") >= 2


def test_queries_of_monitoring_scan_no_letters(large):
    plan = plans(large, large.monitoring.measures)
    assert INDEX + "state" in plan
    assert "Seq Scan on celery_dead_letter " not in plan
    assert "SCAN celery_dead_letter\n" not in plan + "\n"


def test_the_pages_of_groups_scan_no_letters(large):
    now = T0 + timedelta(days=2)
    fingerprint = f"{7:016x}"
    marked = GroupFilter(marks=frozenset({Mark.NEW, Mark.REGRESSED}))

    def look():
        large.monitoring.stats(now)
        large.groups.find(Filter(), now=now, which=NOT_IGNORED)
        large.groups.find(Filter(), now=now, which=marked)
        large.groups.get(fingerprint, now=now)
        large.groups.trends([fingerprint], now=now, hours=168)
        large.letters.find(Filter(group=fingerprint), limit=10)
        large.groups.triage(fingerprint, Resolve(release="2"), who="ann", now=now)

    plan = plans(large, look)
    assert "Seq Scan on celery_dead_letter " not in plan
    assert re.findall(r"SCAN celery_dead_letter\b", plan) == []
    assert INDEX + "fingerprint" in plan
    assert INDEX + "state" in plan
