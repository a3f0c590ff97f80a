"""Deliveries that have ended stay for a while: a recovery asks whether a message came again."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.factories import T0, attempt, delivery, letter, parking

from celery_dlq.model.letter import Outcome


def came_again(store, run=(0, 1), after=T0, task="shop.charge", task_id="0d3f"):
    return store.deliveries.came_again(task_id, task, run, after)


def succeed(store):
    store.letters.record_outcomes([Outcome(task_id="0d3f", redrive=0, succeeded_at=T0, worker="w")])


ENDS = {
    "it succeeded": succeed,
    "it has a letter": lambda store: store.letters.save([letter("0d3f", attempt())]),
    "its retry is parked": lambda store: store.parked.park([parking("0d3f", 60)], now=T0),
    "it was retried or dropped": lambda store: store.deliveries.forget([delivery(minutes=1)]),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_delivery_that_has_ended_counts_no_more_and_is_known(store, end):
    store.deliveries.put(delivery(minutes=1))
    assert came_again(store)
    ENDS[end](store)
    assert store.deliveries.find("0d3f", "shop.charge") == ()
    assert came_again(store)
    ENDS[end](store)
    assert came_again(store)


def test_an_earlier_delivery_is_not_a_later_one(store):
    store.deliveries.put(delivery(minutes=1))
    assert came_again(store, after=T0 + timedelta(seconds=59.999999))
    assert not came_again(store, after=T0 + timedelta(minutes=1))


def test_a_redelivered_message_that_ended_in_the_process_that_was_killed_has_ended(store):
    """The worker was killed between the record of the success and the note in its own files."""
    at = T0 + timedelta(minutes=1)
    store.deliveries.put(delivery(minutes=1, process="boot/1:7:42"))

    def is_known(process):
        return store.deliveries.came_again("0d3f", "shop.charge", (0, 1), at, process)

    assert not is_known("boot/1:7:42")
    succeed(store)
    assert is_known("boot/1:7:42")
    assert not is_known("boot/1:8:42")
    assert not is_known("")


def test_a_delivery_that_only_counts_no_more_does_not_hide_the_run_that_was_killed(store):
    """A worker that lost its connection forgets the runs that go on, and so does one that shuts down. The
    message of a run that was rejected comes back, perhaps to the same process."""
    item = delivery(minutes=1, process="boot/1:7:42")
    store.deliveries.put(item)
    store.deliveries.forget([item])
    at = T0 + timedelta(minutes=1)
    assert not store.deliveries.came_again("0d3f", "shop.charge", (0, 1), at, "boot/1:7:42")
    succeed(store)
    assert not store.deliveries.came_again("0d3f", "shop.charge", (0, 1), at, "boot/1:7:42")


@pytest.mark.parametrize(
    ("redrive", "number", "is_later"),
    [(0, 1, False), (0, 2, True), (0, 3, True), (1, 1, True)],
)
def test_the_run_or_a_later_one_counts(store, redrive, number, is_later):
    store.deliveries.put(delivery(minutes=1, redrive=redrive, attempt=number))
    assert came_again(store, run=(0, 2)) == is_later


def test_runs_of_an_earlier_redrive_do_not_count(store):
    store.deliveries.put(delivery(minutes=1, redrive=0, attempt=5))
    assert not came_again(store, run=(1, 1))


def test_other_messages_and_namesakes_do_not_count(store):
    store.deliveries.put(delivery(minutes=1))
    assert not came_again(store, task_id="another")
    assert not came_again(store, task="stock.count")


def test_a_delivery_that_begins_again_counts_again(store):
    """A worker may write a record of a delivery that was ended too early."""
    item = delivery(minutes=1)
    store.deliveries.put(item)
    store.deliveries.forget([item])
    store.deliveries.put(item)
    assert store.deliveries.find("0d3f", "shop.charge") == (item,)


@pytest.mark.parametrize("task_id", ["x" * 400, "tab\ttail ", "nul\0", "\ud800"])
def test_hostile_ids_are_found(store, task_id):
    store.deliveries.put(delivery(task_id, minutes=1))
    store.letters.save([letter(task_id)])
    assert came_again(store, task_id=task_id)
    assert not came_again(store, task_id=task_id + "y")


def test_those_that_have_ended_are_pruned_like_the_others(store):
    store.deliveries.put(delivery(minutes=1))
    succeed(store)
    assert store.deliveries.prune(T0 + timedelta(days=1)) == 1
    assert not came_again(store)
