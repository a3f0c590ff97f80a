import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from sqlalchemy import update
from support.factories import T0, letter
from support.stores.writing import spooled, submit

from celery_dlq import DeadLetterQueue, Filter, Operation, Orders, Settings
from celery_dlq.errors import OperationError, StoreUnavailable
from celery_dlq.model.operation import Counts, OperationState
from celery_dlq.redrive.loop import RunResult
from celery_dlq.store.database import tables
from celery_dlq.store.database.schema import HEAD
from celery_dlq.upkeep.chores import OperationsThread
from celery_dlq.worker.writing.store_calls import StoreHealth

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


def queue(redrives):
    return SimpleNamespace(
        redrives=redrives, settings=Settings(), store_health=StoreHealth(Path("spool"))
    )


def work_off(*answers):
    redrives = Redrives(*answers)
    wake_until_done(redrives)
    return redrives


def wake_until_done(redrives):
    thread = OperationsThread(queue(redrives))
    thread.start()
    deadline = time.monotonic() + PATIENCE_S
    while not redrives.done.wait(0.001):
        assert time.monotonic() < deadline
        thread.wake()
    thread.stop()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_it_looks_for_nothing_until_it_is_woken():
    redrives = Redrives()
    thread = OperationsThread(queue(redrives))
    thread.start()
    thread.stop()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert not redrives.done.is_set()


def test_it_runs_what_is_left_and_says_how_it_ended(caplog):
    caplog.set_level("INFO")
    redrives = work_off(RunResult(operation("op1")))
    assert redrives.ran == ["op1"]
    assert "operation op1 is done: 3 of 3 sent" in caplog.text


def test_operations_of_other_processes_are_left_alone(caplog):
    caplog.set_level("INFO")
    work_off(None)
    assert caplog.text == ""


def test_trouble_is_logged_once_and_so_is_its_end(caplog):
    caplog.set_level("INFO")
    reset = RunResult(operation("op", OperationState.RUNNING), "ConnectionError: reset")
    away = StoreUnavailable("The dead-letter store does not answer")
    work_off(reset, away, away, RunResult(operation("op")), RuntimeError("a bug"))
    assert "redrives do not continue: operation op5: ConnectionError: reset" in caplog.text
    assert caplog.text.count("The dead-letter store does not answer") == 2
    assert caplog.text.count("redrives continue") == 1
    assert "failed unexpectedly" in caplog.text


def test_an_abandoned_operation_is_logged_with_its_cause(caplog):
    cause = "RepairError: 'euros' is not a repair of this app"
    paused = replace(operation("op1", OperationState.PAUSED), cause=cause)
    caplog.set_level("INFO")
    work_off(RunResult(paused, cause, is_permanent_error=True))
    [said] = caplog.records
    assert (said.levelname, said.getMessage()) == (
        "ERROR", f"operation op1 is paused: 3 of 3 sent ({cause})",
    )  # fmt: skip


def test_an_operation_that_this_worker_cannot_run_does_not_block_others(monkeypatch):
    """Both are left in one round."""
    redrives = Redrives(OperationError(), RunResult(operation("op2")))
    rounds = iter([[operation("op1"), operation("op2")]])
    monkeypatch.setattr(redrives, "left", lambda: next(rounds, None) or redrives.done.set() or [])
    wake_until_done(redrives)
    assert redrives.ran == ["op1", "op2"]


def test_an_operation_of_a_newer_release_is_one_line_and_letters_go_to_the_spool(shop_app, caplog):
    """The schema has become newer while this worker runs, and its orders have an unknown field."""
    dlq = DeadLetterQueue.of(shop_app)
    dlq.redrives.make(Filter(), Orders(), who="ann", detached=True)
    dlq.store.database.write(_as_a_newer_release)
    thread, writer = OperationsThread(dlq), dlq._new_writer()
    for _ in range(3):
        assert thread.guarded(thread._work) is None
    assert submit(writer, letter("a")) == ["a"]
    assert spooled(writer) == ["a"]
    (line,) = (record for record in caplog.records if record.levelname == "ERROR")
    assert line.exc_info is None
    assert line.getMessage().startswith(f"dead letters go to the spool {dlq.spool.directory}")
    assert line.getMessage().endswith(
        f"at 9999, newer than the {HEAD} of this release; run: pip install --upgrade celery-dlq"
    )


def _as_a_newer_release(connection):
    connection.execute(update(tables.operation).values(orders='{"pacing": {"orbit": 1}}'))
    connection.execute(update(tables.version).values(version_num="9999"))


def test_an_operation_that_fails_unexpectedly_does_not_keep_the_others_from_running(caplog):
    class Two(Redrives):
        def left(self):
            if not self.answers:
                return super().left()
            return [operation(name, OperationState.RUNNING) for name in ("odd", "fine")]

    redrives = Two(ValueError("a bug"), RunResult(operation("fine")))
    wake_until_done(redrives)
    assert redrives.ran == ["odd", "fine"]
    assert "operation odd failed unexpectedly" in caplog.text
