from __future__ import annotations

import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.factories import T0, attempt, letter, operation

from celery_dlq.model.letter import Outcome
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter
from celery_dlq.store.redrive.sendings import Known, judge
from celery_dlq.store.sql import SQLStore

REDRIVEN = Filter(states=frozenset({State.REDRIVEN}))


def minutes(number: float):
    return T0 + timedelta(minutes=number)


def claim(store, of: str, token: str, now: float = 1, wanted: Filter | None = None) -> None:
    made = operation(of) if wanted is None else operation(of, wanted=wanted)
    at = {"lease_until": minutes(now + 1), "now": minutes(now)}
    assert store.claims.take(made, token=token, limit=500, **at).letters


def confirm(store, of: str, token: str, task_id: str = "a") -> None:
    assert store.claims.confirm(of, token, {task_id: ""}, now=minutes(2)) == 1


def may(store, copy: str, redrive: int = 1, task_id: str = "a") -> bool:
    (answer,) = store.sendings.accept([(task_id, redrive, copy)])
    return answer


def test_the_first_copy_that_comes_runs_and_may_be_delivered_again(store):
    store.letters.save([letter("a")])
    claim(store, "one", "t")
    claim(store, "one", "u", now=5)
    confirm(store, "one", "u")
    assert may(store, "u")
    assert not may(store, "t")
    assert may(store, "u")


def test_the_earlier_copy_runs_when_it_comes_first(store):
    store.letters.save([letter("a")])
    claim(store, "one", "t")
    assert may(store, "t")
    claim(store, "one", "u", now=5)
    confirm(store, "one", "u")
    assert not may(store, "u")
    assert may(store, "t")


def test_a_copy_of_another_operation_is_a_copy(store):
    store.letters.save([letter("a")])
    claim(store, "one", "t")
    assert may(store, "t")
    claim(store, "two", "u", now=5)
    assert not may(store, "u")
    store.claims.release("two", "u", ["a"])
    claim(store, "three", "v", now=5)
    assert not may(store, "v")


def test_a_redrive_after_which_there_was_another_one_does_not_run(store):
    store.letters.save([letter("a")])
    claim(store, "one", "t")
    confirm(store, "one", "t")
    claim(store, "two", "u", wanted=REDRIVEN)
    assert not may(store, "t")
    assert may(store, "u", redrive=2)
    assert not may(store, "t")


@pytest.fixture
def overtaken(store):
    """A letter that one operation has claimed twice. In between, the first claim ended without a word, and
    another operation redrove the letter."""
    both = Filter(states=frozenset({State.DEAD, State.REDRIVEN}))
    store.letters.save([letter("a")])
    claim(store, "one", "t", wanted=both)
    claim(store, "two", "u", now=5)
    confirm(store, "two", "u")
    claim(store, "one", "v", now=9, wanted=both)
    return store


def test_a_letter_that_was_redriven_in_between_is_claimed_for_a_new_redrive(overtaken):
    assert not may(overtaken, "u")
    assert may(overtaken, "v", redrive=2)
    assert not may(overtaken, "t")


@pytest.mark.on_servers
def test_a_letter_that_was_redriven_in_between_is_released_as_redriven(overtaken):
    assert overtaken.claims.release("one", "v", ["a"]) == 1
    found = overtaken.letters.get("a")
    assert (found.state, found.redrive_count) == (State.REDRIVEN, 1)
    assert may(overtaken, "u")


def test_a_later_redrive_that_was_skipped_stops_no_earlier_one(store):
    store.letters.save([letter("a")])
    claim(store, "one", "t")
    confirm(store, "one", "t")
    claim(store, "two", "u", wanted=REDRIVEN)
    store.claims.skip("two", "u", {"a": "too old"}, now=minutes(2))
    assert may(store, "t")


@pytest.mark.parametrize("asked_before", [True, False])
@pytest.mark.parametrize("succeeds", [True, False])
def test_a_redrive_that_has_ended_does_not_run_again(store, asked_before, succeeds):
    store.letters.save([letter("a")])
    claim(store, "one", "t")
    if asked_before:
        assert may(store, "t")
    confirm(store, "one", "t")
    if succeeds:
        ran = Outcome(task_id="a", redrive=1, succeeded_at=minutes(3), worker="w")
        store.letters.record_outcomes([ran])
    else:
        store.letters.save([letter("a", attempt(redrive=1, minutes=3))])
    assert not may(store, "t")
    assert not may(store, "u")


def test_a_redrive_that_counts_as_unknown_may_still_run(store):
    store.letters.save([letter("a")])
    claim(store, "one", "t")
    confirm(store, "one", "t")
    assert store.sendings.expire(sent_before=minutes(60), now=minutes(99)) == 1
    assert may(store, "t")


def test_an_unknown_redrive_may_run(store):
    store.letters.save([letter("a")])
    assert may(store, "t")
    assert may(store, "u")
    assert may(store, "t", task_id="nobody's")
    claim(store, "one", "t")
    assert may(store, "x", redrive=2)


@pytest.mark.on_servers
def test_each_question_of_a_batch_has_its_own_answer(store):
    store.letters.save([letter(name) for name in "abc"])
    claim(store, "one", "t")
    assert may(store, "old", task_id="b")
    keys = [
        ("a", 1, "t"),
        ("b", 1, "t"),
        ("a", 1, "u"),
        ("?", 1, "t"),
        ("c", 2, "t"),
        ("c", 1, "t"),
    ]
    assert store.sendings.accept(keys) == [True, False, False, True, True, True]
    assert store.sendings.accept([]) == []


@pytest.mark.on_servers
def test_ids_and_copies_of_any_text_are_recognized(store):
    long, copy = "x" * 400, "\x00" + "y" * 300
    store.letters.save([letter(long)])
    claim(store, "one", "t")
    assert may(store, copy, task_id=long)
    assert may(store, copy, task_id=long)
    assert not may(store, "t", task_id=long)


@pytest.mark.on_servers
def test_copies_asked_for_at_once_are_accepted_once(store):
    patient = SQLStore(store.database.url.render_as_string(hide_password=False), timeout=30)
    names = [f"{number:03}" for number in range(60)]
    patient.letters.save([letter(name) for name in names])
    claim(patient, "one", "t")
    copies = [f"c{number}" for number in range(6)]
    barrier = threading.Barrier(len(copies) + 2)

    def ask(number: int):
        keys = [(name, 1, copies[number]) for name in names]
        barrier.wait(30)
        return patient.sendings.accept(keys[::-1] if number % 2 else keys)

    def mark():
        barrier.wait(30)
        return patient.claims.confirm("one", "t", dict.fromkeys(names, ""), now=minutes(2))

    def end():
        barrier.wait(30)
        ran = [Outcome(task_id=name, redrive=1, succeeded_at=T0, worker="w") for name in names[::3]]
        return patient.letters.record_outcomes(ran)

    with ThreadPoolExecutor(len(copies) + 2) as pool:
        marked, ended = pool.submit(mark), pool.submit(end)
        answers = list(pool.map(ask, range(len(copies))))
    assert marked.result() + ended.result() in range(60, 81)
    runs = [row if number % 2 == 0 else row[::-1] for number, row in enumerate(answers)]
    times = dict(zip(names, map(sum, zip(*runs, strict=True)), strict=True))
    assert all(times[name] in (0, 1) for name in names[::3])
    assert all(times[name] == 1 for name in names if name not in names[::3])
    patient.close()


keys = st.tuples(st.sampled_from("ab"), st.integers(1, 3), st.sampled_from("xyz"))


@given(
    batches=st.lists(st.lists(keys, max_size=5), max_size=6),
    newest=st.integers(0, 3),
    ended=st.frozensets(st.tuples(st.sampled_from("ab"), st.integers(1, 3))),
)
def test_one_copy_of_each_known_redrive_runs_whatever_is_asked(batches, newest, ended):
    accepted = {(task_id, redrive): None for task_id in "ab" for redrive in range(1, newest + 1)}
    ran = defaultdict(set)
    for batch in batches:
        answers, more = judge(Known(dict.fromkeys("ab", newest), dict(accepted), ended), batch)
        assert all(accepted[key] is None for key in more)
        accepted |= more
        for (task_id, redrive, copy), answer in zip(batch, answers, strict=True):
            if redrive < newest or (task_id, redrive) in ended:
                assert not answer
            elif redrive > newest:
                assert answer
            else:
                assert answer == (accepted[task_id, redrive] == copy)
                ran[task_id, redrive] |= {copy} if answer else set()
    assert all(len(copies) <= 1 for copies in ran.values())
