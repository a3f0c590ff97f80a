"""Tasks that are coroutine functions, on a pool that awaits them in another thread than Celery's tracer."""

import asyncio
import contextvars
from concurrent.futures import ThreadPoolExecutor

import pytest
from celery.app import trace
from support.workers import task_tracer
from support.workers.task_tracer import Run

from celery_dlq import DLQTask, Reason
from celery_dlq.errors import AsyncTaskError

CELERYS = trace.build_tracer


class InPool:
    """A task that runs as in celery-aio-pool: called in one thread, awaited in another."""

    def __init__(self, task):
        self._task = task

    def __getattr__(self, name):
        return getattr(self._task, name)

    def __call__(self, *args, **kwargs):
        context = contextvars.copy_context()
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(context.run, asyncio.run, self._run(args, kwargs)).result()

    async def _run(self, args, kwargs):
        result = await asyncio.to_thread(self._task, *args, **kwargs)
        return await result if asyncio.iscoroutine(result) else result


def build_awaiting_tracer(name, task, **options):
    return CELERYS(name, InPool(task), **options)


@pytest.fixture
def app(app, monkeypatch):
    monkeypatch.setattr(trace, "build_tracer", build_awaiting_tracer)
    monkeypatch.setattr(task_tracer, "build_tracer", build_awaiting_tracer)
    app.conf.update(dlq_retry_base=0.01, dlq_retry_cap=0.01)
    return app


def test_a_body_that_returns_is_a_success(app):
    @app.task(base=DLQTask, bind=True)
    async def call(self, x):
        await asyncio.sleep(0)
        return x, self.request.id

    run = Run(call, 1)
    assert (run.state, run.result.retval) == ("SUCCESS", (1, "4711"))


def test_a_terminal_failure_is_the_end(app):
    @app.task(base=DLQTask)
    async def call():
        await asyncio.sleep(0)
        raise KeyError("lamp")

    run = Run(call)
    assert (run.state, run.retried) == ("FAILURE", False)
    assert (run.failure.reason, run.failure.explanation.rule) == (Reason.TERMINAL, "python.error")
    assert "await asyncio.sleep" not in run.failure.traceback
    assert "KeyError: 'lamp'" in run.failure.traceback


def test_a_transient_failure_is_retried(app):
    @app.task(base=DLQTask)
    async def call():
        raise ConnectionError("the bank is down")

    run = Run(call)
    assert (run.state, run.retried) == ("RETRY", True)
    assert run.message.headers["retries"] == 1
    last = Run(call, retries=8)
    assert (last.retried, last.failure.reason) == (False, Reason.EXHAUSTED)


def test_a_long_wait_is_parked(app):
    @app.task(base=DLQTask, bind=True)
    async def call(self):
        raise self.retry(countdown=3_600)

    run = Run(call)
    assert run.end.parking is not None
    assert run.message is None


def test_bodies_that_are_not_coroutines_are_captured_too(app):
    @app.task(base=DLQTask, bind=True)
    def call(self):
        raise self.retry(exc=ConnectionError("the bank is down"), countdown=0)

    assert Run(call).retried


def test_an_exception_that_ends_threads_ends_the_run_only(app):
    @app.task(base=DLQTask)
    async def call():
        raise SystemExit(3)

    run = Run(call)
    assert (run.failure.reason, run.failure.explanation.rule) == (Reason.TERMINAL, "python.exit")


def test_a_direct_call_and_an_eager_one_return_what_celery_would(app):
    @app.task(base=DLQTask, bind=True)
    async def call(self, x):
        return x, self.request.is_eager

    assert asyncio.run(call(1)) == (1, False)
    assert call.apply((1,)).get() == (1, True)


def test_without_such_a_pool_they_are_refused_at_registration(app, monkeypatch):
    monkeypatch.setattr(trace, "build_tracer", CELERYS)

    @app.task(base=DLQTask, name="slow-call")
    async def call(): ...

    with pytest.raises(
        AsyncTaskError, match=r"slow-call is a coroutine function.*help async-tasks"
    ):
        app.finalize()
