"""Retries that cannot be published, or that the task's own apply_async() keeps back: letters."""

import contextlib

import pytest
from celery import Task
from celery.exceptions import (
    Reject,
)
from support.workers.task_tracer import Run

from celery_dlq import (
    DLQTask,
    Reason,
    Transient,
)
from celery_dlq.worker.body import retrying


def test_a_retry_that_cannot_be_published_is_dead_lettered(app):
    @app.task(base=DLQTask)
    def call():
        raise ConnectionError("bank")

    def refuse(*args, **kwargs):
        raise OSError("broker is gone")

    app.finalize()
    app.tasks[call.name].apply_async = refuse
    run = Run(call)
    assert run.state == "FAILURE"
    assert run.failure.reason is Reason.REJECTED
    assert run.failure.exception_type == "ConnectionError"
    assert "broker is gone" in run.failure.explanation.evidence


def test_nor_is_what_led_to_an_explicit_one_lost(app):
    @app.task(base=DLQTask, bind=True)
    def call(self):
        try:
            raise KeyError("eur")
        except KeyError as exc:
            self.retry(exc=exc, queue=object())

    run = Run(call)
    assert (run.state, run.failure.reason) == ("REJECTED", Reason.REJECTED)
    assert (run.failure.exception_type, run.failure.message) == ("KeyError", "'eur'")
    assert "the retry could not be published" in run.failure.explanation.evidence


class Locked(Task):
    """Keeps retries back as if they were calls by others: celery-singleton's way."""

    def apply_async(self, args=None, kwargs=None, task_id=None, **options):
        return self.AsyncResult(task_id)


class Passing(Task):
    def apply_async(self, args=None, kwargs=None, **options):
        return super().apply_async(args, kwargs, priority=3, **options)


@pytest.mark.parametrize("bases", [(DLQTask, Locked), (Locked, DLQTask)])
def test_a_retry_that_the_tasks_own_apply_async_keeps_back_is_dead_lettered(app, bases):
    @app.task(base=type("Base", bases, {"abstract": True}))
    def call():
        raise ConnectionError("bank")

    run = Run(call)
    assert (run.state, run.message) == ("FAILURE", None)
    assert (run.failure.reason, run.failure.exception_type) == (Reason.REJECTED, "ConnectionError")
    assert "the task's own apply_async() did not send it" in run.failure.explanation.evidence


def test_so_is_one_that_the_body_asks_for(app):
    @app.task(base=type("Base", (DLQTask, Locked), {"abstract": True}), bind=True)
    def call(self):
        self.retry(exc=KeyError("eur"), countdown=0)

    run = Run(call)
    assert (run.state, run.failure.reason) == ("REJECTED", Reason.REJECTED)
    assert run.failure.exception_type == "KeyError"


def test_one_that_waits_in_the_store_is_held_to_it_too(app):
    app.conf.dlq_park_after = 1

    @app.task(base=type("Base", (DLQTask, Locked), {"abstract": True}))
    def call():
        raise Transient("closed", retry_after=60)

    assert Run(call).failure.reason is Reason.REJECTED


class Routing(Task):
    def apply_async(self, args=None, kwargs=None, **options):
        return self.app.send_task(self.name, args, kwargs, priority=3, **options)


@pytest.mark.parametrize("base", [Passing, Routing])
@pytest.mark.parametrize("protocol", [1, 2])
def test_an_apply_async_that_sends_is_left_alone(app, protocol, base):
    app.conf.task_protocol = protocol

    @app.task(base=type("Base", (DLQTask, base), {"abstract": True}))
    def call():
        raise ConnectionError("bank")

    run = Run(call)
    assert run.state == "RETRY"
    assert run.message.properties["priority"] == 3


def test_so_is_one_whose_app_tells_no_receiver(app, monkeypatch):
    # As Celery before 5.7 does, once a receiver of the signal is gone.
    monkeypatch.setattr(retrying.signals.after_task_publish, "send", lambda **_: [])

    @app.task(base=type("Base", (DLQTask, Passing), {"abstract": True}))
    def call():
        raise ConnectionError("bank")

    assert Run(call).state == "RETRY"


def test_what_else_it_sends_does_not_count_as_the_retry(app):
    @app.task(base=DLQTask)
    def other(): ...

    class Telling(Task):
        def apply_async(self, args=None, kwargs=None, **options):
            other.delay()

    @app.task(base=type("Base", (DLQTask, Telling), {"abstract": True}))
    def call():
        raise ConnectionError("bank")

    run = Run(call)
    assert (run.state, run.failure.reason) == ("FAILURE", Reason.REJECTED)


def test_a_body_that_goes_on_after_a_retry_that_could_not_be_published_is_done(app):
    @app.task(base=DLQTask, bind=True)
    def call(self):
        with contextlib.suppress(Reject):
            self.retry(queue=object())

    assert Run(call).state == "SUCCESS"
