"""Who judges an error: the task's options and rules, its classify(), the app's rules, and raised verdicts."""

import pytest
from support.workers.task_tracer import Run

from celery_dlq import (
    Decision,
    DLQTask,
    Reason,
    Rule,
    Terminal,
    Transient,
    Verdict,
)
from celery_dlq.model.headers import FREE_HEADER
from celery_dlq.worker.failure import read_attempts


class Outage(Exception):
    pass


class Permanent(Outage):
    pass


def test_celerys_own_names_keep_their_meaning(app):
    options = {
        "autoretry_for": (Outage,),
        "dont_autoretry_for": (Permanent,),
        "throws": (KeyError,),
    }

    @app.task(base=DLQTask, **options)
    def call(name):
        raise {"outage": Outage, "permanent": Permanent, "key": KeyError}[name]()

    assert Run(call, "outage").state == "RETRY"
    assert Run(call, "permanent").failure.explanation.rule == "task.dont_autoretry_for"
    assert Run(call, "key").failure.explanation.rule == "task.throws"


def test_an_option_that_is_set_anew_counts_from_the_next_failure(app):
    @app.task(base=DLQTask)
    def call():
        raise Outage

    assert Run(call).failure.explanation.rule == "default"
    call.throws = (Outage,)
    assert Run(call).failure.explanation.rule == "task.throws"
    call.throws, call.autoretry_for = (), [Outage]
    assert Run(call).state == "RETRY"


def test_autoretry_is_not_done_twice(app):
    @app.task(base=DLQTask, autoretry_for=(Outage,), max_retries=2)
    def call():
        raise Outage

    assert "_orig_run" not in vars(app.tasks[call.name])
    run = Run(call, retries=2)
    assert run.failure.reason is Reason.EXHAUSTED


def test_a_tasks_rules_come_before_the_apps_and_the_built_in(app):
    app.conf.dlq_terminal = ["ConnectionError"]

    @app.task(base=DLQTask, dlq_rules=[Rule(ConnectionResetError, "transient", name="ours")])
    def call(reset):
        raise ConnectionResetError if reset else ConnectionAbortedError

    assert Run(call, True).state == "RETRY"
    assert Run(call, False).failure.explanation.rule == "dlq_terminal"


@pytest.mark.parametrize(
    ("answer", "state", "rule"),
    [
        (Verdict.TRANSIENT, "RETRY", "task.classify"),
        ("terminal", "FAILURE", "task.classify"),
        (Decision(Verdict.TERMINAL, rule="mine"), "FAILURE", "mine"),
        (None, "FAILURE", None),
        (1 / 2, "FAILURE", None),
    ],
)
def test_classify_can_be_overridden(app, answer, state, rule):
    class Own(DLQTask):
        abstract = True

        def classify(self, exc):
            return answer

    @app.task(base=Own)
    def call():
        raise KeyError

    run = Run(call)
    assert run.state == state
    if state == "FAILURE" and rule:
        assert run.failure.explanation.rule == rule


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit, KeyboardInterrupt])
def test_a_classify_that_raises_does_not_cost_the_failure(app, caplog, error):
    class Own(DLQTask):
        abstract = True

        def classify(self, exc):
            raise error

    @app.task(base=Own)
    def call():
        raise KeyError

    assert Run(call).failure.exception_type == "KeyError"
    assert error.__name__ in caplog.text


def test_a_misspelt_answer_of_classify_leaves_it_to_the_rules(app, caplog):
    class Own(DLQTask):
        abstract = True

        def classify(self, exc):
            return "transiant"

    @app.task(base=Own)
    def call():
        raise ConnectionError

    assert Run(call).state == "RETRY"
    assert "'transiant' is not a valid Verdict" in caplog.text


class TestRaisedVerdicts:
    def test_a_letter_is_about_what_was_wrapped(self, app):
        @app.task(base=DLQTask, max_retries=0)
        def charge(order):
            try:
                {}[order]
            except KeyError as exc:
                raise Transient(exc, retry_after=-1) from exc

        failure = Run(charge, "o-1").failure
        assert (failure.reason, failure.explanation.rule) == (Reason.EXHAUSTED, "raised.transient")
        assert (failure.exception_type, failure.message) == ("KeyError", "'o-1'")
        assert failure.attempts[-1].exception_type == "KeyError"
        assert "celery_dlq.Transient" in failure.traceback
        assert failure.traceback.index("KeyError: 'o-1'") < failure.traceback.index("direct cause")

    def test_what_was_never_raised_is_grouped_by_where_it_was_wrapped(self, app):
        @app.task(base=DLQTask)
        def charge():
            raise Terminal(KeyError("x"))

        failure = Run(charge).failure
        assert failure.exception_type == "KeyError"
        assert failure.grounds.frames[-1].endswith(":charge")

    def test_a_terminal_one_is_not_retried_by_a_list_of_everything(self, app):
        @app.task(base=DLQTask, autoretry_for=(Exception,))
        def charge():
            raise Terminal("the account is closed")

        failure = Run(charge).failure
        assert (failure.reason, failure.exception_type) == (Reason.TERMINAL, "celery_dlq.Terminal")
        assert failure.message == "the account is closed"

    def test_the_tasks_own_classify_has_the_last_word(self, app):
        class Strict(DLQTask):
            abstract = True

            def classify(self, exc):
                return "terminal"

        @app.task(base=Strict)
        def charge():
            raise Transient("busy")

        assert Run(charge).failure.explanation.rule == "task.classify"

    def test_the_wait_is_kept_and_uses_up_no_attempt(self, app):
        @app.task(base=DLQTask, max_retries=1)
        def charge():
            raise Transient(ConnectionError("bank"), retry_after=20)

        run = Run(charge, retries=3, headers={FREE_HEADER: 2})
        assert run.state == "RETRY"
        assert run.message.headers[FREE_HEADER] == 3
        assert run.message.headers["retries"] == 4
        [tried] = read_attempts(run.message.headers)
        assert (tried.number, tried.exception_type) == (4, "ConnectionError")
        assert 20 <= tried.delay_s <= 50


class TestShortForms:
    def test_they_are_the_tasks_own_and_asked_before_the_apps(self, app):
        app.conf.dlq_terminal = ["KeyError"]
        app.conf.dlq_transient = ["ValueError"]

        @app.task(base=DLQTask, dlq_transient=["KeyError"], dlq_terminal=(ValueError,))
        def charge(known):
            raise ValueError("x") if known else KeyError("x")

        assert Run(charge, False).state == "RETRY"
        assert Run(charge, True).failure.explanation.rule == "task.dlq_terminal"
