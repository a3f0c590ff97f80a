"""Runs of redelivered messages, remembered until they end."""

from __future__ import annotations

from datetime import timedelta

import pytest
from factories import T0, attempt, delivery, letter

from celery_dlq.letter import Outcome


@pytest.fixture
def three(store):
    """Three deliveries of one message, written newest first."""
    made = [delivery(number=number, minutes=number) for number in (1, 2, 3)]
    for item in reversed(made):
        store.put_delivery(item)
    return made


def test_deliveries_come_back_whole_and_oldest_first(store, three):
    assert store.deliveries("0d3f", "shop.charge") == tuple(three)
    assert store.deliveries("another", "shop.charge") == ()


def test_a_death_that_was_seen_replaces_what_was_known_of_the_delivery(store, three):
    died = delivery(number=2, minutes=2, death="signal 11 (SIGSEGV)", alone=True)
    store.put_delivery(died)
    store.put_delivery(died)
    assert store.deliveries("0d3f", "shop.charge") == (three[0], died, three[2])


def test_just_the_named_deliveries_are_forgotten(store, three):
    store.put_delivery(delivery("another"))
    store.forget_deliveries(three[:2])
    store.forget_deliveries(three[:2])
    store.forget_deliveries([])
    assert store.deliveries("0d3f", "shop.charge") == (three[2],)
    assert len(store.deliveries("another", "shop.charge")) == 1


def test_a_letter_ends_its_messages_deliveries(store, three):
    store.put_delivery(delivery("another"))
    store.save([letter("0d3f", attempt()), letter("9c1e")])
    assert store.deliveries("0d3f", "shop.charge") == ()
    assert len(store.deliveries("another", "shop.charge")) == 1


def test_a_success_ends_its_messages_deliveries_also_without_a_letter(store, three):
    outcome = Outcome(task_id="0d3f", redrive=0, succeeded_at=T0, worker="w")
    assert store.record_outcomes([outcome]) == 0
    assert store.deliveries("0d3f", "shop.charge") == ()


def test_old_deliveries_are_pruned(store, three):
    assert store.prune_deliveries(three[2].started_at) == 2
    assert store.deliveries("0d3f", "shop.charge") == (three[2],)
    assert store.prune_deliveries(T0 + timedelta(days=1)) == 1


@pytest.mark.parametrize("task_id", ["x" * 400, "tab\ttail ", "nul\0", "\ud800"])
def test_hostile_task_ids_are_told_apart(store, task_id):
    item = delivery(task_id, worker="w" * 300, death="\0" + "d" * 70_000)
    store.put_delivery(item)
    store.put_delivery(delivery(task_id + "y"))
    [found] = store.deliveries(task_id, "shop.charge")
    assert (found.task_id, found.number, found.started_at) == (task_id, 2, item.started_at)
    assert len(found.death) > 65_536
    store.save([letter(task_id)])
    assert store.deliveries(task_id, "shop.charge") == ()
    assert len(store.deliveries(task_id + "y", "shop.charge")) == 1


def test_two_tasks_under_one_id_are_told_apart(store):
    long_name = "shop." + "x" * 300
    for number, task in enumerate(("shop.charge", "stock.count", long_name)):
        store.put_delivery(delivery(task=task, minutes=number))
    for task in ("shop.charge", "stock.count", long_name):
        assert [item.task for item in store.deliveries("0d3f", task)] == [task]
