"""The hot queries use their indexes, on a table large enough for the planner to care."""

from __future__ import annotations

from datetime import timedelta

import pytest
from factories import T0, attempt, letter
from sqlalchemy import event, text

from celery_dlq.states import State
from celery_dlq.store.base import Filter

INDEX = "ix_celery_dead_letter_"


@pytest.fixture(scope="module")
def large(session_store, emptied):
    """A store with 2,000 letters of 60 tasks, most of them closed."""
    if session_store.database.dialect == "mysql":
        pytest.skip("MariaDB's plans are not stable enough to be asserted")
    store = emptied()
    letters = [
        letter(
            f"{number:05}",
            attempt(minutes=number),
            task=f"shop.task{number % 60}",
            exception_type=f"Error{number % 70}",
            fingerprint=f"{number % 80:016x}",
        )
        for number in range(2000)
    ]
    store.save(letters)
    closed = Filter(until=T0 + timedelta(minutes=1500))
    store.discard(closed, who="ann", why="", now=T0)
    store.database.write(lambda connection: connection.execute(text("ANALYZE")))
    yield store
    emptied()


def plans(store, use) -> str:
    """The plans of every query that ``use`` makes of the letters."""
    statements: list[tuple[str, object]] = []

    def note(connection, cursor, statement, parameters, context, executemany):
        if statement.startswith("SELECT") and "FROM celery_dead_letter" in statement:
            statements.append((statement, parameters))

    event.listen(store.database.engine, "before_cursor_execute", note)
    try:
        use()
    finally:
        event.remove(store.database.engine, "before_cursor_execute", note)
    explain = "EXPLAIN QUERY PLAN" if store.database.dialect == "sqlite" else "EXPLAIN"
    return store.database.read(
        lambda connection: "\n".join(
            str(row)
            for statement, parameters in statements
            for row in connection.exec_driver_sql(f"{explain} {statement}", parameters)
        )
    )


def claim(store, **filters):
    now = T0 + timedelta(days=9)

    def take_and_free():
        store.claim(Filter(**filters), token="t", lease_until=now, limit=10, now=now)
        store.rescue(now)

    return take_and_free


def find(store, **filters):
    page = store.find(Filter(**filters), limit=10)
    return lambda: store.find(Filter(**filters), limit=10, after=page.next)


@pytest.mark.parametrize(
    ("ask", "filters", "index"),
    [
        (find, {}, "state"),
        (find, {"states": frozenset({State.DISCARDED})}, "state"),
        (find, {"task": "task7"}, "task"),
        (find, {"exception": "Error7"}, "exception_type"),
        (find, {"group": f"{7:016x}"}, "fingerprint"),
        (claim, {}, "state"),
        (claim, {"task": "task7"}, "task"),
        (claim, {"group": f"{7:016x}"}, "fingerprint"),
    ],
    ids=lambda value: getattr(value, "__name__", None) or str(value),
)
def test_lists_and_claims_read_an_index_in_its_order(large, ask, filters, index):
    plan = plans(large, ask(large, **filters))
    assert INDEX + index in plan
    assert "Seq Scan on celery_dead_letter " not in plan
    assert "SCAN celery_dead_letter\n" not in plan + "\n"


def test_the_newest_letters_are_not_sorted_out_of_all(large):
    if large.database.dialect != "postgresql":
        pytest.skip("SQLite's plan does not say how much it sorts")
    plan = plans(large, claim(large))
    assert "Sort" not in plan


def test_ids_are_looked_up_by_prefix_in_the_index(large):
    plan = plans(large, lambda: large.match_ids("0012"))
    assert "uq_celery_dead_letter_task_id" in plan or "USING COVERING INDEX" in plan


def test_counting_by_reason_reads_the_index_only(large):
    if large.database.dialect != "sqlite":
        pytest.skip("PostgreSQL reads the index only where a vacuum has been")
    plan = plans(large, lambda: large.stats(T0))
    assert plan.count(f"USING COVERING INDEX {INDEX}state") >= 3
