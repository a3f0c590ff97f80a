"""Runs of redelivered messages, remembered until they end."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest
from support.factories import T0, attempt, delivery, letter

from celery_dlq.model.letter import Outcome


@pytest.fixture
def three(store):
    """Three deliveries of one message, written newest first."""
    made = [delivery(number=number, minutes=number) for number in (1, 2, 3)]
    for item in reversed(made):
        store.deliveries.put(item)
    return made


@pytest.mark.on_servers
def test_deliveries_come_back_whole_and_oldest_first(store, three):
    assert store.deliveries.find("0d3f", "shop.charge") == tuple(three)
    assert store.deliveries.find("another", "shop.charge") == ()


@pytest.mark.on_servers
def test_a_death_that_was_seen_replaces_the_record_of_the_delivery(store, three):
    died = delivery(number=2, minutes=2, death="signal 11 (SIGSEGV)", alone=True)
    store.deliveries.put(died)
    store.deliveries.put(died)
    assert store.deliveries.find("0d3f", "shop.charge") == (three[0], died, three[2])


@pytest.mark.on_servers
def test_just_the_named_deliveries_are_forgotten(store, three):
    store.deliveries.put(delivery("another"))
    store.deliveries.forget(three[:2])
    store.deliveries.forget(three[:2])
    store.deliveries.forget([])
    assert store.deliveries.find("0d3f", "shop.charge") == (three[2],)
    assert len(store.deliveries.find("another", "shop.charge")) == 1


def test_a_letter_ends_its_messages_deliveries(store, three):
    store.deliveries.put(delivery("another"))
    store.letters.save([letter("0d3f", attempt()), letter("9c1e")])
    assert store.deliveries.find("0d3f", "shop.charge") == ()
    assert len(store.deliveries.find("another", "shop.charge")) == 1


def test_a_success_ends_its_messages_deliveries_also_without_a_letter(store, three):
    outcome = Outcome(task_id="0d3f", redrive=0, succeeded_at=T0, worker="w")
    assert store.letters.record_outcomes([outcome]) == 0
    assert store.deliveries.find("0d3f", "shop.charge") == ()


@pytest.mark.on_servers
def test_old_deliveries_are_pruned(store, three):
    assert store.deliveries.prune(three[2].started_at) == 2
    assert store.deliveries.find("0d3f", "shop.charge") == (three[2],)
    assert store.deliveries.prune(T0 + timedelta(days=1)) == 1


@pytest.mark.parametrize("task_id", ["x" * 400, "tab\ttail ", "nul\0", "\ud800"])
@pytest.mark.on_servers
def test_hostile_task_ids_are_told_apart(store, task_id):
    item = delivery(task_id, worker="w" * 300, death="\0" + "d" * 70_000)
    store.deliveries.put(item)
    store.deliveries.put(delivery(task_id + "y"))
    [found] = store.deliveries.find(task_id, "shop.charge")
    assert (found.task_id, found.number, found.started_at) == (task_id, 2, item.started_at)
    assert len(found.death) > 65_536
    store.letters.save([letter(task_id)])
    assert store.deliveries.find(task_id, "shop.charge") == ()
    assert len(store.deliveries.find(task_id + "y", "shop.charge")) == 1


def test_two_tasks_under_one_id_are_told_apart(store):
    long_name = "shop." + "x" * 300
    for number, task in enumerate(("shop.charge", "stock.count", long_name)):
        store.deliveries.put(delivery(task=task, minutes=number))
    for task in ("shop.charge", "stock.count", long_name):
        assert [item.task for item in store.deliveries.find("0d3f", task)] == [task]


def start(store, *wanted):
    """Begin those whose message has no earlier delivery; how many earlier ones each has."""

    def decide(one, known):
        earlier = [it for it in known if (it.task_id, it.task) == (one.task_id, one.task)]
        return SimpleNamespace(started=None if earlier else one, earlier=len(earlier))

    begun = store.deliveries.begin([(one, decide) for one in wanted])
    return [one.earlier for one in begun]


@pytest.mark.on_servers
def test_many_deliveries_begin_together(store, three):
    wanted = [delivery(str(number)) for number in range(40)]
    assert start(store, *wanted, delivery(minutes=9)) == [0] * 40 + [3]
    for one in wanted:
        assert store.deliveries.find(one.task_id, one.task) == (one,)
    assert store.deliveries.find("0d3f", "shop.charge") == tuple(three)
    assert start(store, *wanted) == [1] * 40


@pytest.mark.on_servers
def test_those_that_begin_together_are_told_apart(store):
    ids = ["x" * 400, "x" * 400 + "y", "tab\ttail ", "tab\ttail", "nul\0", "\ud800", "Case", "case"]
    wanted = [
        delivery(task_id, task=task, minutes=minutes)
        for task_id in ids
        for minutes, task in enumerate(("a" * 300, "A"))
    ]
    for one in wanted:
        assert start(store, one) == [0]
    assert start(store, *wanted) == [1] * len(wanted)


def test_none_begins_if_none_may(store, three):
    assert start(store, delivery(minutes=9)) == [3]
    assert start(store) == []
