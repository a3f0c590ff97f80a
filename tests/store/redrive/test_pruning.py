"""History is forgotten when it is old, and nothing needs it."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest
from support.factories import T0, attempt, letter, operation
from support.stores.history import all_before, edit

from celery_dlq.model.letter import Outcome
from celery_dlq.model.operation import OperationState
from celery_dlq.store.base import Filter

NOW = T0 + timedelta(days=400)


def days(number: float):
    return T0 + timedelta(days=number)


def prune(store, before=NOW, limit: int = 100) -> int:
    """Prune everything older, in transactions of ``limit`` rows of a kind."""
    forgotten = 0
    while more := store.history.prune(all_before(before), limit=limit):
        forgotten += more
    return forgotten


def redrive(store, name: str, *task_ids: str, at: float = 1) -> None:
    """An operation that sends these letters and is done."""
    made = operation(name, wanted=Filter(ids=task_ids), created_at=days(at))
    store.operations.create(made)
    store.operations.move(name, OperationState.RUNNING, who="ann", now=days(at))
    lease = {"lease_until": days(at + 1), "limit": 99, "now": days(at)}
    taken = store.claims.take(made, token=name, **lease).letters
    assert len(taken) == len(task_ids)
    store.claims.confirm(name, name, dict.fromkeys(task_ids, ""), now=days(at), is_all=True)
    store.operations.move(name, OperationState.DONE, who="ann", now=days(at))


def succeed(store, *task_ids: str, at: float = 2) -> None:
    store.letters.record_outcomes(
        [Outcome(task_id=one, redrive=1, succeeded_at=days(at), worker="w") for one in task_ids]
    )


@pytest.fixture
def letters(store):
    store.letters.save([letter(name) for name in "abc"])
    # The times of their deaths differ.
    assert store.history.prune(all_before(NOW), limit=9) == 1
    return store


def test_an_operation_goes_with_its_sendings_when_all_is_over(letters):
    redrive(letters, "one", "a", "b")
    succeed(letters, "a", "b")
    assert prune(letters, before=days(1)) == 0
    assert prune(letters) == 2 + 1 + 1  # sendings, the operation, the act
    assert letters.operations.get("one") is None
    assert letters.sendings.of_letter("a") == []
    assert letters.audit.find().rows == ()


def test_it_is_done_in_small_steps(letters):
    redrive(letters, "one", "a", "b", "c")
    succeed(letters, "a", "b", "c")
    assert (
        letters.history.prune(all_before(NOW), limit=2) == 2 + 0 + 1 + 1
    )  # and the hour in which they died
    assert letters.operations.get("one") is not None
    assert letters.history.prune(all_before(NOW), limit=2) == 1 + 1
    assert letters.history.prune(all_before(NOW), limit=2) == 0


def test_history_of_an_open_letter_stays(letters):
    edit(letters, "a", at=days(0.5))
    redrive(letters, "one", "a", "b")
    succeed(letters, "b")
    letters.letters.save([letter("a", attempt(redrive=1, failed_at=days(2)))])
    prune(letters)
    assert [one.task_id for one in letters.sendings.of_operation("one").rows] == ["a"]
    assert len(letters.edits.of_letter("a")) == 1
    letters.closing.discard(Filter(ids=("a",)), who="ann", why="", now=days(3))
    prune(letters)
    assert letters.operations.get("one") is None
    assert letters.edits.of_letter("a") == []


def test_awaited_or_young_operations_stay(letters):
    redrive(letters, "waiting", "a")
    redrive(letters, "young", "b", at=399)
    succeed(letters, "b", at=399)
    letters.operations.create(operation("planned"))
    prune(letters, before=days(300))
    assert {one.id for one in letters.operations.find()} == {"waiting", "young", "planned"}
    assert len(letters.sendings.of_letter("a")) == len(letters.sendings.of_letter("b")) == 1


def test_acts_go_by_their_age(letters):
    for at in (1, 2, 3):
        letters.audit.note(who="ann", act="ingest", detail={"n": at}, count=1, at=days(at))
    assert prune(letters, before=days(3)) == 2
    assert [row.detail["n"] for row in letters.audit.find().rows] == [3]


def test_counts_over_time_go_by_their_age_and_stay_where_a_letter_is_open(store):
    fingerprint = letter().fingerprint
    store.letters.save(
        [letter("old", attempt(failed_at=days(1))), letter("young", attempt(failed_at=days(9)))]
    )
    store.closing.discard(Filter(ids=("young",)), who="ann", why="", now=days(9))
    assert prune(store, before=days(5)) == 1  # the old minute; of its hour a letter is open
    assert store.monitoring.stats(days(9)).ages[math.inf] == 1
    store.closing.discard(Filter(ids=("old",)), who="ann", why="", now=days(9))
    assert prune(store, before=days(5)) == 1
    assert sum(store.groups.trends([fingerprint], now=days(9), hours=24 * 10)[fingerprint]) == 1
