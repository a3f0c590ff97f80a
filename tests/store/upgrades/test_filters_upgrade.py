"""Schema 0019 has an index of canvases, and parked retries have the columns by which they are filtered."""

from __future__ import annotations

import pytest
from sqlalchemy import inspect, text
from support.factories import T0, letter, parking
from support.stores import filter_columns
from support.stores.earlier_schema import run_script

from celery_dlq.model.letter import Explanation
from celery_dlq.model.states import State, Verdict
from celery_dlq.store.base import Filter
from celery_dlq.store.database import schema, tables

PARKED = frozenset({State.PARKED})

FILTERS = (
    {"release": "1.0\x00"}, {"tag": 'a"b'}, {"root": "p"}, {"verdict": Verdict.TRANSIENT}, {"rule": "http."},
)  # fmt: skip


def waiting(task_id: str, **changes):
    judged = Explanation(verdict=Verdict.TRANSIENT, rule="http.status")
    return parking(task_id, 60, **{"explanation": judged, "root_id": None, **changes})


def go_back(store, **left) -> None:
    filter_columns.remove(store, **left)
    version = text(f"UPDATE {tables.VERSION_TABLE} SET version_num = '0018'")
    store.database.write(lambda one: one.execute(version))


@pytest.fixture
def stored(bare):
    """The schema of today, with a letter, a retry that waits, and one that a worker has run."""
    schema.upgrade(bare.database)
    bare.letters.save([letter("a")])
    first = waiting("p", release="1.0\x00", tags=('a"b', "ü"), root_id="p")
    bare.parked.park([first, waiting("q"), waiting("ran")], now=T0)
    bare.parked.accept([("here.ran", 1)])
    return bare


def check(store) -> None:
    store.check_schema()
    indexes = store.database.read(lambda one: inspect(one).get_indexes(tables.letter.name))
    assert {item["name"]: item["column_names"] for item in indexes}[filter_columns.INDEX] == [
        "root_id", "state", "last_failed_at", "id",
    ]  # fmt: skip
    assert found(store, root="a", states=frozenset(State)) == ["a"]


def found(store, **filters) -> list[str]:
    wanted = Filter(**{"states": PARKED, **filters})
    return sorted(item.task_id for item in store.letters.find(wanted).letters)


def check_retries(store) -> None:
    assert [found(store, **one) for one in FILTERS] == [["p"], ["p"], ["p"], ["p", "q"], ["p", "q"]]
    assert found(store, root="q") == ["q"]


def test_retries_that_wait_get_their_columns(stored):
    go_back(stored)
    assert schema.upgrade(stored.database) == "0018"
    check(stored)
    check_retries(stored)


def test_many_retries_get_their_columns(stored):
    # More than are read at once.
    stored.parked.park([waiting(f"{number:04}") for number in range(1_100)], now=T0)
    go_back(stored)
    schema.upgrade(stored.database)
    assert stored.counts.letters(Filter(rule="http.status", states=PARKED)) == 1_102


def test_the_printed_upgrade_leaves_them_empty(stored):
    go_back(stored)
    run_script(stored.database, schema.upgrade_sql(stored.database, "0018"))
    check(stored)
    assert [found(stored, **one) for one in FILTERS[:2]] == [[], []]
    assert found(stored) == ["p", "q"]
    stored.parked.park([waiting("new")], now=T0)
    assert found(stored, rule="http.") == ["new"]


@pytest.mark.parametrize("steps", [0, 1, 3, 5])
def test_an_upgrade_that_was_cut_off_is_finished_by_the_next(stored, steps):
    go_back(stored, columns=filter_columns.COLUMNS[steps:], index=False)
    if steps == len(filter_columns.COLUMNS):
        emptied = "UPDATE celery_dlq_parked SET tags = NULL, verdict = NULL, rule = NULL"
        stored.database.write(lambda one: one.execute(text(emptied)))
    assert schema.upgrade(stored.database) == "0018"
    check(stored)
    check_retries(stored)
