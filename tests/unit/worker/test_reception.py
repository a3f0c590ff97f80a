"""What a consumer has received, and whether it could take more: with Celery's own state, prefetch count and
messages."""

from __future__ import annotations

import gc
from inspect import signature
from types import SimpleNamespace

import pytest
from celery import Celery
from celery.bootsteps import CLOSE
from celery.worker import state
from kombu import Queue
from kombu.common import QoS
from support.workers.consuming import Consumer, amqp_message, virtual_message

from celery_dlq.worker.reception import Reception

SLOTS, PREFETCHED = 2, 8


class Request:
    id = "r"


@pytest.fixture
def app():
    app = Celery("unit", broker="memory://", set_as_current=False)
    app.conf.task_default_queue = "shop"
    yield app
    app.close()


@pytest.fixture
def consumer(app):
    return Consumer(app, slots=SLOTS, prefetched=PREFETCHED)


@pytest.fixture
def reception(consumer):
    reception = Reception()
    reception.join(consumer)
    return reception


@pytest.fixture
def receive(consumer, reception):
    """Connects, and receives this many messages, which stay unacknowledged."""
    handle = consumer.create_task_handler(promise=None)

    def receive(number, make=virtual_message):
        messages = [make(tag) for tag in range(number)]
        for message in messages:
            handle(message)
        return messages

    return receive


def test_every_message_is_counted_and_handed_on(consumer, reception, receive):
    sent = receive(3)
    assert (consumer.handled, reception.received) == (sent, 3)


@pytest.mark.parametrize("make", [virtual_message, amqp_message])
def test_there_is_room_until_the_prefetched_messages_are_unacknowledged(reception, receive, make):
    kept = receive(PREFETCHED - 1, make)
    assert reception.could_receive()
    kept += receive(1, make)
    assert not reception.could_receive()
    kept[0]._state = "ACK"
    assert reception.could_receive()


def test_a_message_that_no_one_can_acknowledge_any_more_takes_no_room(consumer, reception, receive):
    receive(PREFETCHED)
    consumer.handled.clear()
    gc.collect()
    assert reception.could_receive()


def test_messages_with_an_eta_leave_as_much_room_as_before(consumer, reception, receive):
    """Celery raises the prefetch count for each of them."""
    kept = []
    for _ in range(100):
        consumer.qos.increment_eventually()
        kept += receive(1)
    assert reception.could_receive()
    kept += receive(PREFETCHED)
    assert not reception.could_receive()


@pytest.mark.skipif(
    "max_prefetch" not in signature(QoS.__init__).parameters,
    reason="Celery 5.5 has no worker_eta_task_limit",
)
def test_with_a_limit_on_etas_they_take_all_room(consumer, reception, receive):
    consumer.qos.max_prefetch = PREFETCHED
    kept = []
    for _ in range(PREFETCHED):
        consumer.qos.increment_eventually()
        kept += receive(1)
    assert not reception.could_receive()


def test_on_quorum_queues_a_raised_prefetch_count_has_no_effect(app, consumer, reception, receive):
    arguments = {"x-queue-type": "quorum"}
    app.conf.task_queues = [Queue("shop", queue_arguments=arguments)]
    consumer.qos.increment_eventually(5)
    kept = receive(PREFETCHED)
    assert not reception.could_receive()
    app.conf.worker_detect_quorum_queues = False
    assert reception.could_receive()
    del kept


def test_without_a_prefetch_limit_there_is_always_room(consumer, reception, receive):
    consumer.qos = QoS(lambda **_: None, 0)
    kept = receive(1_000)
    assert reception.could_receive()
    del kept


@pytest.mark.parametrize("which", ["reserved_requests", "active_requests"])
def test_a_pool_without_a_free_slot_could_not_run_more(reception, receive, which):
    receive(0)
    requests = [Request() for _ in range(SLOTS)]
    getattr(state, which).update(requests)
    assert not reception.could_receive()
    getattr(state, which).discard(requests[0])
    assert reception.could_receive()


def test_gevent_has_as_many_slots_as_its_limit_says(consumer, reception, receive):
    """Before Celery 5.7, its number of processes is that of its running greenlets."""
    receive(0)
    consumer.pool = SimpleNamespace(is_green=True, num_processes=0, limit=SLOTS)
    assert reception.could_receive()


def test_before_its_first_connection_and_at_its_end_it_receives_nothing(consumer, reception):
    assert not reception.could_receive()
    consumer.create_task_handler()
    assert reception.could_receive()
    state.should_stop = 0  # the exit status of a warm shutdown
    try:
        assert not reception.could_receive()
    finally:
        state.should_stop = None
    consumer.blueprint.state = CLOSE
    assert not reception.could_receive()


def test_while_it_is_not_connected_old_messages_take_no_room(consumer, reception, receive):
    kept = receive(PREFETCHED)
    consumer.connection = None
    assert reception.could_receive()
    del kept


def test_a_new_connection_begins_with_no_message(consumer, reception, receive):
    kept = receive(PREFETCHED)
    consumer.create_task_handler()
    assert reception.could_receive()
    assert reception.received == len(kept)


def test_its_queues_are_those_that_are_selected(app, reception):
    assert reception.queues() == ["shop"]
    app.amqp.queues.deselect("shop")
    assert reception.queues() == []


def test_a_queue_for_one_consumer_at_a_time_is_left_out(app, reception):
    arguments = {"x-single-active-consumer": True}
    app.conf.task_queues = [Queue("shop"), Queue("one", queue_arguments=arguments)]
    assert reception.queues() == ["shop"]


class Waiting:
    """A request that the pool may have got."""

    def __init__(self, id, given=None):
        self.id, self._apply_result = id, given


@pytest.fixture
def reserve():
    """Reserves a request, as Celery does on its way to the pool."""
    kept = []

    def reserve(*args):
        kept.append(Waiting(*args))
        state.task_reserved(kept[-1])
        return kept[-1]

    return reserve


def test_a_request_that_does_not_run_although_there_is_a_slot_is_kept(reception, reserve):
    reserve("a")
    reserve("b", "the pool's")
    assert reception.kept() == {"a"}


def test_a_request_that_waits_for_a_slot_is_not_kept(reception, reserve):
    reserve("a")
    reserve("b", "the pool's")
    reserve("c", "the pool's")
    assert reception.kept() == set()


def test_without_a_result_of_the_pool_the_active_requests_run(reception, reserve):
    """The solo pool has none until the body has ended."""
    state.active_requests.add(reserve("a"))
    assert reception.kept() == set()


def test_while_one_is_alone_the_others_wait_on_purpose(consumer, reception, reserve):
    reserve("a")
    consumer.dlq.isolation.is_on = True
    assert reception.kept() == set()


def test_after_a_lost_connection_a_request_that_did_not_run_is_not_kept(reception, reserve):
    """Celery up to 5.6 does not forget it under its id."""
    state.reserved_requests.discard(reserve("a"))
    assert reception.kept() == set()
