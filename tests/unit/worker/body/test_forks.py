"""Bodies that fork: a run ends in the process that began it. Through Celery's own tracer."""

import os
import signal
import warnings
from dataclasses import replace

import celery
import pytest
from support.workers.task_tracer import Run

from celery_dlq import DLQTask
from celery_dlq.worker.body.batch import run_batch
from celery_dlq.worker.body.ending import current_run

#: The exit code of a child that comes back from the tracer, where Celery would go on in it.
CAME_BACK = 77


class Forks:
    """Forks the test's process in a body, and runs ``child`` in the new one."""

    def __init__(self, child):
        self.child, self.own_pid, self.code = child, os.getpid(), None

    def __call__(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # this process may have threads
            child = os.fork()
        if not child:
            signal.alarm(60)
            return self.child()
        self.code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return "the parent's"

    def leave_child(self):
        """Called where Celery would go on."""
        if os.getpid() != self.own_pid:
            os._exit(CAME_BACK)


def run(task, forks, *args):
    try:
        return Run(task, *args)
    finally:
        forks.leave_child()


def raising(exc):
    def child():
        raise exc

    return child


@pytest.mark.parametrize(
    ("child", "code"),
    [
        (raising(ConnectionError("the bank is down")), 1),
        (raising(KeyError("x")), 1),
        (raising(KeyboardInterrupt()), 1),
        (raising(SystemExit(3)), 3),
        (raising(SystemExit("no more")), 1),
        (raising(SystemExit()), 0),
        (lambda: "the child's", 0),
        (lambda: os._exit(5), 5),
    ],
    ids=["transient", "terminal", "interrupt", "exit", "exit-text", "exit-none", "returns", "leaves"],
)  # fmt: skip
def test_only_the_process_that_began_a_run_ends_it(app, child, code):
    forks = Forks(child)

    @app.task(base=DLQTask)
    def call():
        return forks()

    ended = run(call, forks)
    assert forks.code == code
    assert (ended.state, ended.result.retval, ended.message) == ("SUCCESS", "the parent's", None)


# Before 5.7, an error in the hook ends the process.
IN_A_HOOK = 0 if celery.VERSION >= (5, 7) else 1


@pytest.mark.parametrize(("where", "code"), [("in the body", 1), ("in a hook", IN_A_HOOK)])
def test_so_it_is_whatever_a_class_of_the_user_does(app, where, code):
    forks = Forks(raising(ConnectionError("the bank is down")))

    class Hooked(DLQTask):
        def __call__(self, *args, **kwargs):
            try:
                return super().__call__(*args, **kwargs)
            except ConnectionError:
                return "swallowed"

        def after_return(self, *args):
            if where == "in a hook":
                forks()  # Celery logs its error, and goes on

    @app.task(base=Hooked)
    def call():
        return forks() if where == "in the body" else 1

    assert run(call, forks).state == "SUCCESS"
    assert forks.code == code


def test_a_long_retry_that_the_forked_process_asks_for_is_sent(app):
    """It cannot be parked: only the end of the run travels to the worker's parent."""
    app.conf.dlq_park_after = 1

    def child():
        try:
            self.retry(exc=ConnectionError("x"), countdown=60)
        finally:
            current_run().waiting = replace(
                current_run().waiting, send=lambda: os.write(write, b"sent")
            )

    read, write = os.pipe()
    forks = Forks(child)

    @app.task(base=DLQTask, bind=True)
    def call(task):
        nonlocal self
        self = task
        forks()

    self = None
    assert run(call, forks).state == "SUCCESS"
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        assert (pipe.read(), forks.code) == (b"sent", 1)


def test_a_batch_that_forks_ends_in_the_process_that_began_it(app):
    forks = Forks(raising(ConnectionError("the bank is down")))

    @app.task(base=DLQTask)
    def call(messages):
        forks()

    app.finalize()
    try:
        ends = run_batch(app.tasks[call.name], [], [])
    finally:
        forks.leave_child()
    assert (ends, forks.code) == (None, 1)


@pytest.mark.parametrize("child", [raising(ConnectionError("x")), lambda: "the child's"])
def test_an_eager_call_is_the_callers(app, child):
    """No pool calls the task, so its caller gets the exception in the child, too, as from any function."""
    forks = Forks(child)

    @app.task(base=DLQTask)
    def call():
        return forks()

    try:
        result = call.apply(throw=False)
    finally:
        forks.leave_child()
    assert (result.state, forks.code) == ("SUCCESS", CAME_BACK)
