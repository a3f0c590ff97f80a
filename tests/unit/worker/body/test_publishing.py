"""Retries that cannot be published, or that the task's own apply_async() keeps back: letters."""

import contextlib
from functools import partial

import pytest
from celery import Task
from celery.exceptions import (
    Ignore,
    Reject,
)
from support.workers.task_tracer import Run

from celery_dlq import (
    DLQTask,
    Reason,
    Transient,
)
from celery_dlq.worker.body import again


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
    said = "the retry could not be published: apply_async() raised OSError: broker is gone"
    assert run.failure.explanation.evidence.endswith(said)


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


class NoTransaction(Exception):
    """Raised by an after-commit hook outside of a transaction; without a message."""


def test_the_letter_says_what_an_apply_async_has_raised_and_nothing_of_results(app):
    def refuse(self, *args, **options):
        raise NoTransaction

    @app.task(base=type("Base", (DLQTask,), {"apply_async": refuse}), bind=True)
    def call(self):
        self.retry(exc=KeyError("eur"), countdown=0)

    run = Run(call)
    assert (run.state, run.failure.reason) == ("REJECTED", Reason.REJECTED)
    evidence = run.failure.explanation.evidence
    assert evidence.startswith("the retry could not be published: apply_async() raised ")
    assert evidence.endswith("NoTransaction")


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


class OnCommit(Task):
    """Sends when the transaction of its thread is committed, as with Django's ``on_commit``."""

    waiting = None

    def apply_async(self, args=None, kwargs=None, **options):
        send = partial(super().apply_async, args, kwargs, **options)
        if OnCommit.waiting is None:
            return send()
        OnCommit.waiting.append(send)
        return None


@contextlib.contextmanager
def atomic():
    OnCommit.waiting = waiting = []
    try:
        yield
    finally:
        OnCommit.waiting = None
    for send in waiting:
        send()


@pytest.mark.parametrize("protocol", [1, 2])
def test_a_retry_that_is_sent_on_commit_is_a_retry(app, protocol):
    app.conf.task_protocol = protocol

    @app.task(base=type("Base", (DLQTask, OnCommit), {"abstract": True}), bind=True)
    def call(self):
        with atomic():
            self.retry(throw=False, countdown=0)
            assert self.retry(throw=False) is self.request._dlq_successor, "once"
        return "done"

    run = Run(call)
    assert (run.state, run.result.retval, run.failure) == ("SUCCESS", "done", None)
    assert run.message is not None


def test_it_is_one_if_the_body_raises_it_after_the_commit(app):
    @app.task(base=type("Base", (DLQTask, OnCommit), {"abstract": True}), bind=True)
    def call(self):
        with atomic():
            again = self.retry(exc=KeyError("eur"), throw=False, countdown=0)
        raise again

    run = Run(call)
    assert (run.state, run.retried, run.failure) == ("RETRY", True, None)
    assert run.message is not None


@pytest.fixture
def transactions(tmp_path):
    """Django's transactions, on a database."""
    django = pytest.importorskip("django")
    from django.conf import settings

    if not settings.configured:
        database = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "shop.sqlite3")}
        settings.configure(DATABASES={"default": database}, USE_TZ=True)
        django.setup()
    from django.db import connection, transaction

    yield transaction
    connection.close()


@pytest.mark.parametrize("commits", [True, False])
def test_so_it_is_with_django(app, transactions, commits):
    from celery.contrib.django.task import DjangoTask

    class SentOnCommit(DLQTask, DjangoTask):
        abstract = True

        def apply_async(self, *args, **options):
            transactions.on_commit(lambda: DLQTask.apply_async(self, *args, **options))

    @app.task(base=SentOnCommit, bind=True)
    def call(self):
        with transactions.atomic():
            self.retry(exc=KeyError("eur"), throw=False, countdown=0)
            transactions.set_rollback(not commits)

    run = Run(call)
    assert (run.message is not None) is commits
    assert run.state == ("SUCCESS" if commits else "REJECTED")
    assert (run.failure is None) is commits


@pytest.mark.parametrize("end", ["returns", "raises it", "ignores", "fails", "fails for good"])
def test_one_whose_transaction_is_rolled_back_is_dead_lettered(app, end):
    @app.task(base=type("Base", (DLQTask, OnCommit), {"abstract": True}), bind=True)
    def call(self):
        OnCommit.waiting = []
        again = self.retry(exc=KeyError("eur"), throw=False, countdown=0)
        if end == "raises it":
            raise again
        if end == "ignores":
            raise Ignore
        if end == "fails":
            raise ConnectionError("bank")
        if end == "fails for good":
            raise ValueError("bank")

    try:
        run = Run(call)
    finally:
        OnCommit.waiting = None
    assert run.message is None
    assert run.failure.exception_type == ("ValueError" if end == "fails for good" else "KeyError")
    why = Reason.TERMINAL if end == "fails for good" else Reason.REJECTED
    assert run.failure.reason is why


def test_what_else_the_body_sends_after_it_does_not_count_as_the_retry(app):
    @app.task(base=type("Base", (DLQTask, OnCommit), {"abstract": True}), bind=True)
    def call(self, page=1):
        OnCommit.waiting = []
        self.retry(exc=KeyError("eur"), throw=False, countdown=0)
        OnCommit.waiting = None
        self.apply_async((2,))

    run = Run(call)
    assert (run.state, run.failure.reason) == ("REJECTED", Reason.REJECTED)


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
    monkeypatch.setattr(again.signals.after_task_publish, "send", lambda **_: [])

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
