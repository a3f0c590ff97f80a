"""Looking through letters one by one, for a bounded time."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.factories import T0, attempt, letter, parking

from celery_dlq.errors import FilterError
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter
from celery_dlq.store.letters import pages
from celery_dlq.store.sql import SQLStore

SLOW = Filter(search="too slow", states=frozenset({State.DEAD, State.PARKED}))


def minutes(number: float):
    return T0 + timedelta(minutes=number)


def at(task_id: str, number: float = 0, **changes):
    return letter(task_id, attempt(minutes=number), **changes)


@pytest.fixture(autouse=True)
def short_steps(monkeypatch):
    monkeypatch.setattr(pages, "STEP", 2)


@pytest.fixture
def forty(store):
    """Forty letters, four at a time, every seventh of them slow; one of these waits as a retry."""
    slow = {"message": "too slow"}
    store.letters.save([at(f"{n:02}", n // 4, **(slow if n % 7 == 0 else {})) for n in range(40)])
    waits = parking("parked", 90, last_failed_at=minutes(4.5), **slow)
    store.parked.park([waits], now=minutes(60))
    return store


FOUND = ["35", "28", "21", "parked", "14", "07", "00"]


def ids(page):
    return [item.task_id for item in page.letters]


def walk(store, wanted, **how):
    """Every page until the last one."""
    pages = [store.letters.find(wanted, **how)]
    while pages[-1].next is not None:
        pages.append(store.letters.find(wanted, after=pages[-1].next, **how))
    return pages


@pytest.mark.parametrize("limit", [1, 2, 3, 50])
@pytest.mark.parametrize("patience_s", [None, 0, 60])
def test_all_that_match_are_found_however_short_the_patience(forty, limit, patience_s):
    pages = walk(forty, SLOW, limit=limit, patience_s=patience_s)
    assert [task_id for page in pages for task_id in ids(page)] == FOUND


def test_without_patience_a_page_is_what_one_step_finds(forty):
    page = forty.letters.find(SLOW, patience_s=0)
    assert (ids(page), page.searched_to) == ([], minutes(9))
    pages = walk(forty, SLOW, patience_s=0)
    assert len(pages) == 21
    looked = [page.searched_to for page in pages[:-1]]
    assert looked == sorted(looked, reverse=True)
    assert pages[-1].searched_to is None


def test_a_page_is_full_or_the_last_one_if_there_is_time(forty):
    pages = walk(forty, SLOW, limit=3)
    assert [len(page.letters) for page in pages] == [3, 3, 1]
    assert {page.searched_to for page in pages} == {None}


@pytest.mark.clear("it makes a store without keys")
def test_the_clock_is_looked_at_after_each_step(forty, database_url):
    seconds = iter(range(100))
    patient = SQLStore(database_url, monotonic=lambda: next(seconds))
    patient.check_schema()
    # The transaction looks at the clock, too: whether the schema has to be checked again.
    began = next(seconds)
    page = patient.letters.find(SLOW, patience_s=3)
    # Two letters, and two, and two: a second each.
    assert (ids(page), page.searched_to) == (["35"], minutes(8))
    assert next(seconds) == began + 6
    patient.close()


def test_values_that_an_index_has_are_found_at_once(forty):
    page = forty.letters.find(Filter(exception="ValueError"), limit=30, patience_s=0)
    assert (len(page.letters), page.searched_to) == (30, None)


def test_a_worker_is_looked_for_one_by_one(store):
    store.letters.save([at(f"{n}", n, worker="a@host" if n else "b@host") for n in range(9)])
    assert ids(store.letters.find(Filter(worker="b@"))) == ["0"]
    page = store.letters.find(Filter(worker="b@"), patience_s=0)
    assert (ids(page), page.searched_to) == ([], minutes(7))


def test_other_filters_narrow_the_search(forty):
    wanted = Filter(search="too slow", ids=("35", "07", "08"))
    page = forty.letters.find(wanted, patience_s=0)
    assert (ids(page), page.searched_to) == (["35"], minutes(2))
    assert ids(forty.letters.find(wanted, after=page.next, patience_s=0)) == ["07"]


def test_an_empty_store_is_searched_at_once(store):
    page = store.letters.find(SLOW, patience_s=0)
    assert (page.letters, page.next, page.searched_to) == ((), None, None)


def test_a_text_that_is_not_a_cursor_is_refused(store):
    with pytest.raises(FilterError, match="not a cursor"):
        store.letters.find(SLOW, after="x", patience_s=0)
