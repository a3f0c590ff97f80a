"""Slots that are freed by the requests that get them: one after the other, and not one in the other."""

from types import SimpleNamespace

import pytest
from kombu.asynchronous.semaphore import LaxBoundedSemaphore

from celery_dlq.worker.celery_quirks.pools import free_slots_in_turn

#: More than Python's stack has room for.
WAITING = 5_000


@pytest.fixture
def worker():
    slots = LaxBoundedSemaphore(2)
    worker = SimpleNamespace(slots=slots, _quick_release=slots.release)
    free_slots_in_turn(worker)
    return worker


def take(worker, use):
    """Wait for a slot, then call ``use``."""
    worker.slots.acquire(use)


def fill(worker):
    for _ in range(2):
        take(worker, lambda: None)


def test_thousands_that_free_their_slot_at_once_get_it_in_their_order(worker):
    fill(worker)
    seen = []

    def use(number):
        seen.append(number)
        worker._quick_release()

    for number in range(WAITING):
        take(worker, lambda number=number: use(number))
    worker._quick_release()
    assert seen == [*range(WAITING)]
    assert worker.slots.value == 1


def test_the_pool_itself_frees_a_slot(worker):
    """billiard calls the semaphore, not the worker."""
    fill(worker)
    for _ in range(WAITING):
        take(worker, worker._quick_release)
    worker.slots.release()
    assert worker.slots.value == 1


def test_an_error_of_one_keeps_no_slot_of_another(worker):
    fill(worker)
    seen = []

    def fail():
        worker._quick_release()
        raise OSError("the pool is gone")

    take(worker, fail)
    take(worker, lambda: seen.append("next"))
    with pytest.raises(OSError, match="the pool is gone"):
        worker._quick_release()
    worker._quick_release()
    assert (seen, worker.slots.value) == (["next"], 1)


def test_a_worker_without_slots_stays_as_it_is():
    worker = SimpleNamespace()
    free_slots_in_turn(worker)
    assert vars(worker) == {}
