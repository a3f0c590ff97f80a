"""How a run ends that raised: a letter's note, another attempt, or what steers Celery. Through Celery's own
tracer, in one process."""

import asyncio
import json
import pickle
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import gevent
import pytest
from celery.app.task import Context
from celery.concurrency.gevent import TaskPool, apply_timeout
from celery.exceptions import (
    Ignore,
    Reject,
    Retry,
    WorkerShutdown,
    WorkerTerminate,
)
from support.factories import attempt
from support.workers.task_tracer import Run

from celery_dlq import (
    DLQTask,
    Reason,
    Verdict,
)
from celery_dlq.classify import Decision
from celery_dlq.errors import TaskAborted
from celery_dlq.model.headers import ATTEMPTS_HEADER, REDRIVE_HEADER
from celery_dlq.worker.body.again import Judged, next_step
from celery_dlq.worker.celery_quirks.pools import GreenShutdown
from celery_dlq.worker.failure import read_attempts, type_name, write_attempts


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
    assert run.failure.grounds.frames[-1].endswith(":charge")
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
    assert 0 <= tried.delay_s <= 2.0
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


@pytest.mark.parametrize("control", [Ignore("no"), Reject("no", requeue=False)])
def test_control_flow_is_never_an_error(app, control):
    @app.task(base=DLQTask)
    def steer():
        raise control

    run = Run(steer)
    assert run.state == {"Ignore": "IGNORED", "Reject": "REJECTED"}[type(control).__name__]
    assert run.failure is None


def test_a_retry_that_no_message_follows_is_an_error(app):
    @app.task(base=DLQTask)
    def later():
        raise Retry("later", when=1)

    run = Run(later)
    assert (run.state, run.failure.reason) == ("FAILURE", Reason.TERMINAL)
    assert "call self.retry() instead" in run.failure.explanation.evidence


@pytest.mark.parametrize("exc", [WorkerTerminate(1), WorkerShutdown(0)])
def test_an_end_from_outside_gets_through(app, exc):
    @app.task(base=DLQTask)
    def call():
        raise exc

    with pytest.raises(type(exc)):
        Run(call)


@pytest.mark.parametrize(
    ("exc", "rule"),
    [
        (MemoryError("all"), "task.aborted"),
        (SystemExit(3), "python.exit"),
        (KeyboardInterrupt(), "python.exit"),
        (GeneratorExit(), "python.exit"),
        (asyncio.CancelledError(), "python.exit"),
        (gevent.GreenletExit(), "default"),
        (type("Unknown", (BaseException,), {"__module__": "lib"})("x"), "default"),
    ],
)
def test_what_would_kill_the_worker_becomes_a_failure(app, exc, rule):
    @app.task(base=DLQTask)
    def call():
        raise exc

    run = Run(call)
    assert run.state == "FAILURE"
    assert isinstance(run.result.info.retval, TaskAborted)
    assert run.failure.exception_type == type_name(type(exc))
    assert run.failure.explanation.rule == rule
    assert run.failure.traceback.splitlines()[-1].startswith(type_name(type(exc)))


#: eventlet's, which is not installed.
EventletTimeout = type("Timeout", (BaseException,), {"__module__": "eventlet.timeout"})


@pytest.mark.parametrize("exc", [gevent.Timeout(5), EventletTimeout("5 seconds")])
def test_one_that_a_rule_knows_is_judged_by_it(app, exc):
    @app.task(base=DLQTask, max_retries=1)
    def call():
        raise exc

    first, last = Run(call), Run(call, retries=1)
    assert (first.state, first.retried, first.end.rule) == ("RETRY", True, "async.timeout")
    assert pickle.loads(pickle.dumps(first.einfo)).exception is not None
    assert (last.state, last.failure.reason) == ("FAILURE", Reason.EXHAUSTED)
    assert last.failure.exception_type == type_name(type(exc))
    assert isinstance(last.result.info.retval, TaskAborted)


def test_a_task_may_name_it(app):
    @app.task(base=DLQTask, dlq_transient=(asyncio.CancelledError,))
    def call():
        raise asyncio.CancelledError

    assert Run(call).state == "RETRY"


def test_an_exit_for_a_transient_error_is_not_retried(app):
    @app.task(base=DLQTask)
    def call():
        try:
            raise ConnectionError("bank")
        except ConnectionError:
            raise SystemExit(1)  # noqa: B904

    assert Run(call).failure.explanation.rule == "python.exit"


class TestGreenPool:
    """How Celery's gevent pool ends a greenlet, and the same exceptions from elsewhere."""

    def test_a_greenlet_that_celery_kills_is_not_a_failure(self, app):
        @app.task(base=DLQTask)
        def call():
            gevent.sleep(0)
            gevent.sleep(60)

        pool = TaskPool(1)
        GreenShutdown().join(SimpleNamespace(pool=pool), None)
        greenlet = gevent.spawn(Run, call)
        pool._pool_map = {id(greenlet): greenlet}
        gevent.sleep(0)
        pool.terminate_job(id(greenlet), "TERM")
        greenlet.join()
        assert isinstance(greenlet.value, gevent.GreenletExit)

    def test_one_that_a_library_kills_is(self, app):
        @app.task(base=DLQTask)
        def call():
            gevent.kill(gevent.getcurrent())
            gevent.sleep(60)

        run = gevent.spawn(Run, call).get()
        assert run.failure.exception_type == "greenlet.GreenletExit"

    @pytest.mark.parametrize(
        ("raised", "over", "states"),
        [
            ("the pool's", [60], []),
            ("its own", [], ["RETRY"]),
            ("its own, in a hook", [], ["FAILURE"]),
        ],
    )
    def test_only_the_time_limit_of_the_pool_gets_through(self, app, raised, over, states):
        limits, calls, ended = [], [], []

        class Limit(gevent.Timeout):
            def __init__(self, seconds):
                super().__init__(seconds)
                limits.append(self)

        class Hooked(DLQTask):
            def before_start(self, *args):
                if raised == "its own, in a hook":
                    raise gevent.Timeout(5)

        @app.task(base=Hooked)
        def call():
            raise limits[0] if raised == "the pool's" else gevent.Timeout(5)

        apply_timeout(
            Run, (call,), callback=ended.append, getpid=lambda: 1, timeout=60, Timeout=Limit,
            timeout_callback=lambda soft, timeout: calls.append(timeout),
        )  # fmt: skip
        assert (calls, [run.state for run in ended]) == (over, states)


def test_the_history_header_is_plain_json_text(app):
    @app.task(base=DLQTask)
    def call():
        raise ConnectionError("\x00 gr\u00fc\u00df \ud800")

    text = Run(call).message.headers[ATTEMPTS_HEADER]
    assert text.isascii()
    assert json.loads(text)[0]["number"] == 1


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
    ending = step(TERMINAL)
    failure = ending.failure
    assert (ending.exc, failure.reason, failure.explanation.rule) == (GONE, Reason.TERMINAL, "r")


def test_a_transient_failure_runs_again_after_a_wait(step):
    again = step(TRANSIENT, retry_backoff=8.0, retry_backoff_max=600.0)
    assert isinstance(again, Judged)
    assert 0.0 <= again.delay_s <= 8.0
    assert (again.decision, again.free) == (TRANSIENT, 0)


def test_the_last_attempt_is_the_end(step):
    ending = step(TRANSIENT, retries=2, max_retries=2)
    assert (ending.failure.reason, ending.exc) == (Reason.EXHAUSTED, GONE)


def test_so_is_a_retry_over_the_budget(step):
    over = SimpleNamespace(spend=lambda: SimpleNamespace(why="over the retry budget"))
    failure = step(TRANSIENT, budget=over).failure
    assert failure.reason is Reason.BUDGET
    assert failure.explanation.evidence == "over the retry budget"


def test_a_throttled_run_uses_up_no_attempt(step):
    throttled = Decision(Verdict.TRANSIENT, rule="r", throttled=True)
    assert step(throttled, retries=0, max_retries=1).free == 1


def test_a_task_that_may_run_once_runs_once_also_when_it_is_throttled(step):
    throttled = Decision(Verdict.TRANSIENT, rule="r", throttled=True, retry_after=1.0)
    assert step(throttled, retries=0, max_retries=0).failure.reason is Reason.EXHAUSTED
