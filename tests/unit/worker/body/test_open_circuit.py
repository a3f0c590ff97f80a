"""A run that fails while the circuit of its task is open, or opens with its failure."""

from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import pytest
from support.factories import attempt
from support.workers.task_tracer import Run

from celery_dlq import (
    DeadLetterQueue,
    DLQTask,
    Reason,
)
from celery_dlq.model.headers import ATTEMPTS_HEADER, FREE_HEADER
from celery_dlq.worker.failure import write_attempts


class TestOutage:
    """The circuit of the task is open, or opens with the failure of this run."""

    @pytest.fixture
    def asked(self, app):
        asked = []

        def opens_with(*of):
            asked.append(of)
            return True

        breaker = SimpleNamespace(opens_with=opens_with)
        DeadLetterQueue.of(app).capture.__dict__["valve"] = breaker
        return asked

    def test_its_last_attempt_is_not_used_up(self, app, asked):
        @app.task(base=DLQTask, max_retries=4, dlq_breaker_failures=5)
        def charge(order, customer=""):
            raise ConnectionError("bank")

        run = Run(charge, 17, customer="acme", retries=4)
        assert (run.state, run.message.headers[FREE_HEADER]) == ("RETRY", 1)
        assert [(args, kwargs) for _, args, kwargs in asked] == [([17], {"customer": "acme"})]
        assert Run(charge, 17, retries=9, headers=dict(run.message.headers)).state == "RETRY"

    def test_without_a_breaker_it_is(self, app, asked):
        @app.task(base=DLQTask, max_retries=4)
        def charge():
            raise ConnectionError("bank")

        assert (Run(charge, retries=4).failure.reason, asked) == (Reason.EXHAUSTED, [])

    def test_a_terminal_failure_is_a_letter(self, app, asked):
        @app.task(base=DLQTask, dlq_breaker_failures=5)
        def charge():
            raise ValueError("no currency")

        assert (Run(charge).failure.reason, asked) == (Reason.TERMINAL, [])

    def test_a_task_that_may_run_once_does(self, app, asked):
        @app.task(base=DLQTask, max_retries=0, dlq_breaker_failures=5)
        def charge():
            raise ConnectionError("bank")

        assert Run(charge).failure.reason is Reason.EXHAUSTED

    def test_the_retry_window_ends_it(self, app, asked):
        @app.task(base=DLQTask, dlq_breaker_failures=5, dlq_retry_window=60)
        def charge():
            raise ConnectionError("bank")

        before = datetime.now(timezone.utc) - timedelta(seconds=90)
        headers = {ATTEMPTS_HEADER: write_attempts([attempt(1, failed_at=before)])}
        end = Run(charge, retries=1, headers=headers).failure
        assert end.explanation.evidence.endswith("the retry window of 60 s is used up")

    def test_the_retry_is_not_taken_from_the_budget(self, app, asked):
        @app.task(
            base=DLQTask, dlq_breaker_failures=5, dlq_retry_budget=0.0, dlq_retry_budget_floor=0
        )
        def charge():
            raise ConnectionError("bank")

        assert Run(charge).state == "RETRY"

    def test_a_retry_of_the_bodys_own_is_not_used_up_either(self, app, asked):
        @app.task(base=DLQTask, bind=True, max_retries=4, dlq_breaker_failures=5)
        def charge(self):
            raise self.retry(exc=ConnectionError("bank"), countdown=1)

        run = Run(charge, retries=4)
        assert (run.state, run.message.headers[FREE_HEADER]) == ("RETRY", 1)
        asked.clear()
        charge.app.dead_letter_queue.capture.valve.opens_with = lambda *_: False
        headers = dict(run.message.headers)
        assert Run(charge, retries=4, headers=headers).state == "RETRY", "4 of 5 are used up"
        assert Run(charge, retries=5, headers=headers).failure.reason is Reason.EXHAUSTED

    def test_a_look_later_without_an_error_uses_up_its_own(self, app, asked):
        @app.task(base=DLQTask, bind=True, max_retries=4, dlq_breaker_failures=5)
        def charge(self):
            raise self.retry(countdown=1)

        assert (Run(charge, retries=4).failure.reason, asked) == (Reason.EXHAUSTED, [])
