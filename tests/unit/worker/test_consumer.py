"""The order in which a message passes the guards of a worker."""

import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
from celery.worker import state
from kombu import Connection
from kombu.common import QoS
from support.factories import letter
from support.workers.parent_requests import arrivals, charging_app, held_desk

from celery_dlq.model.headers import RELEASE_HEADER
from celery_dlq.worker import consumer as capture_module

COPY = {RELEASE_HEADER: "here.4711/1"}


class Consumer:
    """A consumer whose pool keeps what it is given; its timer calls when the test lets it."""

    def __init__(self, app, ran):
        self.app, self.controller, self.timer = app, self, self
        self.connection = SimpleNamespace(default_channel=self)
        self.pool, self.qos, self.ran = self, SimpleNamespace(value=4), ran
        self.qos.increment_eventually = self.qos.decrement_eventually = lambda *_: self.qos.value
        self.on_task_request = self.original = ran.append

    def call_repeatedly(self, seconds, call):
        return SimpleNamespace(cancel=lambda: None)

    def call_after(self, seconds, call): ...


@pytest.fixture
def app(tmp_path):
    return charging_app(dlq_breaker_streak=2, dlq_spool_dir=str(tmp_path))


@pytest.fixture
def desk(app):
    desk = held_desk(app)
    accepting = SimpleNamespace(accept=lambda keys: [True for _ in keys])
    desk.store = SimpleNamespace(parked=accepting)
    return desk


@pytest.fixture
def capture(app, desk):
    capture = app.dead_letter_queue.capture
    yield capture
    capture.close()


@pytest.fixture
def consumer(app, capture):
    consumer = Consumer(app, [])
    capture.admission.join(consumer, consumer.ran.append)
    return consumer


@pytest.fixture
def arrive(app, consumer):
    return arrivals(app, consumer)


def fail(capture):
    for _ in range(2):
        capture.valve.note(letter(task="shop.charge"))


class Suspect:
    """A request that may have killed a worker."""

    id = "suspect"


def isolate(capture):
    suspect = Suspect()
    state.task_reserved(suspect)
    capture.isolation.enter(suspect, lambda alone: None, lambda then: then())
    return suspect


def test_a_message_that_nothing_keeps_runs(arrive, consumer):
    request = arrive()
    assert consumer.ran == [request]


def test_the_store_is_not_asked_about_a_copy_whose_task_only_fails(arrive, capture, consumer, desk):
    fail(capture)
    arrive(**COPY)
    assert (consumer.ran, desk.waiting) == ([], [])


def test_a_held_copy_that_is_let_go_is_asked_about(arrive, capture, consumer, desk):
    fail(capture)
    request = arrive(**COPY)
    capture.valve.own.succeeded("shop.charge")
    capture.valve.look()
    assert (consumer.ran, len(desk.waiting)) == ([], 1)
    desk.release()
    assert consumer.ran == [request]


def test_a_copy_that_the_store_accepts_still_waits_for_one_that_is_alone(
    arrive, capture, consumer, desk
):
    request = arrive(**COPY)
    suspect = isolate(capture)
    desk.release()
    assert consumer.ran == []
    state.task_ready(suspect)
    capture.isolation._tick()
    assert consumer.ran == [request]


def test_at_its_end_the_worker_gets_its_function_back(capture, consumer):
    assert consumer.on_task_request != consumer.original
    capture.close()
    assert consumer.on_task_request == consumer.original


def test_it_shows_that_its_worker_lives_until_the_worker_has_ended(capture, monkeypatch):
    monkeypatch.setattr(capture_module, "BEAT_S", 0.001)
    shown = threading.Semaphore(0)
    capture.flight_recorder.beat = shown.release
    capture.show_signs_of_life()
    capture.show_signs_of_life()  # after a lost connection
    for _ in range(3):
        assert shown.acquire(timeout=60)
    [thread] = [one for one in threading.enumerate() if one.name == "dlq-signs-of-life"]
    capture.close()
    thread.join(60)
    assert not thread.is_alive()


class RedisChannel:
    """As much of kombu's Redis channel as is looked at."""

    ack_emulation, handlers = True, {"BRPOP": None}
    global_keyprefix, unacked_key, unacked_index_key = "", "unacked", "unacked_index"
    connection = SimpleNamespace(client=Connection("redis://here/0"))
    _brpop_read = None

    def __init__(self):
        self.visibility_timeout = 40.0
        self.qos = SimpleNamespace(**dict.fromkeys(
            ("append", "ack", "reject", "restore_by_tag"), lambda *_: None
        ))  # fmt: skip


@pytest.mark.parametrize("restores", [True, False])
def test_messages_are_noted_and_renewed_unless_that_is_off(capture, restores):
    capture.app.settings = replace(capture.app.settings, restore_unacked=restores)
    capture.flight_recorder.prepare()
    channel, tags = RedisChannel(), capture.flight_recorder._own.path
    capture.keep_unacknowledged(channel)
    channel.qos.append(None, "tag")
    assert bool(list(tags.glob("*.tags"))) is restores
    assert (capture._unacknowledged is not None) is restores
    channel.qos.ack("tag")


def test_signs_of_life_are_given_often_enough_for_the_visibility_timeout(capture, monkeypatch):
    renewed = threading.Event()
    channel = RedisChannel()
    channel.visibility_timeout = 0.004
    capture.keep_unacknowledged(channel)
    monkeypatch.setattr(capture._unacknowledged, "renew", renewed.set)
    capture.show_signs_of_life()
    assert renewed.wait(30)


@pytest.mark.parametrize("urgent", [True, False])
@pytest.mark.parametrize("is_in_loop", [True, False])
def test_another_message_comes_while_one_waits_for_the_writer(
    capture, consumer, desk, urgent, is_in_loop
):
    """Other threads wait themselves, and Celery counts without a lock."""
    consumer.qos, desk.is_in_loop = QoS(lambda **_: None, 4), is_in_loop
    capture.write(letter(), lambda: None, urgent=urgent)
    assert consumer.qos.value == 4 + (urgent and is_in_loop)
    desk.release()
    assert consumer.qos.value == 4
