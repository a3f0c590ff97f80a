"""A run sends at most one message in the place of its own, whatever its body calls."""

from __future__ import annotations

import pytest
from celery import Celery
from celery.app.trace import reset_worker_optimizations
from celery.exceptions import Ignore, Reject
from hypothesis import given
from hypothesis import strategies as st
from support.workers.parent_requests import held_desk, request_maker
from support.workers.task_tracer import Run

from celery_dlq import DLQTask, Reason

#: What a body may do, and whether that is meant to end it.
ACTS = {
    "retry": lambda task: task.retry(countdown=0),
    "retry for an error": lambda task: task.retry(exc=ConnectionError("bank"), countdown=0),
    "retry and go on": lambda task: task.retry(throw=False, countdown=0),
    "long retry": lambda task: task.retry(countdown=10**6),
    "replace": lambda task: task.replace(task.si()),
    "send": lambda task: task.apply_async(),
    "ignore": lambda task: _raise(Ignore()),
    "give back": lambda task: _raise(Reject("not mine", requeue=True)),
    "reject": lambda task: _raise(Reject("not mine", requeue=False)),
    "fail for a while": lambda task: _raise(ConnectionError("bank")),
    "fail for good": lambda task: _raise(KeyError("eur")),
}


def _raise(exc):
    raise exc


class Shop:
    """An app with one task, which does what it is told."""

    def __init__(self, **options):
        self.acts, self.sent_others = (), 0
        self.app = Celery("unit", broker="memory://", set_as_current=False)
        self.app.conf.task_ignore_result = True

        @self.app.task(base=DLQTask, bind=True, name="charge", shared=False, **options)
        def charge(task):
            for act, is_caught in self.acts:
                self.sent_others += act == "send"
                try:
                    ACTS[act](task)
                except BaseException:
                    if not is_caught:
                        raise

        self.app.finalize()
        self.task = self.app.tasks["charge"]
        self.queued()

    def run(self, *acts, retries=0):
        self.acts = acts
        self.last = Run(self.task, retries=retries)
        return self.last

    def queued(self):
        with self.app.connection_for_write() as connection:
            queue = connection.SimpleQueue("celery").queue
            return list(iter(lambda: queue.get(no_ack=True), None))

    def sent(self):
        """The messages that the last run sent with its own id."""
        first = [] if self.last.message is None else [self.last.message]
        found = [*first, *self.queued()]
        own = [message for message in found if message.headers["id"] == "4711"]
        assert len(found) - len(own) == self.sent_others
        return own

    def goes_back(self, run):
        """Whether the worker's parent gives the message back after ``run``."""
        if run.state == "SUCCESS":
            return False
        desk = held_desk(self.app)
        request = request_maker(self.app)(task="charge")
        self.task.acks_late = True
        request.on_failure(run.einfo, return_ok=True)
        desk.release()
        return "reject True" in request.done

    def close(self):
        reset_worker_optimizations(self.app)
        self.app.close()


@pytest.fixture
def shop():
    shop = Shop(max_retries=8, retry_backoff=0.01)
    yield shop
    shop.close()


_BODIES = st.lists(st.tuples(st.sampled_from(sorted(ACTS)), st.booleans()), max_size=6)


@given(acts=_BODIES)
def test_whatever_a_body_calls_its_run_has_one_successor_at_most(acts):
    shop = Shop(max_retries=8, retry_backoff=0.01)
    try:
        run = shop.run(*acts)
        parked = run.end.parking is not None
        assert len(shop.sent()) + shop.goes_back(run) + parked <= 1
    finally:
        shop.close()


def test_a_failure_after_a_retry_that_was_sent_sends_no_other(shop):
    run = shop.run(("retry and go on", False), ("fail for a while", False))
    assert (run.state, run.retried, run.failure) == ("RETRY", True, None)
    assert [message.headers["retries"] for message in shop.sent()] == [1]


def test_one_message_of_a_task_with_eight_retries_runs_nine_times(shop):
    waiting, runs = [0], 0
    while waiting:
        run = shop.run(
            ("retry and go on", False), ("fail for a while", False), retries=waiting.pop()
        )
        runs += 1
        waiting += [message.headers["retries"] for message in shop.sent()]
        assert runs <= 9
    assert runs == 9
    assert run.failure.reason is Reason.EXHAUSTED


def test_another_retry_is_the_first_one(shop):
    given_back = []
    ACTS["compare"] = lambda task: given_back.append(task.retry(throw=False))
    try:
        shop.run(("compare", False), ("compare", False))
    finally:
        del ACTS["compare"]
    first, second = given_back
    assert first is second
    assert len(shop.sent()) == 1


def test_a_terminal_failure_is_a_letter_all_the_same(shop):
    run = shop.run(("retry and go on", False), ("fail for good", False))
    assert run.failure.reason is Reason.TERMINAL
    assert len(shop.sent()) == 1


def test_a_replaced_message_is_not_retried(shop):
    run = shop.run(("replace", True), ("fail for a while", False))
    assert run.state == "IGNORED"
    assert len(shop.sent()) == 1


def test_the_end_of_a_run_that_retried_itself_does_not_go_back_either(shop):
    """Its ``on_retry`` rejects the message."""
    shop.task.on_retry = lambda *_: _raise(Reject("again", requeue=True))
    run = shop.run(("fail for a while", False))
    assert len(shop.sent()) == 1
    assert not shop.goes_back(run)
