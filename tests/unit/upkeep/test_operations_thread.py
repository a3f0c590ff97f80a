import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
from factories import T0

from celery_dlq import Filter, Operation, Orders
from celery_dlq.errors import OperationError, StoreUnavailable
from celery_dlq.operation import Counts, OperationState
from celery_dlq.redrive.engine import Run
from celery_dlq.upkeep import operations as module
from celery_dlq.upkeep.operations import OperationsThread

PATIENCE_S = 60


def operation(name, state=OperationState.DONE):
    return Operation(
        id=name, wanted=Filter(), orders=Orders(), state=state,
        counts=Counts(planned=3, sent=3), who="tester", host="h:1", created_at=T0,
    )  # fmt: skip


class Redrives:
    """Has an operation left in each of its rounds, and answers each run in turn."""

    def __init__(self, *answers):
        self.answers, self.ran = list(answers), []
        self.done = threading.Event()

    def left(self):
        if not self.answers:
            self.done.set()
            return []
        return [operation(f"op{len(self.answers)}", OperationState.RUNNING)]

    def carry_on(self, operation_id, should_stop):
        assert not should_stop()
        self.ran.append(operation_id)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def impatience(monkeypatch):
    monkeypatch.setattr(module, "LOOK_S", 0.001)


def work_off(*answers):
    redrives = Redrives(*answers)
    thread = OperationsThread(SimpleNamespace(redrives=redrives))
    thread.start()
    assert redrives.done.wait(PATIENCE_S)
    thread.stopping.set()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    return redrives


def test_it_runs_what_is_left_and_says_how_it_ended(caplog):
    caplog.set_level("INFO")
    redrives = work_off(Run(operation("op1")))
    assert redrives.ran == ["op1"]
    assert "operation op1 is done: 3 of 3 sent" in caplog.text


def test_what_somebody_else_runs_is_left_alone(caplog):
    caplog.set_level("INFO")
    work_off(None)
    assert caplog.text == ""


def test_trouble_is_told_once_and_again_when_it_is_over(caplog):
    caplog.set_level("INFO")
    reset = Run(operation("op", OperationState.RUNNING), "ConnectionError: reset")
    away = StoreUnavailable("The dead-letter store does not answer")
    work_off(reset, away, away, Run(operation("op")), RuntimeError("a bug"))
    assert "redrives do not go on: operation op5: ConnectionError: reset" in caplog.text
    assert caplog.text.count("The dead-letter store does not answer") == 2
    assert caplog.text.count("redrives go on again") == 1
    assert "failed unexpectedly" in caplog.text


def test_one_that_was_given_up_is_told_with_its_cause(caplog):
    cause = "RepairError: --transform onlyhere:good cannot be imported"
    paused = replace(operation("op1", OperationState.PAUSED), cause=cause)
    caplog.set_level("INFO")
    work_off(Run(paused, cause, lasts=True))
    [said] = caplog.records
    assert (said.levelname, said.getMessage()) == (
        "ERROR", f"operation op1 is paused: 3 of 3 sent ({cause})",
    )  # fmt: skip


def test_one_that_this_worker_cannot_run_is_in_nobodys_way(monkeypatch):
    """Both are left in one round."""
    redrives = Redrives(OperationError(), Run(operation("op2")))
    rounds = iter([[operation("op1"), operation("op2")]])
    monkeypatch.setattr(redrives, "left", lambda: next(rounds, None) or redrives.done.set() or [])
    thread = OperationsThread(SimpleNamespace(redrives=redrives))
    thread.start()
    assert redrives.done.wait(PATIENCE_S)
    thread.stopping.set()
    thread.join(PATIENCE_S)
    assert redrives.ran == ["op1", "op2"]
