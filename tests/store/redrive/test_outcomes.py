from __future__ import annotations

from datetime import timedelta

import pytest
from support.factories import T0, attempt, letter
from support.stores import redriving

from celery_dlq.model.letter import Outcome
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter

pytestmark = pytest.mark.usefixtures("counts_hold_in_the_end")


def minutes(number: float):
    return T0 + timedelta(minutes=number)


def success(redrive: int = 1, at: float = 10, task_id: str = "0d3f", worker: str = "celery@b"):
    return Outcome(task_id=task_id, redrive=redrive, succeeded_at=minutes(at), worker=worker)


def claim(store, token: str = "t"):
    return redriving.claim(
        store, Filter(), token=token, lease_until=minutes(60), limit=10, now=minutes(1)
    )


def test_a_redrive_that_succeeded_resolves_its_letter(store):
    store.letters.save([letter()])
    redriving.confirm(store, "t", [item.task_id for item in claim(store).letters])
    assert store.letters.record_outcomes([success()]) == 1
    found = store.letters.get("0d3f")
    assert found.state is State.RESOLVED
    assert (found.closed_at, found.closed_by) == (minutes(10), "worker celery@b")
    assert found.closed_reason == "redrive 1 succeeded"
    assert store.monitoring.stats(minutes(10)).depth == 0


def test_a_success_that_overtakes_its_confirmation_wins(store):
    store.letters.save([letter()])
    held = claim(store)
    assert store.letters.record_outcomes([success()]) == 1
    assert redriving.confirm(store, "t", [item.task_id for item in held.letters]) == 0
    found = store.letters.get("0d3f")
    assert (found.state, found.redrive_count, found.claim_token) == (State.RESOLVED, 1, None)
    assert found.lease_expires_at is None


def test_a_redelivered_copy_of_the_original_resolves_a_waiting_letter(store):
    store.letters.save([letter()])
    assert store.letters.record_outcomes([success(redrive=0, at=5)]) == 1
    found = store.letters.get("0d3f")
    assert found.closed_reason == "another copy of the message succeeded"
    assert found.redrive_count == 0


def test_a_success_from_before_the_last_failure_resolves_nothing(store):
    store.letters.save([letter("0d3f", attempt(1, 1, 5))])
    assert store.letters.record_outcomes([success(redrive=1, at=4), success(redrive=0, at=3)]) == 0
    assert store.letters.get("0d3f").state is State.DEAD


def test_a_later_redrives_success_counts_even_from_a_slow_clock(store):
    store.letters.save([letter("0d3f", attempt(1, 1, 5))])
    assert store.letters.record_outcomes([success(redrive=2, at=4)]) == 1


def test_closed_and_unknown_letters_are_left_alone(store):
    store.letters.save([letter()])
    store.closing.discard(Filter(), who="ann", why="old", now=minutes(1))
    before = store.letters.get("0d3f")
    assert store.letters.record_outcomes([success(), success(task_id="9c1e")]) == 0
    assert store.letters.get("0d3f") == before
    assert store.letters.get("9c1e") is None


def test_the_same_outcome_twice_counts_once(store):
    store.letters.save([letter()])
    assert store.letters.record_outcomes([success(), success()]) == 1
    assert store.letters.record_outcomes([success()]) == 0


def test_the_later_redrive_of_two_successes_in_a_batch_is_named(store):
    store.letters.save([letter()])
    assert store.letters.record_outcomes([success(0, 5), success(2, 7), success(1, 6)]) == 1
    found = store.letters.get("0d3f")
    assert (found.closed_reason, found.redrive_count) == ("redrive 2 succeeded", 2)


def test_a_batch_resolves_each_letter_by_its_own_outcome(store):
    store.letters.save([letter(f"{number:04}") for number in range(600)])
    outcomes = [success(1, number, f"{number:04}", f"w{number}") for number in range(1, 600)]
    assert store.letters.record_outcomes(outcomes) == 599
    assert store.letters.get("0007").closed_by == "worker w7"
    assert store.letters.get("0007").closed_at == minutes(7)
    assert store.letters.get("0000").state is State.DEAD


def test_no_outcomes_are_no_work(store):
    assert store.letters.record_outcomes([]) == 0


def test_an_outcome_finds_a_letter_whose_id_is_too_long_for_its_column(store):
    store.letters.save([letter("x" * 400)])
    assert store.letters.record_outcomes([success(task_id="x" * 400)]) == 1
    assert store.letters.get("x" * 400).state is State.RESOLVED
