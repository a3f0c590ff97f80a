"""Which letters are deleted, and what open ones need."""

import pytest
from support.factories import T0, letter

from celery_dlq.api.deletion import check_reason, deletable
from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.errors import DeletionError, OpenLetters
from celery_dlq.model.states import CLOSED_STATES, State
from celery_dlq.store.base import Filter


def of(*states, **fields):
    return Filter(states=frozenset(states), **fields)


@pytest.mark.parametrize(
    ("states", "is_open", "taken"),
    [
        ((), False, CLOSED_STATES),
        ((State.DISCARDED,), False, {State.DISCARDED}),
        ((State.RESOLVED, State.DISCARDED), False, CLOSED_STATES),
        ((), True, {State.DEAD}),
        ((State.REDRIVEN,), True, {State.REDRIVEN}),
        ((State.DEAD, State.REDRIVEN), True, {State.DEAD, State.REDRIVEN}),
    ],
)
def test_the_states_of_the_letters_to_delete(states, is_open, taken):
    found = deletable(of(*states, task="charge"), is_open=is_open)
    assert found == of(*taken, task="charge")


@pytest.mark.parametrize(
    ("states", "is_open", "error", "said"),
    [
        ((State.DEAD,), False, OpenLetters, "Letters that are dead are open"),
        ((State.REDRIVEN, State.DEAD), False, OpenLetters, "are dead and redriven are open"),
        ((State.DEAD, State.RESOLVED), False, OpenLetters, "are dead are open; delete them apart"),
        ((State.DEAD, State.RESOLVED), True, DeletionError, "are resolved are closed; delete"),
        ((State.CLAIMED,), True, DeletionError, "that are claimed cannot be deleted"),
        ((State.CLAIMED,), False, DeletionError, "that are claimed cannot be deleted"),
        ((State.PARKED, State.DEAD), True, DeletionError, "that are parked cannot be deleted"),
    ],
)
def test_other_states_are_refused(states, is_open, error, said):
    with pytest.raises(DeletionError, match=said) as caught:
        deletable(of(*states), is_open=is_open)
    assert type(caught.value) is error


@pytest.mark.parametrize("why", ["", "  "])
def test_only_open_letters_need_a_reason(why):
    check_reason(why, is_open=False)
    check_reason("test data", is_open=True)
    with pytest.raises(OpenLetters, match="needs a reason"):
        check_reason(why, is_open=True)


@pytest.fixture
def queue(shop_app):
    """The queue of an app with one closed letter and one that is dead."""
    queue = DeadLetterQueue.of(shop_app)
    queue.store.letters.save([letter("closed"), letter("dead")])
    queue.store.closing.discard(Filter(ids=("closed",)), who="bob", why="", now=T0)
    return queue


def left(queue):
    found = queue.store.letters.find(Filter(states=frozenset(State))).letters
    return sorted(one.task_id for one in found)


def test_python_deletes_closed_letters(queue):
    assert queue.delete(Filter(task="charge"), who="ann") == 1
    assert left(queue) == ["dead"]
    [act] = queue.store.audit.find(act="delete").rows
    assert (act.who, act.count, act.why) == ("ann", 1, "")


def test_python_deletes_open_letters_on_request_and_with_a_reason(queue):
    with pytest.raises(OpenLetters, match="needs a reason"):
        queue.delete(Filter(ids=("dead",)), who="ann", is_open=True)
    assert queue.delete(Filter(ids=("dead",)), who="ann") == 0
    assert left(queue) == ["closed", "dead"]
    assert queue.delete(Filter(ids=("dead",)), who="ann", why="test data", is_open=True) == 1
    assert left(queue) == ["closed"]
