"""When a task is tried again, and how often: its schedule, the retries that its body asks for, and the runs
that use up no attempt."""

import contextlib
from datetime import datetime, timezone

import pytest
from celery.app.task import Context
from celery.exceptions import (
    MaxRetriesExceededError,
    Reject,
)
from support.workers.task_tracer import Run

from celery_dlq import (
    DLQTask,
    Reason,
    Rule,
    Verdict,
)
from celery_dlq.classify import Decision
from celery_dlq.model.headers import FREE_HEADER
from celery_dlq.worker.body.again import (
    ASKED_FOR,
    Judged,
    Refused,
    group_of,
    note_refused,
    refused_rejected,
    refused_with,
    taken,
    unpublished,
)
from celery_dlq.worker.celery_quirks import brokers
from celery_dlq.worker.failure import read_attempts


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

    assert read_attempts(Run(poll).message.headers)[0].delay_s <= 2.0


@pytest.mark.parametrize(
    ("properties", "expected"),
    [({"MessageGroupId": "g"}, {"MessageGroupId": "g"}), ({}, {}), (None, {}), ("headers may be", {}),
     ({"MessageGroupId": 7}, {})],
)  # fmt: skip
def test_a_retry_stays_in_the_message_group(properties, expected):
    assert group_of(Context(properties=properties)) == expected


def test_a_declared_default_retry_delay_keeps_its_meaning(app):
    @app.task(base=DLQTask, bind=True, default_retry_delay=33)
    def poll(self):
        raise self.retry()

    eta = datetime.fromisoformat(Run(poll).message.headers["eta"])
    assert 20 < (eta - datetime.now(timezone.utc)).total_seconds() < 34


@pytest.mark.parametrize(
    ("options", "low", "high"),
    [
        ({}, 0.0, 2.0),
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


@pytest.mark.parametrize(("countdown", "sent"), [(0.4, 0), (0.6, 1), (0, 0), (7, 7)])
def test_an_explicit_countdown_on_quorum_queues_is_one_that_celery_takes(
    app, countdown, sent, monkeypatch
):
    @app.task(base=DLQTask, bind=True)
    def call(self):
        self.retry(countdown=countdown)

    monkeypatch.setattr(brokers, "detect_quorum_queues", lambda *_: (True, "jobs"))
    monkeypatch.setattr(
        "celery.app.task.Task.retry", lambda self, *args, **_: given.append(args[5])
    )
    given = []
    Run(call)
    assert given == [sent]


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


RULES = Decision(Verdict.TERMINAL, rule="r")
GONE, REJECTED = ConnectionError("bank"), Reject(OSError("no broker"), requeue=False)


def refused(raised, exc, reason):
    request = Context(id="4711", retries=0)
    note_refused(request, Refused(raised, exc, reason, "why"))
    return request


@pytest.mark.parametrize(
    ("reason", "verdict"), [(Reason.BUDGET, ASKED_FOR), (Reason.EXHAUSTED, RULES)]
)
def test_the_exception_of_retry_ends_the_run(reason, verdict):
    ending = refused_with(refused(GONE, GONE, reason), GONE, RULES)
    failure = ending.failure
    assert (ending.exc, failure.reason) == (GONE, reason)
    assert (failure.explanation.rule, failure.explanation.evidence) == (verdict.rule, "why")


def test_another_exception_is_judged_by_the_rules():
    assert refused_with(refused(GONE, GONE, Reason.BUDGET), KeyError("eur"), RULES) is None


def test_a_retry_that_could_not_be_published_dies_of_its_own_error():
    ending = refused_rejected(refused(REJECTED, GONE, Reason.REJECTED))
    failure = ending.failure
    assert (ending.exc, failure.explanation.rule) == (GONE, ASKED_FOR.rule)
    assert failure.reason is Reason.REJECTED
    assert "no broker" in unpublished(REJECTED)


def test_a_body_that_rejects_its_message_after_all_attempts_has_rejected_it():
    assert refused_rejected(refused(GONE, GONE, Reason.EXHAUSTED)) is None


def test_headers_of_a_message_are_not_mistaken_for_notes():
    hostile = Context(id="4711", _dlq_refused="x", _dlq_judged={"decision": 1})
    assert refused_with(hostile, GONE, RULES) is None
    assert refused_rejected(hostile) is None
    assert taken(hostile, "_dlq_judged", Judged) is None
