"""A search that runs out of time names letters from further back that an index knows."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.factories import T0, attempt, letter, parking

from celery_dlq.model.states import State
from celery_dlq.store.base import Argument, Filter
from celery_dlq.store.letters import pages
from celery_dlq.store.rows import terms
from celery_dlq.store.sql import SQLStore


@pytest.fixture(autouse=True)
def short_steps(monkeypatch):
    monkeypatch.setattr(pages, "STEP", 2)


def saved(store, *letters):
    """Ten letters about something else, and these, which are older."""
    others = [letter(f"other {n}", attempt(minutes=n), args=[], kwargs={}) for n in range(10)]
    store.letters.save([*others, *letters])


def old(task_id, minutes=-10.0, **changes):
    """A letter of another group than the ten."""
    values = {"args": [], "kwargs": {}, "fingerprint": "c" * 16}
    return letter(task_id, attempt(minutes=minutes), **{**values, **changes})


def ids(letters):
    return [one.task_id for one in letters]


def further(store, wanted, **how):
    page = store.letters.find(wanted, patience_s=0, **how)
    assert (ids(page.letters), page.searched_to) == ([], T0 + timedelta(minutes=8))
    return ids(page.further)


def test_words_are_those_of_a_group(store):
    declined = (old(one, at, message="Card 17 declined") for one, at in (("a", -20), ("b", -10)))
    saved(store, *declined, old("c", -15, message="Card refused", fingerprint="d" * 16))
    assert further(store, Filter(search="DECLINED")) == ["b", "a"]
    assert further(store, Filter(search="card")) == ["b", "c", "a"]
    assert further(store, Filter(search="card"), limit=2) == ["b", "c"]


def test_a_task_and_an_exception_are_those_of_a_group(store):
    saved(store, old("a", task="shop.refund_all"))
    saved(store, old("b", exception_type="shop.CardExpired", fingerprint="d" * 16))
    assert further(store, Filter(search="refund_")) == ["a"]
    assert further(store, Filter(search="cardexp")) == ["b"]


def test_a_value_is_one_of_the_letters_values(store):
    named = old("a", -20, kwargs={"order": {"id": 4711}}, fingerprint="d" * 16)
    saved(store, named, old("b", message="order 4711 declined"))
    assert further(store, Filter(search="4711")) == ["b", "a"]
    assert further(store, Filter(search="order 4711 decl")) == ["b"]
    assert further(store, Filter(search="order 4712 decl")) == []


def test_the_variable_part_of_another_message_of_the_group_is_not_a_match(store):
    theirs = {"fingerprint": "c" * 16}
    saved(
        store, old("a", -20, message="order 17", **theirs), old("b", message="order 18", **theirs)
    )
    assert further(store, Filter(search="18")) == ["b"]


def test_other_filters_hold_and_states_are_those_that_are_asked_for(store):
    saved(store, old("a", -20, route="slow", message="declined"), old("b", message="declined"))
    store.closing.discard(Filter(ids=("b",)), who="ann", why="x", now=T0)
    assert further(store, Filter(search="declined")) == ["a"]
    assert further(store, Filter(search="declined", since=T0 - timedelta(hours=1))) == ["a"]
    every = Filter(search="declined", states=frozenset(State))
    assert further(store, every) == ["b", "a"]
    assert store.letters.find(Filter(search="declined", route="fast"), patience_s=0).further == ()


def test_parked_retries_have_neither_groups_nor_values(store):
    saved(store, old("a", message="declined"))
    waits = parking("parked", 90, last_failed_at=T0 - timedelta(minutes=5), message="declined")
    store.parked.park([waits], now=T0)
    assert further(
        store, Filter(search="declined", states=frozenset({State.DEAD, State.PARKED}))
    ) == ["a"]
    parked = store.letters.find(
        Filter(search="none", states=frozenset({State.PARKED})), patience_s=0
    )
    assert parked.further == ()


def test_letters_that_were_searched_already_are_not_among_them(store):
    saved(store, old("a", 7.5, message="declined"), old("b", message="declined"))
    first = store.letters.find(Filter(search="declined"), patience_s=0)
    assert (ids(first.letters), ids(first.further)) == ([], ["a", "b"])
    second = store.letters.find(Filter(search="declined"), patience_s=0, after=first.next)
    assert (ids(second.letters), ids(second.further)) == (["a"], ["b"])


def test_a_frequent_value_is_found_by_its_index_if_the_letters_are_old(store, monkeypatch):
    monkeypatch.setattr(terms, "RARE", 2)
    saved(store, *(old(f"{n}", -n, kwargs={"tenant": "acme"}) for n in range(1, 6)))
    # The two that were stored last.
    assert further(store, Filter(values=("acme",))) == ["4", "5"]
    assert further(store, Filter(args=(Argument(path="tenant", value="acme"),))) == ["4", "5"]


def test_only_the_groups_that_failed_last_are_read(store, monkeypatch):
    monkeypatch.setattr(pages, "_GROUPS", 2)
    groups = (old(f"{n}", -n, message="declined", fingerprint=f"{n:016}") for n in range(1, 5))
    saved(store, *groups)
    assert further(store, Filter(search="declined")) == ["1", "2"]


@pytest.mark.parametrize("text", ["%", "_", "\\", "'", "\x00", "\U0001f407", "x" * 3_000])
def test_any_text_may_be_looked_for(store, text):
    saved(store, old("a", message=f"a{text}b"))
    page = store.letters.find(Filter(search=text), patience_s=0)
    assert {*ids(page.further)} <= {"a"}


def test_a_search_without_a_limit_goes_on_to_the_end(store):
    saved(store, old("a", message="declined"))
    page = store.letters.find(Filter(search="declined"))
    assert (ids(page.letters), page.searched_to, page.further) == (["a"], None, ())


@pytest.mark.clear("it makes a store without keys")
class TestTheTimeOfASearch:
    """Each look at the clock is a second later."""

    @pytest.fixture
    def slow(self, database_url, store):
        seconds = iter(range(100))
        slow = SQLStore(database_url, monotonic=lambda: next(seconds))
        yield slow
        slow.close()

    def test_an_answer_from_an_index_ends_it(self, slow, store):
        saved(store, old("a", message="declined"))
        page = slow.letters.find(Filter(search="declined"), patience_s=3)
        assert (page.searched_to, ids(page.further)) == (T0 + timedelta(minutes=8), ["a"])

    def test_without_one_it_goes_on(self, slow, store):
        saved(store, old("a", args=["half-declined"]))
        page = slow.letters.find(Filter(search="declined"), patience_s=3)
        assert (page.searched_to, page.further) == (T0 + timedelta(minutes=4), ())

    def test_an_index_is_not_asked_at_once(self, slow, store, monkeypatch):
        monkeypatch.setattr(pages, "QUICK_S", 2)
        saved(store, old("a", message="declined"))
        page = slow.letters.find(Filter(search="declined"), patience_s=3)
        assert (page.searched_to, ids(page.further)) == (T0 + timedelta(minutes=6), ["a"])
