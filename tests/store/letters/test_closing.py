from __future__ import annotations

import json
from datetime import timedelta

import pytest
from sqlalchemy import select
from support.factories import T0, attempt, letter
from support.stores import redriving

from celery_dlq.model.states import State
from celery_dlq.store.base import Filter
from celery_dlq.store.database import tables
from celery_dlq.store.letters import acts

pytestmark = pytest.mark.usefixtures("counts_hold_in_the_end")


def minutes(number: float):
    return T0 + timedelta(minutes=number)


def named(*states: State, **filters) -> Filter:
    return Filter(states=frozenset(states), **filters)


def discard(store, wanted: Filter, why: str = "obsolete", now: float = 10) -> int:
    return store.closing.discard(wanted, who="ann", why=why, now=minutes(now))


def undiscard(store, wanted: Filter) -> int:
    return store.closing.undiscard(wanted, who="bob", now=minutes(11))


def audit(store) -> list[dict]:
    in_order = select(tables.audit).order_by(tables.audit.c.id)
    rows = store.database.read(lambda c: c.execute(in_order).mappings().all())
    return [{**row, "detail": json.loads(row["detail"])} for row in rows]


def claim(store, *ids: str):
    return redriving.claim(
        store, Filter(ids=ids), token="t", lease_until=minutes(60), limit=10, now=minutes(1)
    )


@pytest.fixture
def letters(store):
    store.letters.save([letter(name, attempt(minutes=at)) for at, name in enumerate("abcd")])
    return store


def test_a_discarded_letter_says_when_by_whom_and_why(letters):
    assert discard(letters, Filter(ids=("a", "b"))) == 2
    found = letters.letters.get("a")
    assert found.state is State.DISCARDED
    assert (found.closed_at, found.closed_by, found.closed_reason) == (
        minutes(10),
        "ann",
        "obsolete",
    )
    assert letters.counts.letters(Filter()) == 2


@pytest.mark.clear("it reads or writes the tables itself")
def test_discarding_again_moves_nothing(letters):
    discard(letters, Filter())
    assert discard(letters, Filter()) == 0
    assert len(audit(letters)) == 1


@pytest.mark.clear("it reads or writes the tables itself")
def test_an_act_is_audited_once_with_its_count_and_filter(letters):
    wanted = Filter(task="charge", since=minutes(1), states=frozenset({State.DEAD}))
    discard(letters, wanted, why="bad deploy")
    (row,) = audit(letters)
    assert (row["at"], row["who"], row["act"], row["count"], row["why"]) == (
        minutes(10), "ann", "discard", 3, "bad deploy",
    )  # fmt: skip
    assert row["detail"] == {
        "filter": {"task": "charge", "since": minutes(1).isoformat(), "states": ["dead"]}
    }


@pytest.mark.clear("it reads or writes the tables itself")
def test_an_act_in_many_chunks_is_one_audit_row(letters, monkeypatch):
    monkeypatch.setattr(acts, "CHUNK", 3)
    assert discard(letters, Filter()) == 4
    assert [row["count"] for row in audit(letters)] == [4]
    assert undiscard(letters, Filter()) == 4
    assert [(row["act"], row["count"]) for row in audit(letters)] == [
        ("discard", 4),
        ("undiscard", 4),
    ]


def test_claimed_letters_are_not_discarded(letters):
    claim(letters, "a")
    assert discard(letters, named(State.CLAIMED)) == 0
    assert discard(letters, Filter()) == 3
    assert letters.letters.get("a").state is State.CLAIMED


def test_redriven_letters_are_discarded_only_when_they_are_named(letters):
    claim(letters, "a")
    redriving.confirm(letters, "t", ["a"])
    assert discard(letters, Filter()) == 3
    assert letters.letters.get("a").state is State.REDRIVEN
    assert discard(letters, named(State.DEAD, State.REDRIVEN)) == 1
    assert letters.letters.get("a").state is State.DISCARDED


def test_letters_that_die_while_an_act_runs_are_not_swept_in(letters, monkeypatch):
    monkeypatch.setattr(acts, "CHUNK", 1)
    write, late = letters.transactions.write, [letter("late", attempt(minutes=99))]

    def write_and_let_one_die(work):
        done = write(work)
        if late:
            letters.letters.save([late.pop()])
        return done

    monkeypatch.setattr(letters.transactions, "write", write_and_let_one_die)
    assert discard(letters, Filter()) == 4
    assert letters.letters.get("late").state is State.DEAD


@pytest.mark.clear("it reads or writes the tables itself")
def test_undiscarded_letters_wait_again(letters):
    discard(letters, Filter())
    assert undiscard(letters, Filter(ids=("a",))) == 1
    found = letters.letters.get("a")
    assert (found.state, found.closed_at, found.closed_by, found.closed_reason) == (
        State.DEAD, None, "", "",
    )  # fmt: skip
    assert [row["who"] for row in audit(letters)] == ["ann", "bob"]


def test_only_discarded_letters_are_undiscarded(letters):
    assert undiscard(letters, Filter()) == 0
    assert undiscard(letters, named(State.DEAD)) == 0
    discard(letters, Filter(ids=("a",)))
    assert undiscard(letters, named(State.RESOLVED)) == 0
    assert undiscard(letters, named(State.DISCARDED, State.DEAD)) == 1


def test_a_discarded_and_undiscarded_letter_can_be_redriven(letters):
    discard(letters, Filter())
    undiscard(letters, Filter())
    assert len(claim(letters, "a", "b").letters) == 2


@pytest.mark.clear("it reads or writes the tables itself")
def test_another_act_is_audited(store):
    row_id = store.audit.note(who="ann", act="ingest", detail={"queue": "dead"}, count=3, at=T0)
    store.audit.note(who="ann", act="ingest", detail={}, count=2, at=T0, row=row_id)
    (row,) = audit(store)
    assert (row["who"], row["act"], row["count"], row["why"]) == ("ann", "ingest", 5, "")
    assert row["detail"] == {"queue": "dead"}


def test_hostile_words_in_an_act_are_kept_storable(store):
    store.letters.save([letter("a")])
    store.closing.discard(Filter(), who="a\x00\ud800" + "x" * 999, why="y\x00" * 999, now=T0)
    assert store.letters.get("a").closed_by.startswith("a\\u0000\\ud800x")
