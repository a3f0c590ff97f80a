"""A store notifies its listener after the commit, and of nothing that was known already."""

from __future__ import annotations

import pytest
from support.factories import T0, attempt, letter, operation
from support.stores import redriving

from celery_dlq.errors import OperationError
from celery_dlq.model.letter import Outcome
from celery_dlq.model.operation import OperationState
from celery_dlq.store.base import Filter
from celery_dlq.store.sql import SQLStore


class Ears:
    """Keeps what it hears, and looks whether that can be read already."""

    store: SQLStore

    def __init__(self) -> None:
        self.heard: list[object] = []

    def saved(self, saved):
        assert all(self.store.letters.get(item.task_id) for item in saved.letters)
        self.heard.append([item.task_id for item in saved.letters])

    def resolved(self, task_ids):
        self.heard.append(("resolved", list(task_ids)))

    def redriven(self, task_ids):
        self.heard.append(("redriven", list(task_ids)))

    def moved(self, operation):
        self.heard.append((operation.id, operation.state.value))

    def audited(self, head):
        """Tested with the chain."""


@pytest.fixture
def ears():
    return Ears()


@pytest.fixture
def listened(store, ears, database_url):
    """The emptied store, with a listener."""
    ears.store = SQLStore(database_url, listener=ears)
    yield ears.store
    ears.store.close()


def test_letters_that_arrive_are_reported_and_known_ones_are_not(listened, ears):
    listened.letters.save([letter("b"), letter("a"), letter("a")])
    listened.letters.save([letter("a")])
    listened.letters.save([])
    again = attempt(2, redrive=1, minutes=5)
    listened.letters.save([letter("a", attempt(), again)])
    assert ears.heard == [["a", "b"], [], ["a"]]


def test_letters_that_are_resolved_are_reported_and_others_are_not(listened, ears):
    listened.letters.save([letter("a"), letter("b")])
    ran = [
        Outcome(task_id=name, redrive=0, succeeded_at=T0, worker="w")
        for name in ("b", "unknown", "b")
    ]
    assert listened.letters.record_outcomes(ran) == 1
    assert listened.letters.record_outcomes(ran) == 0
    assert ears.heard[1:] == [("resolved", ["b"]), ("resolved", [])]


def test_letters_that_are_confirmed_are_reported(listened, ears):
    listened.letters.save([letter("a"), letter("b")])
    redriving.claim(listened, Filter(), token="t", lease_until=T0, limit=10, now=T0)
    redriving.confirm(listened, "t", ["a"])
    assert ("redriven", ["a"]) in ears.heard


def test_letters_of_a_whole_claim_are_reported(listened, ears):
    listened.letters.save([letter("a"), letter("b")])
    redriving.claim(listened, Filter(), token="t", lease_until=T0, limit=10, now=T0)
    listened.claims.confirm("t", "t", {"a": "", "b": ""}, now=T0, is_all=True)
    assert ears.heard[-1] == ("redriven", ["a", "b"])


def test_moves_of_operations_are_reported_and_refused_ones_are_not(listened, ears):
    listened.operations.create(operation("0a"))
    listened.operations.move("0a", OperationState.RUNNING, who="ann", now=T0)
    listened.operations.move("0a", OperationState.ABORTED, who="guard", cause="x", now=T0)
    with pytest.raises(OperationError):
        listened.operations.move("0a", OperationState.RUNNING, who="ann", now=T0)
    assert ears.heard == [("0a", "running"), ("0a", "aborted")]
