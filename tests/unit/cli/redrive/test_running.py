"""The progress of a running operation, and the wait for its outcomes."""

import math

import click
import pytest
from celery.bin.base import CLIContext
from click.testing import CliRunner

from celery_dlq.cli import dlq
from celery_dlq.cli.redrive.running import await_outcomes, finish, in_foreground, report_detached
from celery_dlq.cli.session import Session
from celery_dlq.model.operation import OperationState
from celery_dlq.redrive.loop import Progress
from celery_dlq.store.redrive.operations import Operations
from celery_dlq.worker.broker_limits import upkeep_lease


@pytest.fixture
def session(app):
    return Session(CLIContext(app=app, no_color=True, workdir=None))


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self):
        self.now = 0.0

    def sleep(self, seconds):
        self.now += seconds

    def __call__(self):
        return self.now


def status_of(act):
    """The exit status with which ``act`` ends the command; None if it does not."""
    with click.Context(dlq):
        try:
            act()
        except click.exceptions.Exit as end:
            return end.exit_code


@pytest.fixture
def outcomes(session, operation, monkeypatch):
    """Lets this many of ten letters succeed at each look; returns the result of waiting that long."""

    def outcomes(each, seconds):
        def look(_store, operation_id):
            looks.append(operation_id)
            done = min(10, each * len(looks))
            return operation(planned=10, sent=10 - done, succeeded=done)

        looks, clock = [], Clock()
        monkeypatch.setattr(Operations, "get", look)
        with CliRunner().isolation() as (_stdout, stderr, _both):
            found = await_outcomes(
                session, operation(planned=10, sent=10), seconds, sleep=clock.sleep, monotonic=clock
            )
            return found.counts, clock.now, stderr.getvalue().decode()

    return outcomes


def test_it_waits_until_all_outcomes_have_arrived(outcomes):
    counts, took, shown = outcomes(each=5, seconds=60)
    assert (counts.succeeded, counts.sent, took) == (10, 0, 1.0)
    assert shown == "5 of 10: 5 succeeded, 5 awaited\n10 of 10: 10 succeeded\n"


def test_it_waits_no_longer_than_its_limit(outcomes):
    counts, took, _shown = outcomes(each=0, seconds=30)
    assert (counts.sent, took) == (10, 30.0)


NO_WORKER = (
    "no worker answers, so operations, parked retries and outcomes wait; start a worker of this app"
)


@pytest.fixture
def worker(store, queue):
    """A worker that does the upkeep of the app's broker."""
    return store.leases.take(upkeep_lease(queue.hold.place), holder="w", seconds=1_000_000)


def test_a_wait_without_a_worker_says_once_what_is_missing(outcomes):
    _counts, _took, shown = outcomes(each=0, seconds=60)
    assert shown.count(f"Still waiting: {NO_WORKER}") == 1
    assert "base=DLQTask" in shown


def test_a_wait_for_a_worker_that_is_slow_says_nothing(outcomes, worker):
    _counts, _took, shown = outcomes(each=0, seconds=60)
    assert "Still waiting" not in shown


@pytest.fixture
def unanswered(session, operation, monkeypatch):
    """Waits up to ten minutes for ten outcomes that never come; returns the exit status, the seconds
    that it took, and what is said."""

    def unanswered(at_each_look=lambda _now: None):
        def look(_store, _id):
            at_each_look(clock.now)
            return sent

        sent, clock = operation(planned=10, sent=10), Clock()
        monkeypatch.setattr(Operations, "get", look)
        with CliRunner().isolation() as (_stdout, stderr, _both):
            status = status_of(
                lambda: await_outcomes(session, sent, 600, sleep=clock.sleep, monotonic=clock)
            )
            return status, clock.now, stderr.getvalue().decode()

    return unanswered


def test_a_wait_ends_when_no_worker_answers_for_a_minute(unanswered):
    status, took, said = unanswered()
    assert (status, took) == (5, 70.0)
    assert "No worker has answered for 60 s.\nSent 10 of 10 dead letters" in said
    assert said.splitlines()[-1].startswith("Next: ")


def test_a_worker_that_comes_in_time_lets_it_wait_on(unanswered, store, queue):
    def start(now):
        if now == 65:
            store.leases.take(upkeep_lease(queue.hold.place), holder="w", seconds=1_000_000)

    status, took, said = unanswered(start)
    assert (status, took) == (None, 600.0)
    assert said.count("Still waiting") == 1


def test_a_redrive_stops_when_no_worker_answers_for_a_minute(session, operation):
    running, clock = operation(state=OperationState.PAUSED, planned=9, sent=1), Clock()

    with CliRunner().isolation() as (_stdout, stderr, _both):
        with in_foreground(session, monotonic=clock) as foreground:
            while not foreground.should_stop():
                foreground.on_progress(
                    Progress(operation=running.id, counts=running.counts, waits_for="the canary")
                )
                clock.sleep(1)
        assert clock.now == 70
        assert status_of(lambda: finish(session, running, foreground)) == 5
        said = stderr.getvalue().decode()
    assert "No worker has answered for 60 s." in said
    assert "Next: to continue: celery dlq operations resume 3fa91111aaaa" in said


def test_the_ordered_rate_is_shown_beside_the_measured_one(session, operation):
    clock = Clock()
    with CliRunner().isolation() as (_stdout, stderr, _both):
        with in_foreground(session, 50.0, monotonic=clock) as foreground:
            for succeeded in (0, 60):
                one = operation(planned=100, succeeded=succeeded)
                foreground.on_progress(Progress(operation=one.id, counts=one.counts))
                clock.sleep(2)
        assert "0 skipped, 30/s of 50/s ordered, " in stderr.getvalue().decode()


def test_a_canary_without_a_worker_says_once_what_is_missing(session, operation):
    one, clock = operation(planned=9, sent=1), Clock()

    with CliRunner().isolation() as (_stdout, stderr, _both):
        with in_foreground(session, monotonic=clock) as foreground:
            for _ in range(60):
                foreground.on_progress(
                    Progress(operation=one.id, counts=one.counts, waits_for="the canary")
                )
                clock.sleep(1)
        assert stderr.getvalue().decode().count(NO_WORKER) == 1


@pytest.fixture
def left(session, operation, monkeypatch):
    """Leaves an operation to a worker, which begins it after this many seconds, if ever; returns what is
    said, and the seconds that it took."""

    def left(begins_after=math.inf, **changes):
        clock, planned = Clock(), operation(state=OperationState.PLANNED, detached=True)

        def look(_store, _id):
            has_begun = clock.now >= begins_after
            if has_begun:
                session.store.leases.take(planned.lease_name, holder="a worker", seconds=60)
            return operation(state=OperationState.RUNNING, **changes)

        monkeypatch.setattr(Operations, "get", look)
        with CliRunner().isolation() as (stdout, stderr, _both):
            status = status_of(
                lambda: report_detached(
                    session, planned, "A worker will send it", sleep=clock.sleep
                )
            )
            assert stdout.getvalue().decode().startswith("A worker will send it. See: celery")
            return stderr.getvalue().decode(), clock.now, status

    return left


def test_an_operation_that_a_worker_begins_is_left_in_silence(left):
    assert left(begins_after=3) == ("", 3.0, None)


def test_an_operation_that_no_worker_takes(left, app):
    said, took, status = left()
    assert said.startswith(f"Operation 3fa91111aaaa has not begun: {NO_WORKER}")
    assert (said.endswith(f"and the store {app.conf.dlq_store_url}.\n"), took, status) == (
        True,
        10.0,
        5,
    )


def test_an_operation_that_the_workers_leave(left, worker):
    said, _took, status = left()
    assert (
        "has not begun: the workers on this broker are busy with another one, do not have" in said
    )
    assert status == 5


def test_progress_shows_sent_letters_and_outcomes(session, operation):
    with CliRunner().isolation() as (_stdout, stderr, _both):
        with in_foreground(session) as foreground:
            for sent, succeeded, failed, waits_for in (
                (5, 0, 0, "the canary"), (0, 5, 0, ""), (25, 23, 2, "outcomes (25 in flight)"),
                (26, 23, 2, "outcomes (26 in flight)"), (0, 98, 2, ""),
            ):  # fmt: skip
                one = operation(planned=100, sent=sent, succeeded=succeeded, failed=failed)
                foreground.on_progress(
                    Progress(operation=one.id, counts=one.counts, waits_for=waits_for)
                )
            assert not foreground.should_stop()
        lines = stderr.getvalue().decode().splitlines()
    assert [line.partition(" failed again")[0] for line in lines] == [
        "5 of 100: waits for the canary",
        "50 of 100: waits for outcomes (25 in flight)",
        "50 of 100: 50 sent, 23 succeeded, 2",
        "100 of 100: 100 sent, 98 succeeded, 2",
    ]


def test_a_bar_shows_the_cause_of_a_wait(session, operation, terminal):
    terminal.sit_down(width=150)
    one = operation(state=OperationState.DONE, planned=100, sent=5)

    with CliRunner().isolation() as (_stdout, stderr, _both):
        with in_foreground(session) as foreground:
            foreground.on_progress(
                Progress(operation=one.id, counts=one.counts, waits_for="the canary")
            )
        assert "waits for the canary" in stderr.getvalue().decode()
