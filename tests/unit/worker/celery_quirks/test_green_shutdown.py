import signal
import threading
from functools import partial
from types import SimpleNamespace

import pytest
from celery.platforms import EX_FAILURE
from celery.worker import state

from celery_dlq.worker.admission import Admission
from celery_dlq.worker.celery_quirks.pools import GreenShutdown


class Pool:
    """Starts what it is given later, as an event loop does."""

    is_green = True

    def __init__(self):
        self.spawned = []

    def terminate_job(self, pid, signal=None):
        raise NotImplementedError

    def spawn_n(self, function, *args):
        self.spawned.append(lambda: function(*args))

    def run(self):
        while self.spawned:
            self.spawned.pop(0)()


class Consumer:
    def __init__(self, pool):
        self.pool, self.ran, self.cancelled = pool, [], 0
        self.on_task_request = self.ran.append

    def cancel_active_requests(self):
        self.cancelled += 1


@pytest.fixture
def handlers(monkeypatch):
    """The handlers of signals, by number."""
    handlers = {}
    monkeypatch.setattr(
        "celery_dlq.worker.celery_quirks.pools.signal",
        SimpleNamespace(signal=handlers.__setitem__, getsignal=handlers.get),
    )
    return handlers


@pytest.fixture
def consumer():
    return Consumer(Pool())


@pytest.fixture
def shutdown(consumer, monkeypatch):
    monkeypatch.setattr(state, "should_terminate", None)
    shutdown = GreenShutdown()
    Admission([shutdown]).join(consumer, consumer.on_task_request)
    return shutdown


def celerys(name, seen, then=None):
    """A handler as Celery's are."""

    def handler(number, frame):
        seen.append(name)
        if then:
            then()

    handler.__name__, handler.__module__ = name, "celery.apps.worker"
    return handler


def test_celerys_handlers_run_in_greenlets(handlers, consumer, shutdown):
    seen = []
    handlers[signal.SIGQUIT] = celerys("worker_Cold", seen)
    shutdown.start()
    handlers[signal.SIGQUIT](signal.SIGQUIT, None)
    assert seen == []
    consumer.pool.run()
    assert seen == ["worker_Cold"]


def test_so_do_those_that_it_sets_for_the_next_signal(handlers, consumer, shutdown):
    seen = []
    second = celerys("worker_Cold", seen)
    handlers[signal.SIGINT] = celerys(
        "worker_Warm", seen, lambda: handlers.update({signal.SIGINT: second})
    )
    shutdown.start()
    handlers[signal.SIGINT](signal.SIGINT, None)
    consumer.pool.run()
    handlers[signal.SIGINT](signal.SIGINT, None)
    assert seen == ["worker_Warm"]
    consumer.pool.run()
    assert seen == ["worker_Warm", "worker_Cold"]


def test_handlers_of_others_are_left_alone(handlers, shutdown):
    handlers[signal.SIGINT] = signal.default_int_handler
    shutdown.start()
    assert handlers == {signal.SIGINT: signal.default_int_handler}


def test_in_another_thread_no_handler_is_set(handlers, shutdown):
    handlers[signal.SIGQUIT] = handler = celerys("worker_Cold", [])
    thread = threading.Thread(target=shutdown.start)
    thread.start()
    thread.join()
    assert handlers == {signal.SIGQUIT: handler}


def test_a_cold_shutdown_begins_nothing_more(handlers, consumer, shutdown):
    handlers[signal.SIGTERM] = celerys("worker_Warm", [])
    handlers[signal.SIGQUIT] = celerys("worker_Cold", [])
    shutdown.start()
    handlers[signal.SIGTERM](signal.SIGTERM, None)
    consumer.on_task_request("taken")
    handlers[signal.SIGQUIT](signal.SIGQUIT, None)
    consumer.on_task_request("goes back")
    assert consumer.ran == ["taken"]


def out_of_order():
    raise RuntimeError("this socket is used by another greenlet")


@pytest.mark.parametrize("then", [None, out_of_order])
def test_a_cold_shutdown_ends_the_worker_whatever_fails_on_its_way(
    handlers, consumer, shutdown, then
):
    seen = []
    handlers[signal.SIGQUIT] = celerys("worker_Cold", seen, then)
    shutdown.start()
    handlers[signal.SIGQUIT](signal.SIGQUIT, None)
    assert state.should_terminate is None, "its tasks have their time first"
    consumer.pool.run()
    assert (seen, state.should_terminate) == (["worker_Cold"], EX_FAILURE)


def test_what_celery_says_of_its_end_stands(handlers, consumer, shutdown, monkeypatch):
    seen = []
    say = partial(monkeypatch.setattr, state, "should_terminate", 7)
    handlers[signal.SIGQUIT] = celerys("worker_Cold", seen, say)
    shutdown.start()
    handlers[signal.SIGQUIT](signal.SIGQUIT, None)
    consumer.pool.run()
    assert state.should_terminate == 7


def test_a_warm_shutdown_terminates_nothing(handlers, consumer, shutdown):
    handlers[signal.SIGTERM] = celerys("worker_Warm", [])
    shutdown.start()
    handlers[signal.SIGTERM](signal.SIGTERM, None)
    consumer.pool.run()
    assert state.should_terminate is None


@pytest.mark.parametrize(("cold", "times"), [(True, 1), (1, 1), (None, 0), (False, 0)])
def test_what_still_runs_at_the_end_of_a_cold_shutdown_is_cancelled(
    consumer, shutdown, monkeypatch, cold, times
):
    monkeypatch.setattr(state, "should_terminate", cold)
    shutdown.stop()
    assert consumer.cancelled == times


def test_other_pools_are_left_alone(handlers, monkeypatch):
    handlers[signal.SIGQUIT] = handler = celerys("worker_Cold", [])
    monkeypatch.setattr(state, "should_terminate", True)
    consumer = Consumer(SimpleNamespace())
    run, shutdown = consumer.on_task_request, GreenShutdown()
    Admission([shutdown]).join(consumer, consumer.on_task_request)
    shutdown.start()
    shutdown.stop()
    assert consumer.on_task_request == run
    assert (handlers, consumer.cancelled) == ({signal.SIGQUIT: handler}, 0)
