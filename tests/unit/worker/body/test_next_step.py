"""What follows a failure, by its verdict and the options of the task."""

from types import SimpleNamespace

import pytest
from celery.app.task import Context

from celery_dlq import DLQTask, Reason, Verdict
from celery_dlq.classify import Decision
from celery_dlq.worker.body.ending import Died
from celery_dlq.worker.body.next_step import Again, next_step

TERMINAL = Decision(Verdict.TERMINAL, rule="r")
TRANSIENT = Decision(Verdict.TRANSIENT, rule="r")
GONE = ConnectionError("bank")


@pytest.fixture
def step(app):
    def step(decision, *, retries=0, budget=None, **options):
        @app.task(base=DLQTask, **options)
        def charge(): ...

        app.finalize()
        charge = app.tasks[charge.name]
        charge._budget = budget
        return next_step(charge, GONE, Context(id="4711", retries=retries), decision)

    return step


def test_a_terminal_failure_is_the_end(step):
    assert step(TERMINAL) == Died(GONE, TERMINAL, Reason.TERMINAL)


def test_a_transient_failure_runs_again_after_a_wait(step):
    again = step(TRANSIENT, retry_backoff=8.0, retry_backoff_max=600.0)
    assert isinstance(again, Again)
    assert 0.0 <= again.delay_s <= 8.0
    assert (again.decision, again.free) == (TRANSIENT, 0)


def test_the_last_attempt_is_the_end(step):
    died = step(TRANSIENT, retries=2, max_retries=2)
    assert (died.reason, died.exc) == (Reason.EXHAUSTED, GONE)


def test_so_is_a_retry_over_the_budget(step):
    over = SimpleNamespace(spend=lambda: SimpleNamespace(why="over the retry budget"))
    died = step(TRANSIENT, budget=over)
    assert (died.reason, died.why) == (Reason.BUDGET, "over the retry budget")


def test_a_throttled_run_uses_up_no_attempt(step):
    throttled = Decision(Verdict.TRANSIENT, rule="r", throttled=True)
    assert step(throttled, retries=0, max_retries=1).free == 1


def test_a_task_that_may_run_once_runs_once_also_when_it_is_throttled(step):
    throttled = Decision(Verdict.TRANSIENT, rule="r", throttled=True, retry_after=1.0)
    assert step(throttled, retries=0, max_retries=0).reason is Reason.EXHAUSTED
