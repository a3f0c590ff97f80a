"""The retry budget through Celery's own tracer; storms on real workers are in tests/integration."""

import pytest
from celery.app.trace import build_tracer
from celery.exceptions import MaxRetriesExceededError
from support.clock import Clock
from support.workers.task_tracer import Run

from celery_dlq import DLQTask, Reason, Verdict
from celery_dlq.errors import SettingsError
from celery_dlq.worker.body import again
from celery_dlq.worker.body.report import reporting


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Time stands still: a test's runs all count."""
    clock = Clock(1_000.0)
    whole = again.RetryBudget
    monkeypatch.setattr(again, "RetryBudget", lambda share, floor: whole(share, floor, clock))
    return clock


def fails(app, **options):
    @app.task(base=DLQTask, **options)
    def charge():
        raise ConnectionError("bank")

    return charge


def explicitly(app, *, raises, **wish):
    @app.task(base=DLQTask, bind=True, dlq_retry_budget=0.0, dlq_retry_budget_floor=0)
    def charge(self):
        try:
            raise raises
        except type(raises):
            self.retry(**wish)

    return charge


def states(task, times, **request):
    return [Run(task, **request).state for _ in range(times)]


def test_without_a_setting_retries_have_no_budget(app):
    task = fails(app)
    assert states(task, 20) == ["RETRY"] * 20
    assert task._budget is None


def test_over_its_budget_a_transient_failure_is_a_letter(app):
    task = fails(app, dlq_retry_budget=0.2, dlq_retry_budget_floor=0)
    assert states(task, 10) == [*["FAILURE"] * 4, "RETRY", *["FAILURE"] * 4, "RETRY"]
    run = Run(task)
    assert (run.failure.reason, run.failure.explanation.verdict) == (
        Reason.BUDGET, Verdict.TRANSIENT,
    )  # fmt: skip
    assert "2 retries for 11 first runs" in run.failure.explanation.evidence
    assert (run.message, run.failure.attempts[-1].delay_s) == (None, None)


def test_a_retry_that_fails_asks_too_and_earns_nothing(app):
    task = fails(app, dlq_retry_budget=1.0, dlq_retry_budget_floor=0)
    assert states(task, 2, retries=1) == ["FAILURE", "FAILURE"]
    assert states(task, 1) == ["RETRY"]
    assert states(task, 2, retries=1) == ["FAILURE", "FAILURE"]


def test_successes_are_traffic(app):
    @app.task(base=DLQTask, dlq_retry_budget=0.2, dlq_retry_budget_floor=0)
    def charge(works):
        if not works:
            raise ConnectionError("bank")

    assert [Run(charge, True).state for _ in range(9)] == ["SUCCESS"] * 9
    assert [Run(charge, False).state for _ in range(3)] == ["RETRY", "RETRY", "FAILURE"]


def test_the_budget_is_whole_again_after_a_while(app, clock):
    task = fails(app, dlq_retry_budget=0.0, dlq_retry_budget_floor=1)
    assert states(task, 2) == ["RETRY", "FAILURE"]
    clock.now += 10
    assert states(task, 2) == ["RETRY", "FAILURE"]


def test_each_task_has_a_budget_of_its_own(app):
    app.conf.update(dlq_retry_budget=0.0, dlq_retry_budget_floor=1)
    one = fails(app)

    @app.task(base=DLQTask, dlq_retry_budget=None)
    def other():
        raise ConnectionError("bank")

    assert states(one, 2) == ["RETRY", "FAILURE"]
    assert states(other, 3) == ["RETRY"] * 3


def test_the_last_attempt_is_exhausted_and_costs_nothing(app):
    task = fails(app, dlq_retry_budget=0.0, dlq_retry_budget_floor=1, max_retries=1)
    assert Run(task, retries=1).failure.reason is Reason.EXHAUSTED
    assert states(task, 2) == ["RETRY", "FAILURE"]


def test_a_terminal_failure_costs_nothing(app):
    @app.task(base=DLQTask, dlq_retry_budget=0.0, dlq_retry_budget_floor=1)
    def charge(currency):
        raise ConnectionError("bank") if currency else ValueError("no currency")

    assert Run(charge, "").failure.reason is Reason.TERMINAL
    assert Run(charge, "eur").state == "RETRY"


@pytest.mark.parametrize("error", [LookupError("not there yet"), ConnectionError("bank")])
def test_a_retry_of_the_bodys_own_for_an_error_is_counted(app, error):
    given = Run(explicitly(app, raises=error, exc=error, countdown=1))
    assert (given.state, given.message) == ("FAILURE", None)
    assert given.failure.reason is Reason.BUDGET
    assert given.failure.message == str(error) or given.failure.message == repr(str(error))
    assert given.failure.explanation.verdict is Verdict.TRANSIENT
    assert given.failure.explanation.rule == "task.retry"
    assert "over the retry budget" in given.failure.explanation.evidence


def test_a_retry_without_an_exception_is_refused_as_celery_does(app):
    failure = Run(explicitly(app, raises=LookupError("not there yet"))).failure
    assert failure.reason is Reason.BUDGET
    assert failure.exception_type == "celery.exceptions.MaxRetriesExceededError"
    assert "LookupError: not there yet" in failure.traceback


def test_a_body_may_answer_the_refusal(app):
    @app.task(base=DLQTask, bind=True, dlq_retry_budget=0.0, dlq_retry_budget_floor=0)
    def charge(self):
        try:
            raise ConnectionError("bank")
        except ConnectionError:
            try:
                self.retry()
            except MaxRetriesExceededError:
                return "later"

    assert Run(charge).result.retval == "later"


def test_a_body_that_looks_again_later_is_no_retry_of_a_failure(app):
    @app.task(base=DLQTask, bind=True, dlq_retry_budget=0.0, dlq_retry_budget_floor=0)
    def poll(self):
        self.retry(countdown=10)

    assert states(poll, 5) == ["RETRY"] * 5


def test_the_last_attempt_of_the_bodys_own_is_exhausted_and_costs_nothing(app):
    @app.task(base=DLQTask, bind=True, dlq_retry_budget=0.0, dlq_retry_budget_floor=1)
    def charge(self):
        self.retry(exc=LookupError("not there yet"), max_retries=1)

    assert Run(charge, retries=1).failure.reason is Reason.EXHAUSTED
    assert states(charge, 2) == ["RETRY", "FAILURE"]


def test_an_eager_call_has_no_budget(app):
    @app.task(
        base=DLQTask, autoretry_for=(ConnectionError,), max_retries=3,
        dlq_retry_budget=0.0, dlq_retry_budget_floor=0,
    )  # fmt: skip
    def charge():
        calls.append(1)
        raise ConnectionError("bank")

    calls = []
    charge.apply()
    assert len(calls) == 4


def test_a_new_tracer_gives_nothing_back(app):
    """A worker makes its tasks' tracers anew when its connection was lost."""
    task = fails(app, dlq_retry_budget=0.0, dlq_retry_budget_floor=1)
    assert states(task, 1) == ["RETRY"]
    task.__trace__ = build_tracer(task.name, task, app=app)
    assert states(task, 1) == ["FAILURE"]


def test_without_a_budget_the_tracer_is_not_touched(app):
    def tracer(uuid, args, kwargs, request): ...

    assert again.counted(tracer, None) is tracer
    assert reporting(again.counted(tracer, None)).__code__ is reporting(tracer).__code__


def test_celerys_own_tasks_have_no_budget(app):
    app.conf.update(dlq_retry_budget=0.0, dlq_retry_budget_floor=0)

    @app.task(base=DLQTask, name="celery.own")
    def own(): ...

    app.finalize()
    assert again.budget_of(app.tasks["celery.own"]) is None


@pytest.mark.parametrize(
    "option",
    [
        {"dlq_retry_budget": 20},
        {"dlq_retry_budget": "0.2"},
        {"dlq_retry_budget": True},
        {"dlq_retry_budget_floor": -1},
        {"dlq_retry_budget_floor": None},
    ],
)
def test_an_option_that_is_not_allowed_names_the_task(app, option):
    fails(app, name="shop.charge", **option)
    [name] = option
    with pytest.raises(
        SettingsError,
        match=rf"^Task shop\.charge: {name} = .* is not a .*See `celery dlq help settings`",
    ):
        app.finalize()


def test_so_does_an_annotation(app):
    app.conf.task_annotations = {"shop.charge": {"dlq_retry_budget": 1.5}}
    fails(app, name="shop.charge")
    with pytest.raises(SettingsError, match=r"dlq_retry_budget = 1\.5 is not a number from 0 to 1"):
        app.finalize()
