"""``dlq redrive`` that is interrupted, or fails on its way."""

import os
import signal

import pytest

from celery_dlq.cli.session import Session
from celery_dlq.errors import StoreUnavailable
from celery_dlq.model.operation import OperationState
from celery_dlq.redrive.loop import Progress
from celery_dlq.store.redrive.operations import Operations


def test_ctrl_c_ends_the_waiting_and_reports_missing_outcomes(
    run, orders, fake, operation, monkeypatch
):
    fake.answer = operation(state=OperationState.DONE, sent=3)

    def look(*_args):
        signal.raise_signal(signal.SIGINT)
        return fake.answer

    monkeypatch.setattr(Operations, "get", look)
    result = run("redrive", "--all", "--yes", "--wait", "1m")
    assert result.exit_code == 130
    assert "Interrupted.\nSent 3 of 3 dead letters: 3 awaited." in result.stderr
    assert "Next: wait for outcomes" in result.stderr


def test_ctrl_c_pauses_after_the_batch_and_names_the_next_step(run, orders, fake, operation):
    stopped = []

    def during(on_progress, should_stop):
        stopped.append(should_stop())
        os.kill(os.getpid(), signal.SIGINT)
        stopped.append(should_stop())

    fake.during = during
    fake.answer = operation(state=OperationState.PAUSED, sent=1)
    before = signal.getsignal(signal.SIGINT)
    result = run("redrive", "--all", "--yes")
    assert stopped == [False, True]
    assert result.exit_code == 130
    assert "Interrupted.\nSent 1 of 3 dead letters: 1 awaited.\n" in result.stderr
    assert "Operation 3fa91111aaaa is paused." in result.stderr
    assert "to continue: celery dlq operations resume 3fa91111aaaa" in result.stderr
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_after_the_last_letter_is_not_an_interruption(run, orders, fake):
    fake.during = lambda _progress, _stop: os.kill(os.getpid(), signal.SIGINT)
    assert run("redrive", "--all", "--yes").exit_code == 0


def test_a_second_ctrl_c_stops_at_once_and_reports_the_progress(
    run, orders, fake, operation, monkeypatch
):
    paused = operation(state=OperationState.PAUSED, sent=2)
    monkeypatch.setattr(Session, "operation", lambda _session, _id: paused)

    def during(on_progress, should_stop):
        on_progress(Progress(operation=paused.id, counts=paused.counts))
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("the second Ctrl-C did not interrupt")

    fake.during = during
    result = run("redrive", "--all", "--yes")
    assert result.exit_code == 130
    assert "Sent 2 of 3 dead letters: 2 awaited." in result.stderr
    assert "operations resume 3fa91111aaaa" in result.stderr
    assert result.stderr.endswith("Interrupted.\n")


def test_an_error_reports_the_progress(run, orders, fake, operation, monkeypatch):
    def away(_session, _id):
        raise StoreUnavailable

    monkeypatch.setattr(Session, "operation", away)
    fake.during = lambda on_progress, _stop: on_progress(
        Progress(operation="3fa9", counts=operation(sent=1).counts)
    )
    fake.answer = StoreUnavailable("The store does not answer; check it.")
    result = run("redrive", "--all", "--yes")
    assert result.exit_code == 3
    assert result.stderr.endswith(
        "Sent 1 of 3 dead letters: 1 awaited.\nError: The store does not answer; check it.\n"
    )
