"""DLQTask through Celery's own tracer, in one process; real workers are in tests/integration."""

import asyncio
import contextlib
import json
import pickle
from datetime import datetime, timedelta, timezone

import gevent
import pytest
from celery import Celery, Task, _state, shared_task
from celery.app.trace import reset_worker_optimizations
from celery.exceptions import (
    Ignore,
    MaxRetriesExceededError,
    Reject,
    Retry,
    WorkerShutdown,
    WorkerTerminate,
)
from factories import attempt
from pydantic import BaseModel
from tracing import Run

from celery_dlq import Decision, DLQTask, Reason, Rule, Terminal, Transient, Verdict
from celery_dlq.errors import AsyncTaskError, SettingsError, TaskAborted
from celery_dlq.headers import ATTEMPTS_HEADER, FREE_HEADER, REDRIVE_HEADER
from celery_dlq.worker.body import retrying
from celery_dlq.worker.body.failure import read_attempts, type_name, write_attempts


def test_a_success_is_a_success(app):
    @app.task(base=DLQTask)
    def add(x, y):
        return x + y

    run = Run(add, 1, y=2)
    assert (run.state, run.result.retval, run.message) == ("SUCCESS", 3, None)


def test_a_terminal_failure_leaves_its_note(app):
    @app.task(base=DLQTask)
    def charge(order):
        raise KeyError(order)

    run = Run(charge, "o-1")
    assert (run.state, run.message) == ("FAILURE", None)
    assert run.failure.reason is Reason.TERMINAL
    assert run.failure.explanation.verdict is Verdict.TERMINAL
    assert (run.failure.exception_type, run.failure.message) == ("KeyError", "'o-1'")
    assert run.failure.frames[-1].endswith(":charge")
    assert [(a.number, a.redrive, a.delay_s) for a in run.failure.attempts] == [(1, 0, None)]


def test_the_letters_traceback_is_the_one_that_celery_shows(app):
    @app.task(base=DLQTask)
    def charge(order):
        try:
            {}[order]
        except KeyError as exc:
            raise ValueError("gr\u00fc\u00df \x00") from exc

    run = Run(charge, "o-1")
    assert run.einfo.traceback.replace("\x00", "\\u0000") == run.failure.traceback
    assert "KeyError: 'o-1'" in run.failure.traceback
    assert run.failure.traceback.endswith("ValueError: gr\u00fc\u00df \\u0000\n")


def test_an_exception_that_cannot_be_pickled_keeps_its_own_traceback(app):
    class Local(Exception):
        pass

    @app.task(base=DLQTask)
    def charge():
        try:
            {}["eur"]
        except KeyError as exc:
            raise Local("here only") from exc

    failure = Run(charge).failure
    assert failure.exception_type.endswith("Local")
    assert "KeyError: 'eur'" in failure.traceback
    assert failure.traceback.endswith("Local: here only\n")


def test_a_call_of_the_users_that_raises_something_else_leaves_the_note_whole(app):
    class Own(DLQTask):
        abstract = True

        def __call__(self, *args, **kwargs):
            try:
                return super().__call__(*args, **kwargs)
            except KeyError:
                raise RuntimeError("translated") from None

    @app.task(base=Own)
    def charge():
        raise KeyError("eur")

    failure = Run(charge).failure
    assert failure.exception_type == "KeyError"
    assert failure.traceback.endswith("KeyError: 'eur'\n")


def test_what_goes_to_the_workers_parent_has_no_dead_weight(app):
    @app.task(base=DLQTask)
    def charge(order):
        raise KeyError("eur") if order else ConnectionError("bank")

    failed, retried = Run(charge, 1), Run(charge, 0)
    assert (failed.state, retried.state) == ("FAILURE", "RETRY")
    for run in (failed, retried):
        assert len(pickle.dumps(run.einfo)) < 5_000
        assert run.einfo.tb is None
        assert "in __call__" in run.einfo.traceback


def test_a_transient_failure_is_retried_with_its_history(app):
    @app.task(base=DLQTask)
    def charge(order):
        raise ConnectionError("bank")

    run = Run(charge, "o-1", headers={"tenant": "acme", "x-death": [1], REDRIVE_HEADER: 2})
    assert run.state == "RETRY"
    headers = run.message.headers
    assert (headers["retries"], headers["tenant"], headers[REDRIVE_HEADER]) == (1, "acme", 2)
    assert "x-death" not in headers
    [tried] = read_attempts(headers)
    assert (tried.number, tried.redrive, tried.exception_type) == (1, 2, "ConnectionError")
    assert 0 <= tried.delay_s <= 0.2
    assert (tried.rule, tried.evidence, tried.path) == (
        "os.network", "type=ConnectionError", "ConnectionError",
    )  # fmt: skip


def test_the_last_attempt_exhausts(app):
    @app.task(base=DLQTask, max_retries=2)
    def charge():
        raise ConnectionError("bank")

    now = datetime.now(timezone.utc)
    earlier = tuple(attempt(n, failed_at=now) for n in (1, 2))
    run = Run(charge, retries=2, headers={ATTEMPTS_HEADER: write_attempts(earlier)})
    assert (run.state, run.message) == ("FAILURE", None)
    assert run.failure.reason is Reason.EXHAUSTED
    assert run.failure.explanation.verdict is Verdict.TRANSIENT
    assert [a.number for a in run.failure.attempts] == [1, 2, 3]
    assert "3 of 3 attempts" in run.failure.explanation.evidence


def test_the_retry_window_exhausts_too(app):
    @app.task(base=DLQTask, dlq_retry_window=60)
    def charge():
        raise ConnectionError("bank")

    first = attempt(1, failed_at=datetime.now(timezone.utc) - timedelta(seconds=61))
    run = Run(charge, retries=1, headers={ATTEMPTS_HEADER: write_attempts([first])})
    assert run.failure.reason is Reason.EXHAUSTED


@pytest.mark.parametrize("control", [Ignore("no"), Reject("no", requeue=False), Retry("later")])
def test_control_flow_is_never_an_error(app, control):
    @app.task(base=DLQTask)
    def steer():
        raise control

    run = Run(steer)
    assert (
        run.state
        == {"Ignore": "IGNORED", "Reject": "REJECTED", "Retry": "RETRY"}[type(control).__name__]
    )
    assert run.failure is None


def test_an_explicit_retry_is_respected(app):
    @app.task(base=DLQTask, bind=True)
    def poll(self):
        raise self.retry(countdown=7)

    run = Run(poll)
    assert run.state == "RETRY"
    [tried] = read_attempts(run.message.headers)
    assert (tried.rule, tried.delay_s) == ("task.retry", 7.0)


@pytest.mark.parametrize(
    ("raises", "expected"),
    [(LookupError("never"), "LookupError"), (None, MaxRetriesExceededError.__name__)],
)
def test_an_explicit_retry_that_is_exhausted_is_dead_lettered_as_exhausted(app, raises, expected):
    @app.task(base=DLQTask, bind=True, max_retries=1)
    def poll(self):
        raise self.retry(exc=raises)

    run = Run(poll, retries=1)
    assert run.failure.reason is Reason.EXHAUSTED
    assert run.failure.exception_type.endswith(expected)


def test_another_error_after_a_swallowed_exhaustion_is_judged_by_itself(app):
    @app.task(base=DLQTask, bind=True, max_retries=0)
    def poll(self):
        with contextlib.suppress(LookupError):
            self.retry(exc=LookupError())
        raise KeyError("mine")

    assert Run(poll).failure.reason is Reason.TERMINAL


def test_an_explicit_retry_without_countdown_takes_the_backoff(app):
    @app.task(base=DLQTask, bind=True)
    def poll(self):
        raise self.retry()

    assert read_attempts(Run(poll).message.headers)[0].delay_s <= 0.2


def test_a_declared_default_retry_delay_keeps_its_meaning(app):
    @app.task(base=DLQTask, bind=True, default_retry_delay=33)
    def poll(self):
        raise self.retry()

    eta = datetime.fromisoformat(Run(poll).message.headers["eta"])
    assert 20 < (eta - datetime.now(timezone.utc)).total_seconds() < 34


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


@pytest.mark.parametrize(
    ("options", "low", "high"),
    [
        ({}, 0.0, 0.2),
        ({"retry_backoff": 2.5, "retry_backoff_max": 100}, 0.0, 2.5),
        ({"retry_backoff": 2.5, "retry_jitter": False}, 2.5, 2.5),
        ({"retry_backoff": True}, 0.0, 1.0),
        ({"retry_backoff": False, "default_retry_delay": 9}, 9, 9),
        ({"retry_backoff": 0, "default_retry_delay": 9}, 9, 9),
        ({"default_retry_delay": 9}, 9, 9),
        ({"retry_backoff": -1, "retry_jitter": False}, 1.0, 1.0),
        ({"retry_kwargs": {"countdown": 5}}, 5, 5),
        ({"retry_kwargs": {"countdown": 5}, "retry_backoff": False}, 5, 5),
        ({"retry_kwargs": {"countdown": 5}, "retry_backoff": 2, "retry_jitter": False}, 2.0, 2.0),
        ({"retry_backoff": 50, "retry_backoff_max": 3.5, "retry_jitter": False}, 3.5, 3.5),
    ],
)
def test_the_schedule_is_the_tasks(app, options, low, high):
    @app.task(base=DLQTask, **options)
    def call():
        raise ConnectionError

    [tried] = read_attempts(Run(call).message.headers)
    assert low <= tried.delay_s <= high


def test_retry_kwargs_limit_the_attempts_and_leave_no_trace(app):
    @app.task(base=DLQTask, retry_kwargs={"max_retries": 7})
    def call():
        raise ConnectionError

    assert Run(call, retries=6).state == "RETRY"
    assert Run(call, retries=7).failure.reason is Reason.EXHAUSTED
    assert "override_max_retries" not in vars(call)


def test_retry_kwargs_may_name_any_option_of_retry(app):
    @app.task(base=DLQTask, retry_kwargs={"priority": 7, "throw": True})
    def call():
        raise ConnectionError

    run = Run(call)
    assert (run.state, run.message.properties["priority"]) == ("RETRY", 7)


def test_the_apps_settings_are_the_defaults(app):
    app.conf.update(dlq_max_attempts=9, dlq_retry_base=3.0, dlq_retry_cap=4.0, dlq_retry_window=50)

    @app.task(base=DLQTask)
    def call(): ...

    @app.task(base=DLQTask, max_retries=1, retry_backoff=1.5)
    def own(): ...

    app.finalize()
    assert (
        call.max_retries,
        call.retry_backoff,
        call.retry_backoff_max,
        call.dlq_retry_window,
    ) == (8, 3.0, 4.0, 50)
    assert (own.max_retries, own.retry_backoff) == (1, 1.5)


def test_task_annotations_win(app):
    app.conf.task_annotations = {"*": {"max_retries": 1}}

    @app.task(base=DLQTask)
    def call(): ...

    app.finalize()
    assert call.max_retries == 1


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


def test_a_body_that_goes_on_after_a_retry_that_could_not_be_published_is_done(app):
    @app.task(base=DLQTask, bind=True)
    def call(self):
        with contextlib.suppress(Reject):
            self.retry(queue=object())

    assert Run(call).state == "SUCCESS"


@pytest.mark.parametrize(("countdown", "sent"), [(0.4, 0), (0.6, 1), (0, 0), (7, 7)])
def test_an_explicit_countdown_on_quorum_queues_is_one_that_celery_takes(
    app, countdown, sent, monkeypatch
):
    @app.task(base=DLQTask, bind=True)
    def call(self):
        self.retry(countdown=countdown)

    monkeypatch.setattr(retrying, "detect_quorum_queues", lambda *_: (True, "jobs"))
    monkeypatch.setattr(
        "celery.app.task.Task.retry", lambda self, *args, **_: given.append(args[5])
    )
    given = []
    Run(call)
    assert given == [sent]


@pytest.mark.parametrize(
    "exc", [gevent.GreenletExit(), gevent.Timeout(), WorkerTerminate(1), WorkerShutdown(0)]
)
def test_an_end_from_outside_gets_through(app, exc):
    @app.task(base=DLQTask)
    def call():
        raise exc

    with pytest.raises(type(exc)):
        Run(call)


@pytest.mark.parametrize(
    "exc",
    [
        MemoryError("all"),
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        asyncio.CancelledError(),
    ],
)
def test_what_would_kill_the_worker_becomes_a_failure(app, exc):
    @app.task(base=DLQTask)
    def call():
        raise exc

    run = Run(call)
    assert run.state == "FAILURE"
    assert isinstance(run.result.info.retval, TaskAborted)
    assert run.failure.exception_type == type_name(type(exc))
    assert run.failure.explanation.rule == "task.aborted"
    assert run.failure.traceback.splitlines()[-1].startswith(type_name(type(exc)))


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


def test_hooks_of_the_users_that_forget_super_cost_nothing(app):
    class Own(DLQTask):
        abstract = True

        def on_failure(self, exc, task_id, args, kwargs, einfo):
            pass

    @app.task(base=Own)
    def call():
        raise KeyError

    assert Run(call).failure.reason is Reason.TERMINAL


def test_a_mixin_behind_the_base_keeps_its_call(app):
    class Counting(Task):
        abstract = True
        calls = 0

        def __call__(self, *args, **kwargs):
            type(self).calls += 1
            return super().__call__(*args, **kwargs)

    class Both(DLQTask, Counting):
        abstract = True

    @app.task(base=Both)
    def call():
        raise KeyError

    assert Run(call).failure.reason is Reason.TERMINAL
    assert type(app.tasks[call.name]).calls == 1


def test_a_direct_call_is_a_function_call(app):
    @app.task(base=DLQTask)
    def call():
        raise ConnectionError

    with pytest.raises(ConnectionError):
        call()


def test_a_direct_call_inside_a_task_is_one_too(app):
    @app.task(base=DLQTask, bind=True)
    def call(self, deep=False):
        if deep:
            raise ConnectionError
        try:
            self(deep=True)
        except ConnectionError:
            return "caught"

    run = Run(call)
    assert (run.result.retval, run.message) == ("caught", None)


def test_eager_calls_behave_as_on_the_plain_base(app):
    @app.task(base=DLQTask)
    def fails():
        raise ConnectionError("bank")

    calls = []

    @app.task(base=DLQTask, autoretry_for=(Outage,), max_retries=2)
    def autoretries():
        calls.append(1)
        raise Outage

    assert fails.apply().state == "FAILURE"
    with pytest.raises(ConnectionError):
        fails.apply(throw=True)
    assert isinstance(autoretries.apply().result, Outage)
    assert len(calls) == 3


def test_an_eager_exhaustion_is_not_retried_again(app):
    calls = []

    @app.task(base=DLQTask, bind=True, autoretry_for=(Outage,))
    def gives_up(self):
        calls.append(1)
        self.retry(exc=Outage(), max_retries=0)

    assert isinstance(gives_up.apply().result, Outage)
    assert len(calls) == 1


def test_an_eager_call_lets_out_what_would_end_the_process(app):
    @app.task(base=DLQTask)
    def call(exc):
        raise exc

    with pytest.raises(SystemExit):
        call.apply([SystemExit(3)])
    assert isinstance(call.apply([MemoryError("all")]).result, MemoryError)


def test_pydantic_tasks_are_checked_as_ever(app):
    class Order(BaseModel):
        amount: int

    @app.task(base=DLQTask, pydantic=True)
    def charge(order: Order) -> int:
        return order.amount

    assert Run(charge, {"amount": 3}).result.retval == 3
    assert Run(charge, {"amount": "x"}).failure.reason is Reason.TERMINAL


def test_class_based_and_shared_tasks(app, monkeypatch):
    # Celery would register the shared task in the apps of all later tests.
    finalizers = set(_state._on_app_finalizers)
    monkeypatch.setattr(_state, "_on_app_finalizers", finalizers)

    class Charge(DLQTask):
        name = "charge"

        def run(self, x):
            raise KeyError(x)

    @shared_task(base=DLQTask, name="shared-charge")
    def shared():
        raise KeyError

    assert Run(app.register_task(Charge()), 1).failure.message == "1"
    app.finalize()
    assert Run(app.tasks["shared-charge"]).failure.reason is Reason.TERMINAL


def test_arguments_are_checked_as_ever(app):
    @app.task(base=DLQTask)
    def call(x): ...

    with pytest.raises(TypeError):
        call.delay()


def test_as_the_apps_task_class_it_leaves_celerys_own_tasks_alone():
    app = Celery("unit", broker="memory://", task_cls=DLQTask, set_as_current=False)
    app.conf.task_ignore_result = True
    app.finalize()
    unlock = app.tasks["celery.chord_unlock"]
    assert isinstance(unlock, DLQTask)
    assert unlock.max_retries is None
    run = Run(app.tasks["celery.map"], None, None)
    assert (run.state, run.failure) == ("FAILURE", None)
    reset_worker_optimizations(app)


def test_a_coroutine_function_is_refused_at_registration(app):
    async def call(): ...

    app.task(base=DLQTask, name="slow-call")(call)
    with pytest.raises(AsyncTaskError, match=r"slow-call is a coroutine function.*asyncio\.run"):
        app.finalize()


def test_a_wrong_setting_is_found_when_the_app_is_finalised(app):
    app.conf.dlq_max_attempts = 0

    @app.task(base=DLQTask)
    def call(): ...

    with pytest.raises(SettingsError, match="dlq_max_attempts"):
        app.finalize()


def test_the_history_header_is_plain_json_text(app):
    @app.task(base=DLQTask)
    def call():
        raise ConnectionError("\x00 gr\u00fc\u00df \ud800")

    text = Run(call).message.headers[ATTEMPTS_HEADER]
    assert text.isascii()
    assert json.loads(text)[0]["number"] == 1


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
        assert failure.frames[-1].endswith(":charge")

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


class TestFreeRuns:
    def test_a_run_that_counts_leaves_their_number(self, app):
        @app.task(base=DLQTask, max_retries=4)
        def charge():
            raise ConnectionError("bank")

        run = Run(charge, retries=5, headers={FREE_HEADER: 2})
        assert (run.state, run.message.headers[FREE_HEADER]) == ("RETRY", 2)
        end = Run(charge, retries=6, headers={FREE_HEADER: 2}).failure
        assert (end.reason, end.attempts[-1].number) == (Reason.EXHAUSTED, 7)
        assert end.explanation.evidence.endswith("5 of 5 attempts used")

    @pytest.mark.parametrize("count", ["2", -1, 2.0, None, True, 10**12])
    def test_what_is_no_count_is_none(self, app, count):
        @app.task(base=DLQTask, max_retries=4)
        def charge():
            raise ConnectionError("bank")

        assert (
            Run(charge, retries=4, headers={FREE_HEADER: count}).failure.reason is Reason.EXHAUSTED
        )

    def test_an_explicit_retry_keeps_it(self, app):
        @app.task(base=DLQTask, bind=True)
        def charge(self):
            raise self.retry(countdown=1)

        assert Run(charge, retries=3, headers={FREE_HEADER: 2}).message.headers[FREE_HEADER] == 2

    @pytest.mark.parametrize(("restart", "free"), [(True, 2), (False, None)])
    def test_another_error_may_begin_the_schedule_anew(self, app, restart, free):
        app.conf.dlq_restart_on_new_error = restart

        @app.task(base=DLQTask, max_retries=4)
        def charge():
            raise ConnectionError("bank")

        now = datetime.now(timezone.utc)
        earlier = tuple(attempt(n, failed_at=now, exception_type="TimeoutError") for n in (1, 2))
        headers = {ATTEMPTS_HEADER: write_attempts(earlier)}
        run = Run(charge, retries=2, headers=headers)
        assert run.message.headers.get(FREE_HEADER) == free
        # The same error again goes on from there.
        same = Run(charge, retries=3, headers=dict(run.message.headers))
        assert same.message.headers.get(FREE_HEADER) == free


class TestScheduleOfARule:
    def test_its_attempts_are_instead_of_the_tasks(self, app):
        @app.task(
            base=DLQTask, max_retries=1, dlq_rules=(Rule(KeyError, "transient", max_attempts=9),)
        )
        def charge():
            raise KeyError("x")

        assert Run(charge, retries=7).state == "RETRY"
        assert Run(charge, retries=8).failure.explanation.evidence.endswith("9 of 9 attempts used")

    def test_so_are_its_waits(self, app):
        rule = Rule(KeyError, "transient", retry_backoff=3, retry_backoff_max=7)

        @app.task(base=DLQTask, default_retry_delay=50, retry_jitter=False, dlq_rules=(rule,))
        def charge():
            raise KeyError("x")

        waits = [
            read_attempts(Run(charge, retries=n).message.headers)[-1].delay_s for n in (0, 1, 2)
        ]
        assert waits == [3.0, 6.0, 7.0]


class TestShortForms:
    def test_they_are_the_tasks_own_and_asked_before_the_apps(self, app):
        app.conf.dlq_terminal = ["KeyError"]
        app.conf.dlq_transient = ["ValueError"]

        @app.task(base=DLQTask, dlq_transient=["KeyError"], dlq_terminal=(ValueError,))
        def charge(known):
            raise ValueError("x") if known else KeyError("x")

        assert Run(charge, False).state == "RETRY"
        assert Run(charge, True).failure.explanation.rule == "task.dlq_terminal"


class TestRefusedWhenTheTaskIsRegistered:
    @pytest.mark.parametrize(
        ("option", "value", "said"),
        [
            ("dlq_transient", ["Tiemout"], "task.dlq_transient: 'Tiemout' is no exception"),
            ("dlq_terminal", 7, "task.dlq_terminal = 7 is no list"),
            ("autoretry_for", (int,), "task.autoretry_for: .* is no exception"),
            ("throws", None, "task.throws = None is no list"),
            ("dlq_rules", ("transient",), "dlq_rules = .* is no list of celery_dlq.Rule objects"),
            ("dlq_rules", None, "dlq_rules = None is no list of celery_dlq.Rule objects"),
            # A text is a list, too: of its characters. And without a list there could be no letter.
            ("dlq_tags", "money", "dlq_tags = 'money' is not a list of strings"),
            ("dlq_tags", None, "dlq_tags = None is not a list of strings"),
            ("dlq_retry_window", "1h", "dlq_retry_window = '1h' is not a number of seconds"),
        ],
    )
    def test_options_that_make_no_sense(self, app, option, value, said):
        with pytest.raises(SettingsError, match=f"Task shop.charge: {said}"):

            @app.task(name="shop.charge", base=DLQTask, lazy=False, **{option: value})
            def charge():
                return None
