"""What a store tells who listens: after the commit, and nothing that was known already."""

from __future__ import annotations

import pytest
import redriving
from factories import T0, attempt, letter, operation

from celery_dlq.errors import OperationError
from celery_dlq.letter import Outcome
from celery_dlq.operation import OperationState
from celery_dlq.store.base import Filter
from celery_dlq.store.sql import SQLStore


class Ears:
    """Keeps what it hears, and looks whether that can be read already."""

    store: SQLStore

    def __init__(self) -> None:
        self.heard: list[object] = []

    def saved(self, saved):
        assert all(self.store.get(item.task_id) for item in saved.letters)
        self.heard.append([item.task_id for item in saved.letters])

    def resolved(self, task_ids):
        self.heard.append(("resolved", list(task_ids)))

    def redriven(self, task_ids):
        self.heard.append(("redriven", list(task_ids)))

    def moved(self, operation):
        self.heard.append((operation.id, operation.state.value))


@pytest.fixture
def ears():
    return Ears()


@pytest.fixture
def listened(store, ears, database_url):
    """The emptied store, listened to."""
    ears.store = SQLStore(database_url, listener=ears)
    yield ears.store
    ears.store.close()


def test_letters_that_arrive_are_told_and_known_ones_are_not(listened, ears):
    listened.save([letter("b"), letter("a"), letter("a")])
    listened.save([letter("a")])
    listened.save([])
    again = attempt(2, redrive=1, minutes=5)
    listened.save([letter("a", attempt(), again)])
    assert ears.heard == [["a", "b"], [], ["a"]]


def test_letters_that_are_resolved_are_told_and_others_are_not(listened, ears):
    listened.save([letter("a"), letter("b")])
    ran = [
        Outcome(task_id=name, redrive=0, succeeded_at=T0, worker="w")
        for name in ("b", "unknown", "b")
    ]
    assert listened.record_outcomes(ran) == 1
    assert listened.record_outcomes(ran) == 0
    assert ears.heard[1:] == [("resolved", ["b"]), ("resolved", [])]


def test_letters_that_are_confirmed_are_told(listened, ears):
    listened.save([letter("a"), letter("b")])
    redriving.claim(listened, Filter(), token="t", lease_until=T0, limit=10, now=T0)
    redriving.confirm(listened, "t", ["a"])
    assert ("redriven", ["a"]) in ears.heard


def test_letters_of_a_whole_claim_are_told(listened, ears):
    listened.save([letter("a"), letter("b")])
    redriving.claim(listened, Filter(), token="t", lease_until=T0, limit=10, now=T0)
    listened.end_claim("t", "t", {"a": "", "b": ""}, now=T0)
    assert ears.heard[-1] == ("redriven", ["a", "b"])


def test_moves_of_operations_are_told_and_refused_ones_are_not(listened, ears):
    listened.create_operation(operation("0a"))
    listened.move_operation("0a", OperationState.RUNNING, who="ann", now=T0)
    listened.move_operation("0a", OperationState.ABORTED, who="guard", cause="x", now=T0)
    with pytest.raises(OperationError):
        listened.move_operation("0a", OperationState.RUNNING, who="ann", now=T0)
    assert ears.heard == [("0a", "running"), ("0a", "aborted")]
