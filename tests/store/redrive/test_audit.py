from __future__ import annotations

import socket
from datetime import timedelta

import pytest
from support.factories import T0, letter, operation

from celery_dlq.errors import FilterError
from celery_dlq.model.group import Annotate
from celery_dlq.model.operation import OperationState, Orders
from celery_dlq.store.base import Filter
from celery_dlq.store.redrive import history

LATER = T0 + timedelta(hours=1)


@pytest.fixture
def acted(store):
    """Five acts, a minute apart: of ann and bob in turn."""
    for number in range(5):
        store.audit.note(
            who=("ann", "bob")[number % 2],
            act=("reclassify", "ingest", "release")[number % 3],
            detail={"number": number},
            count=1,
            at=T0 + timedelta(minutes=number),
        )
    return store


def numbers(rows) -> list[object]:
    return [row.detail["number"] for row in rows.rows]


def test_an_act_says_who_when_from_where_and_on_what(store):
    store.letters.save([letter("a")])
    store.closing.discard(Filter(task="charge"), who="ann", why="old", now=T0)
    (row,) = store.audit.find().rows
    assert (row.who, row.host, row.at) == ("ann", socket.gethostname(), T0)
    assert (row.act, row.count, row.why) == ("discard", 1, "old")
    assert row.detail == {"filter": {"task": "charge"}}


def test_acts_are_read_by_page_newest_first(acted):
    first = acted.audit.find(limit=2)
    second = acted.audit.find(limit=2, after=first.next)
    last = acted.audit.find(limit=2, after=second.next)
    assert [numbers(page) for page in (first, second, last)] == [[4, 3], [2, 1], [0]]
    assert last.next is None
    with pytest.raises(FilterError, match="not a cursor"):
        acted.audit.find(after="yesterday")


def test_acts_can_be_narrowed(acted):
    assert numbers(acted.audit.find(who="bob")) == [3, 1]
    assert numbers(acted.audit.find(act="reclassify")) == [3, 0]
    assert numbers(acted.audit.find(since=T0 + timedelta(minutes=3))) == [4, 3]
    assert numbers(acted.audit.find(who="bob", act="ingest")) == [1]
    assert numbers(acted.audit.find(act="discard")) == []


def test_acts_on_a_letter_and_on_the_operations_it_was_in(store):
    store.letters.save([letter(name) for name in "abc"])
    for name, wanted in (("one", Filter(ids=("a",))), ("two", Filter(ids=("b", "c")))):
        made = operation(name, wanted=wanted)
        store.operations.create(made)
        store.claims.take(made, token=name, lease_until=LATER, limit=9, now=T0)
        store.claims.release(name, name, ["c"])
    for state, act in ((OperationState.RUNNING, None), (OperationState.PAUSED, "pause")):
        store.operations.move("one", state, who="ann", cause=str(act), now=T0)
    store.closing.discard(Filter(ids=("c",)), who="bob", why="", now=T0)
    store.closing.discard(Filter(task="charge"), who="bob", why="", now=T0)
    assert [row.act for row in store.audit.find(letter="a").rows] == ["pause", "redrive"]
    assert [row.detail["operation"] for row in store.audit.find(letter="b").rows] == ["two"]
    assert [row.act for row in store.audit.find(letter="c").rows] == ["discard"]
    assert store.audit.find(letter="zz").rows == ()
    assert [row.act for row in store.audit.find(letter="a", act="pause").rows] == ["pause"]


def test_a_redrive_counts_what_it_has_sent_and_keeps_what_it_planned(store):
    store.letters.save([letter(name) for name in "abc"])
    made = operation("one", wanted=Filter(), orders=Orders(why="the bank is back"))
    store.operations.create(made, repair={"function": "euros"})
    (row,) = store.audit.find().rows
    assert (row.count, row.why, row.detail["planned"]) == (0, "the bank is back", 3)
    assert row.detail["repair"] == {"function": "euros"}
    store.claims.take(made, token="t", lease_until=LATER, limit=9, now=T0)
    store.claims.skip("one", "t", {"c": "too old"}, now=T0)
    changes = {"a": '- kwargs.currency = "EUX"', "b": ""}
    store.claims.confirm("one", "t", changes, now=T0, is_all=True)
    (row,) = store.audit.find().rows
    assert (row.count, row.detail["planned"], "changed" in row.detail) == (2, 3, False)
    # Asked for one letter, it says what was changed there.
    (of_a,), (of_b,) = (store.audit.find(letter=name).rows for name in "ab")
    assert of_a.detail["changed"] == changes["a"]
    assert "changed" not in of_b.detail


def test_a_reason_replaces_the_cause(store):
    store.operations.create(operation("one"))
    for state, why in ((OperationState.RUNNING, ""), (OperationState.PAUSED, "lunch")):
        store.operations.move("one", state, who="ann", cause="paused by ann", why=why, now=T0)
    store.operations.move("one", OperationState.RUNNING, who="ann", why="fed", now=T0)
    store.operations.move("one", OperationState.CANCELLED, who="ann", cause="by ann", now=T0)
    assert [row.why for row in store.audit.find().rows] == ["by ann", "fed", "lunch", ""]


class TestOfGroup:
    GROUP = "9c1e0000deadbeef"

    @pytest.fixture
    def told(self, store):
        """Acts on a group, on a redrive that chose it by a prefix, and on others."""
        store.letters.save([letter("a"), letter("b", fingerprint="77")])
        store.groups.triage(self.GROUP, Annotate(note="mine"), who="ann", now=T0)
        store.groups.triage("77", Annotate(note="other"), who="ann", now=T0)
        store.operations.create(operation("one", wanted=Filter(group="9c1e")))
        store.operations.create(operation("two", wanted=Filter(group="77")))
        store.operations.create(operation("three", wanted=Filter(task="shop.charge")))
        store.operations.move("one", OperationState.CANCELLED, who="bob", now=LATER)
        store.closing.discard(Filter(group=self.GROUP), who="ann", why="", now=T0)
        return store

    def test_its_acts_and_those_on_its_redrives(self, told):
        rows = told.audit.find(group=self.GROUP).rows
        assert [row.act for row in rows] == ["discard", "cancel", "redrive", "note"]
        assert rows[-1].detail["note"] == "mine"

    def test_acts_by_a_prefix_that_only_this_group_has(self, told):
        told.letters.save([letter("c")])
        told.closing.discard(Filter(group="9c1"), who="cid", why="", now=T0)
        told.letters.save([letter("d"), letter("e", fingerprint="9c22")])
        told.closing.discard(Filter(group="9c"), who="dan", why="", now=T0)
        assert told.audit.find(group=self.GROUP).rows[0].who == "cid"

    def test_together_with_other_filters(self, told):
        assert [row.act for row in told.audit.find(group=self.GROUP, who="bob").rows] == ["cancel"]
        assert told.audit.find(group="none").rows == ()

    def test_only_the_newest_redrives_are_looked_through(self, told, monkeypatch):
        monkeypatch.setattr(history, "_OPERATIONS", 1)
        told.operations.create(operation("late", created_at=LATER))
        assert [row.act for row in told.audit.find(group=self.GROUP).rows] == ["discard", "note"]
