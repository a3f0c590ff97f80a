"""Eight hours of workers that live, by night 24, each with a reason to receive nothing for hours: none counts
as stalled.

The broker delivers whenever the prefetch count lets it. The prefetch count and the messages are kombu's, the
sets of requests are Celery's, and the clock is the test's own.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone

import pytest
from celery import Celery
from celery.worker import state
from support.clock import Clock
from support.workers.consuming import Consumer, virtual_message

from celery_dlq.upkeep.stall import StallWatch
from celery_dlq.worker.reception import Reception

BEGAN = datetime(2026, 11, 25, 12, 0, tzinfo=timezone.utc)
HOUR_S = 3_600
DAY_S = (24 if os.environ.get("CELERY_DLQ_TEST_ALL") else 8) * HOUR_S
SLOTS, PREFETCHED = 4, 16
QUEUE = "shop"


class Request:
    def __init__(self, message):
        self.message = message


class Day:
    """A worker, and what it does with each message that it receives.

    :param waiting: messages that wait in the queue at the beginning.
    :param every_s: seconds between two messages that come later.
    """

    def __init__(self, *, waiting=0, every_s=None):
        self.clock, self.waiting, self.every_s = Clock(), waiting, every_s
        self.app = Celery("unit", broker="memory://", set_as_current=False)
        self.app.conf.task_default_queue = QUEUE
        self.consumer = Consumer(self.app, slots=SLOTS, prefetched=PREFETCHED)
        self.consumer.create_task_handler = lambda: self.receive
        self.reception = Reception()
        self.reception.join(self.consumer)
        self.handle, self.unacknowledged, self.timers = self.consumer.create_task_handler(), [], []
        self.is_connected = True
        self.watch = StallWatch(
            "w@host", self.reception, self.ask, stall_after_s=300.0,
            monotonic=self.clock, now=lambda: BEGAN + timedelta(seconds=self.clock()),
        )  # fmt: skip
        self.looks = 0

    def receive(self, message):
        """A short task; each kind of day has its own."""
        message.ack()

    def others(self):
        """What others do to the queue before each look."""

    def ask(self, names):
        self.looks += 1
        return {QUEUE: self.waiting} if self.waiting and QUEUE in names else {}

    def after(self, seconds, act):
        self.timers.append((self.clock.now + seconds, act))

    def pass_by(self):
        """The day; the moments at which the worker counted as stalled."""
        stalled, comes_at = [], self.every_s or float("inf")
        while self.clock.now < DAY_S:
            self.clock.now += self.watch.wait_s
            while comes_at <= self.clock.now:
                self.waiting, comes_at = self.waiting + 1, comes_at + self.every_s
            self.others()
            self.run_timers()
            self.deliver()
            if self.watch.look() is not None:
                stalled.append(self.clock.now)
        return stalled

    def run_timers(self):
        due = [timer for timer in self.timers if timer[0] <= self.clock.now]
        self.timers = [timer for timer in self.timers if timer[0] > self.clock.now]
        for _, act in due:
            act()

    def deliver(self):
        consumes = QUEUE in self.app.amqp.queues.consume_from and self.is_connected
        while consumes and self.waiting and self.has_room():
            self.waiting -= 1
            message = virtual_message()
            self.unacknowledged.append(message)
            self.handle(message)

    def has_room(self):
        self.unacknowledged = [one for one in self.unacknowledged if not one.acknowledged]
        return len(self.unacknowledged) < self.consumer.qos.value


@pytest.fixture(autouse=True)
def clean():
    yield
    state.reset_state()


def test_the_model_notices_a_dead_consumer():
    day = Day(every_s=60)
    day.after(4 * HOUR_S, lambda: setattr(day, "is_connected", False))
    [at] = day.pass_by()
    assert 4 * HOUR_S + 300 <= at < 4 * HOUR_S + 300 + 60 + 10


def test_an_idle_queue():
    day = Day()
    assert day.pass_by() == []
    assert day.looks > 7_000


@pytest.mark.parametrize("every_s", [1, 50, 299, 301, 2_000])
def test_a_queue_with_little_to_do(every_s):
    assert Day(every_s=every_s).pass_by() == []


class Later(Day):
    """Messages with an eta in two hours."""

    def receive(self, message):
        self.consumer.qos.increment_eventually()
        self.after(2 * HOUR_S, lambda: self.run(message))

    def run(self, message):
        self.consumer.qos.decrement_eventually()
        message.ack()


@pytest.mark.parametrize("limit", [None, 30])
def test_a_queue_of_tasks_with_an_eta(limit):
    day = Later(waiting=100)
    day.consumer.qos.max_prefetch = limit
    assert day.pass_by() == []
    assert day.waiting == 0


class Limited(Day):
    """A rate limit of one task in twenty minutes: those that wait for a token are in no set of Celery's."""

    def __init__(self, **options):
        super().__init__(**options)
        self.bucket = []
        self.after(1_200, self.next_token)

    def receive(self, message):
        self.bucket.append(message)

    def next_token(self):
        self.after(1_200, self.next_token)
        if self.bucket:
            self.bucket.pop(0).ack()


def test_rate_limits():
    assert Limited(waiting=500).pass_by() == []


def test_a_paused_consumer():
    day = Day(every_s=5)
    day.after(HOUR_S, lambda: day.app.amqp.queues.deselect(QUEUE))
    day.after(7 * HOUR_S, lambda: day.app.amqp.queues.select_add(QUEUE))
    assert day.pass_by() == []
    assert day.waiting == 0


class Busy(Day):
    """Tasks that take three hours."""

    late = False

    def __init__(self, **options):
        super().__init__(**options)
        self.reserved = []

    def receive(self, message):
        request = Request(message)
        state.reserved_requests.add(request)
        self.reserved.append(request)
        self.fill_pool()

    def fill_pool(self):
        for request in self.reserved[:SLOTS]:
            if request in state.active_requests:
                continue
            state.active_requests.add(request)
            if not self.late:
                request.message.ack()
            self.after(3 * HOUR_S, lambda request=request: self.end(request))

    def end(self, request):
        self.reserved.remove(request)
        state.reserved_requests.discard(request)
        state.active_requests.discard(request)
        if self.late:
            request.message.ack()
        self.fill_pool()


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("prefetched", [SLOTS, PREFETCHED, 0])
def test_a_pool_that_is_full_with_long_tasks(late, prefetched):
    day = Busy(waiting=500)
    day.late, day.consumer.qos.value = late, prefetched or 1_000
    assert day.pass_by() == []


class Held(Day):
    """The worker holds each message for ten minutes, because its task only fails or the writer is full, and
    then gives it back. For some of them the prefetch count is raised."""

    spare = 20

    def __init__(self, **options):
        super().__init__(**options)
        self.held = []

    def receive(self, message):
        raised = len(self.held) < self.spare
        if raised:
            self.consumer.qos.increment_eventually()
        request = Request(message)
        state.reserved_requests.add(request)
        self.held.append(request)
        self.after(600, lambda: self.give_back(request, raised))

    def give_back(self, request, raised):
        if raised:
            self.consumer.qos.decrement_eventually()
        self.held.remove(request)
        state.reserved_requests.discard(request)
        request.message.reject()
        self.waiting += 1


def test_a_worker_that_holds_messages():
    assert Held(waiting=500).pass_by() == []


def test_an_open_circuit():
    """Its messages are parked, and acknowledged, one after the other: they are received."""
    assert Day(waiting=10, every_s=7).pass_by() == []


class OfMany(Day):
    """Other workers are always faster, and empty the queue every four minutes."""

    def others(self):
        self.is_connected = False  # for this one there is never a message left
        self.waiting = 0 if self.clock.now % 240 < 8 else 300


def test_other_workers_that_drain_the_queue():
    assert OfMany().pass_by() == []


class Batched(Day):
    """celery-batches collects messages, in no set of Celery's, until there are enough of them."""

    def __init__(self, **options):
        super().__init__(**options)
        self.collected = []

    def receive(self, message):
        self.collected.append(message)
        if len(self.collected) == PREFETCHED:
            self.after(HOUR_S, self.flush)

    def flush(self):
        for message in self.collected:
            message.ack()
        self.collected.clear()


def test_batches_that_take_an_hour():
    assert Batched(waiting=500).pass_by() == []
