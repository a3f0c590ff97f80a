"""How a run ended, told to the worker's parent, also where Celery tells it something else."""

import pickle

import pytest
from billiard.einfo import ExceptionWithTraceback
from billiard.exceptions import Terminated, TimeLimitExceeded, WorkerLostError
from celery.exceptions import Ignore, Reject, Retry, WorkerShutdown
from support.workers.parent_requests import einfo
from support.workers.task_tracer import Run

from celery_dlq import DLQTask, Reason
from celery_dlq.errors import TaskAborted
from celery_dlq.model.headers import REDRIVE_HEADER
from celery_dlq.worker.body.ending import UNREPORTED, RunEnd
from celery_dlq.worker.body.report import report, reported
from celery_dlq.worker.failure import unwrap


class Down(Exception):
    """The result backend does not answer."""


class DownBackend:
    """Refuses everything that stores; the rest is the real backend's."""

    def __init__(self, backend, *refused):
        self._backend, self._refused = backend, refused

    def __getattr__(self, name):
        if name in self._refused:
            return self._refuse
        return getattr(self._backend, name)

    def _refuse(self, *args, **kwargs):
        raise Down("no answer")


@pytest.fixture
def down(app):
    app.conf.task_ignore_result = False

    def down(task):
        app.finalize()
        task = app.tasks[task.name]
        stores = ("mark_as_done", "mark_as_failure", "mark_as_retry", "store_result")
        task.backend = DownBackend(task.backend, *stores)
        return task

    return down


def run(task, **options):
    with pytest.warns(RuntimeWarning, match="outside body"):
        return Run(task, **options)


class TestResultBackendDown:
    def test_a_body_that_finished_is_unstored(self, app, down):
        @app.task(base=DLQTask)
        def charge():
            return 1

        failure = run(down(charge), headers={REDRIVE_HEADER: 2}).failure
        assert failure.reason is Reason.UNSTORED
        assert failure.explanation.evidence.startswith("the body ran to its end")
        assert failure.exception_type.endswith("Down")
        assert "no answer" in failure.traceback
        assert [attempt.redrive for attempt in failure.attempts] == [2]

    def test_a_body_that_failed_keeps_its_own_failure(self, app, down):
        @app.task(base=DLQTask)
        def charge():
            raise KeyError("eur")

        failure = run(down(charge)).failure
        assert (failure.reason, failure.exception_type) == (Reason.TERMINAL, "KeyError")
        assert failure.explanation.evidence.endswith("Down: no answer")
        assert failure.traceback.endswith("KeyError: 'eur'\n")

    def test_a_retry_that_is_sent_is_no_death(self, app, down):
        @app.task(base=DLQTask)
        def charge():
            raise ConnectionError

        ended = run(down(charge), retries=1)
        assert (ended.retried, ended.failure) == (True, None)

    def test_nor_is_one_that_the_body_asked_for(self, app, down):
        @app.task(base=DLQTask, bind=True)
        def charge(self):
            raise self.retry(countdown=0)

        ended = run(down(charge))
        assert (ended.retried, ended.failure) == (True, None)

    def test_a_body_that_never_began_tells_nothing(self, app, down):
        @app.task(base=DLQTask, track_started=True)
        def charge(): ...

        ended = run(down(charge))
        assert (ended.retried, ended.failure) == (False, None)

    def test_the_last_run_of_the_thread_is_not_taken_for_this_one(self, app, down):
        @app.task(base=DLQTask)
        def charge(): ...

        @app.task(base=DLQTask, track_started=True)
        def never_begins(): ...

        Run(charge)
        assert run(down(never_begins)).failure is None

    def test_the_tracer_hands_over_what_it_would_raise(self, app, down):
        """In a pool without processes nothing would hear of it, and the message stay unsettled."""

        @app.task(base=DLQTask)
        def charge(): ...

        ended = run(down(charge))
        assert isinstance(unwrap(pickle.loads(pickle.dumps(ended.einfo))), Down)
        assert ended.result.info is not None, "which says that the run failed"


@pytest.mark.parametrize("raised", [Ignore("no"), Reject("no")])
def test_control_flow_leaves_nothing_behind(app, raised):
    @app.task(base=DLQTask)
    def charge():
        raise raised

    assert Run(charge).failure is None


def test_a_result_that_cannot_be_stored_is_unstored(app):
    app.conf.update(task_ignore_result=False, result_serializer="json")

    @app.task(base=DLQTask)
    def charge():
        return object()

    failure = Run(charge).failure
    assert failure.reason is Reason.UNSTORED
    assert failure.exception_type == "kombu.exceptions.EncodeError"


def test_an_error_before_the_body_is_not_the_bodys(app):
    class Early(DLQTask):
        abstract = True

        def before_start(self, *args):
            raise KeyError("early")

    @app.task(base=Early)
    def charge(): ...

    assert Run(charge).failure is None, "the worker's parent makes the letter of what it sees"


@pytest.mark.parametrize("exc", [None, KeyError("early")])
def test_a_retry_that_is_refused_before_the_body_says_why(app, exc):
    class Early(DLQTask):
        abstract = True

        def before_start(self, *args):
            self.retry(exc=exc, max_retries=2)

    @app.task(base=Early)
    def charge(): ...

    assert Run(charge, retries=1).state == "RETRY"
    assert Run(charge, retries=2).end == RunEnd(reason=Reason.EXHAUSTED)


def test_a_refused_retry_that_before_start_caught_is_not_its_end(app):
    class Early(DLQTask):
        abstract = True

        def before_start(self, *args):
            try:
                self.retry(max_retries=0)
            except self.MaxRetriesExceededError:
                if args[1]:
                    raise KeyError("early") from None

    @app.task(base=Early)
    def charge(*args): ...

    assert Run(charge, "early").end == UNREPORTED
    assert Run(charge).state == "SUCCESS"


@pytest.mark.parametrize(
    ("hook", "raised"),
    [
        ("on_success", MemoryError("all")),
        ("before_start", SystemExit(3)),
        ("after_return", KeyboardInterrupt()),
    ],
)
def test_what_would_end_the_worker_is_an_ordinary_failure(app, hook, raised):
    def raises(*args):
        raise raised

    @app.task(base=type("Own", (DLQTask,), {"abstract": True, hook: raises}))
    def charge(): ...

    ended = Run(charge)
    assert isinstance(unwrap(pickle.loads(pickle.dumps(ended.einfo))), TaskAborted)
    assert type(raised).__name__ in str(unwrap(ended.einfo))


def test_an_eager_run_inside_a_body_is_not_its_end(app):
    @app.task(base=DLQTask)
    def inner(): ...

    class Early(DLQTask):
        abstract = True

        def before_start(self, *args):
            inner.apply()
            raise KeyError("early")

    @app.task(base=Early)
    def charge(): ...

    assert Run(charge).failure is None


class TestRetriesForAnError:
    """The failures that a circuit counts."""

    def test_one_of_the_judge_is_for_an_error(self, app):
        @app.task(base=DLQTask)
        def charge():
            raise ConnectionError("bank")

        assert Run(charge).end.for_error

    def test_one_of_the_body_is_when_the_error_is_given(self, app):
        @app.task(base=DLQTask, bind=True)
        def charge(self):
            self.retry(exc=LookupError("not there yet"))

        assert Run(charge).end.for_error

    def test_or_is_being_handled(self, app):
        @app.task(base=DLQTask, bind=True)
        def charge(self):
            try:
                raise LookupError("not there yet")
            except LookupError:
                self.retry()

        assert Run(charge).end.for_error

    def test_a_body_that_looks_again_later_has_no_error(self, app):
        @app.task(base=DLQTask, bind=True)
        def charge(self):
            self.retry()

        ended = Run(charge)
        assert (ended.retried, ended.end.for_error) == (True, False)


class Liar(Exception):
    """Says that it is of another class."""

    def __init__(self, poses_as):
        super().__init__(poses_as)

    @property
    def __class__(self):
        if self.args[0] is None:
            raise RuntimeError("no class for you")
        return self.args[0]


class LookingUp(Exception):
    """Lies about its class by looking up every attribute itself."""

    def __getattribute__(self, name):
        return KeyboardInterrupt if name == "__class__" else super().__getattribute__(name)


POSES = [
    KeyboardInterrupt, SystemExit, MemoryError, GeneratorExit, Retry, Ignore, Reject, WorkerLostError,
    TimeLimitExceeded, Terminated, WorkerShutdown, ExceptionWithTraceback, int,
]  # fmt: skip


@pytest.mark.parametrize("poses_as", POSES)
@pytest.mark.parametrize("transient", [False, True])
def test_an_exception_that_lies_about_its_class_is_judged_by_what_it_is(app, poses_as, transient):
    @app.task(base=DLQTask, autoretry_for=(Liar,) if transient else ())
    def charge():
        raise Liar(poses_as)

    ended = Run(charge)
    if transient:
        assert (ended.retried, ended.failure) == (True, None)
        return
    assert ended.failure.reason is Reason.TERMINAL
    assert ended.failure.exception_type.endswith(".Liar")
    told = unwrap(ended.einfo)
    assert type(told) is TaskAborted, "in the parent Celery asks with isinstance()"
    assert "Liar" in str(told)


@pytest.mark.parametrize("transient", [False, True])
def test_an_exception_whose_class_cannot_be_asked_for_is_told_all_the_same(app, transient):
    """Python itself cannot write its traceback, and Celery cannot retry it."""

    @app.task(base=DLQTask, autoretry_for=(Liar,) if transient else ())
    def charge():
        raise Liar(None)

    ended = Run(charge)
    assert ended.failure.reason is (Reason.EXHAUSTED if transient else Reason.TERMINAL)
    assert ended.failure.exception_type.endswith(".Liar")
    told = pickle.loads(pickle.dumps(unwrap(ended.einfo)))
    assert str(told) in ("no class for you", "RuntimeError: no class for you")


def test_nor_does_one_pose_that_looks_its_class_up(app):
    @app.task(base=DLQTask)
    def charge():
        raise LookingUp("wrong")

    ended = Run(charge)
    assert ended.failure.exception_type.endswith(".LookingUp")
    assert type(unwrap(ended.einfo)) is TaskAborted


def test_an_honest_exception_reaches_the_parent_itself(app):
    @app.task(base=DLQTask)
    def charge():
        raise KeyError("eur")

    assert type(unwrap(Run(charge).einfo)) is KeyError


def test_an_end_is_read_as_it_was_reported():
    info, end = einfo(ValueError("bad")), RunEnd(retried=True, for_error=True, rule="os.closed")
    report(info, end)
    assert reported(info) is end


def test_a_process_that_died_has_reported_nothing():
    assert reported(einfo(ValueError("bad"))) is UNREPORTED


def test_it_survives_the_pipe_to_the_parent(app):
    @app.task(base=DLQTask)
    def charge():
        raise KeyError("eur")

    run = Run(charge)
    received = pickle.loads(pickle.dumps(run.einfo))
    assert reported(received) == run.end
    assert reported(received).failure.reason is Reason.TERMINAL


def test_all_of_it_is_on_one_attribute(app):
    @app.task(base=DLQTask)
    def charge():
        raise KeyError("eur")

    assert [name for name in vars(Run(charge).einfo) if "dlq" in name] == ["dlq_end"]
