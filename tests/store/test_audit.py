from __future__ import annotations

import socket
from datetime import timedelta

import pytest
from factories import T0, letter, operation

from celery_dlq.errors import FilterError
from celery_dlq.operation import OperationState
from celery_dlq.store.base import Filter

LATER = T0 + timedelta(hours=1)


@pytest.fixture
def acted(store):
    """Five acts, a minute apart: of ann and bob in turn."""
    for number in range(5):
        store.record_act(
            who=("ann", "bob")[number % 2],
            act=("reclassify", "ingest", "release")[number % 3],
            detail={"number": number},
            count=1,
            now=T0 + timedelta(minutes=number),
        )
    return store


def numbers(rows) -> list[object]:
    return [row.detail["number"] for row in rows.rows]


def test_an_act_says_who_when_from_where_and_on_what(store):
    store.save([letter("a")])
    store.discard(Filter(task="charge"), who="ann", why="old", now=T0)
    (row,) = store.audit().rows
    assert (row.who, row.host, row.at) == ("ann", socket.gethostname(), T0)
    assert (row.act, row.count, row.why) == ("discard", 1, "old")
    assert row.detail == {"filter": {"task": "charge"}}


def test_acts_are_read_by_page_newest_first(acted):
    first = acted.audit(limit=2)
    second = acted.audit(limit=2, after=first.next)
    last = acted.audit(limit=2, after=second.next)
    assert [numbers(page) for page in (first, second, last)] == [[4, 3], [2, 1], [0]]
    assert last.next is None
    with pytest.raises(FilterError, match="no page mark"):
        acted.audit(after="yesterday")


def test_acts_can_be_narrowed(acted):
    assert numbers(acted.audit(who="bob")) == [3, 1]
    assert numbers(acted.audit(act="reclassify")) == [3, 0]
    assert numbers(acted.audit(since=T0 + timedelta(minutes=3))) == [4, 3]
    assert numbers(acted.audit(who="bob", act="ingest")) == [1]
    assert numbers(acted.audit(act="discard")) == []


def test_acts_on_a_letter_and_on_the_operations_it_was_in(store):
    store.save([letter(name) for name in "abc"])
    for name, wanted in (("one", Filter(ids=("a",))), ("two", Filter(ids=("b", "c")))):
        made = operation(name, wanted=wanted)
        store.create_operation(made)
        store.claim_for(made, token=name, lease_until=LATER, limit=9, now=T0)
        store.release_sendings(name, name, ["c"])
    for state, act in ((OperationState.RUNNING, None), (OperationState.PAUSED, "pause")):
        store.move_operation("one", state, who="ann", cause=str(act), now=T0)
    store.discard(Filter(ids=("c",)), who="bob", why="", now=T0)
    store.discard(Filter(task="charge"), who="bob", why="", now=T0)
    assert [row.act for row in store.audit(letter="a").rows] == ["pause", "redrive"]
    assert [row.detail["operation"] for row in store.audit(letter="b").rows] == ["two"]
    assert [row.act for row in store.audit(letter="c").rows] == ["discard"]
    assert store.audit(letter="zz").rows == ()
    assert [row.act for row in store.audit(letter="a", act="pause").rows] == ["pause"]
