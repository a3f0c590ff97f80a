from __future__ import annotations

import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from celery_dlq import DLQTask, Filter, Leave
from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.errors import HandlerError, SettingsError, StoreUnavailable
from celery_dlq.model.handling import HANDLE_TASK
from celery_dlq.upkeep import periodic
from celery_dlq.upkeep.automation import engine as module
from celery_dlq.upkeep.automation.engine import AutomationThread, lease_of
from celery_dlq.upkeep.step import UpkeepStep
from celery_dlq.worker.end.fate import is_internal

PATIENCE_S = 60


@pytest.fixture
def dlq(shop_app):
    dlq = DeadLetterQueue.of(shop_app)
    dlq.handler(where=Filter(task="charge"))(leave)
    return dlq


def leave(letter):
    return Leave()


class Engine:
    """Answers each round in turn."""

    def __init__(self, *answers):
        self.answers, self.done = list(answers), threading.Event()

    def run(self, lease, prolong):
        assert prolong() == lease
        answer = self.answers.pop(0) if self.answers else 0.001
        if not self.answers:
            self.done.set()
        if isinstance(answer, Exception):
            raise answer
        return answer


def work_off(dlq, monkeypatch, *answers):
    engine = Engine(*answers)
    monkeypatch.setattr(module, "Engine", lambda *_parts: engine)
    monkeypatch.setattr(module, "LOOK_S", 0.001)
    monkeypatch.setattr(periodic, "TRY_S", 0.001)
    thread = AutomationThread(dlq, "me", wake=int)
    thread.start()
    assert engine.done.wait(PATIENCE_S)
    thread.stop()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def worker_of(dlq):
    reception = SimpleNamespace(received=0, stall=None)
    consumer = SimpleNamespace(dlq=SimpleNamespace(reception=reception))
    return SimpleNamespace(app=dlq.app, hostname="w@host", steps=[], consumer=consumer)


def test_without_handlers_nothing_is_installed(shop_app):
    dlq = DeadLetterQueue.of(shop_app)
    shop_app.finalize()
    assert dlq.handlers == {}
    assert HANDLE_TASK not in shop_app.tasks


def test_without_handlers_nothing_is_imported():
    code = (
        "import sys; from celery import Celery; from celery_dlq import DLQTask, DeadLetterQueue\n"
        "def charge(): ...\n"
        "app = Celery('shop'); app.task(base=DLQTask)(charge); app.finalize()\n"
        "assert DeadLetterQueue.of(app).handlers == {}\n"
        "print([name for name in sys.modules if name.endswith(('automation.engine', '.calling'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_first_handler_installs_its_task(dlq, shop_app):
    task = shop_app.tasks[HANDLE_TASK]
    assert (task.acks_late, task.ignore_result, task.max_retries) == (False, True, 0)


def test_the_task_never_makes_letters_of_its_own_failures(tmp_path):
    from celery import Celery

    app = Celery("unit", broker="memory://", set_as_current=False, task_cls=DLQTask)
    DeadLetterQueue.of(app).handler(where=Filter(task="charge"))(leave)
    assert not isinstance(app.tasks[HANDLE_TASK], DLQTask)


def test_nor_if_the_base_class_of_tasks_is_set_later(shop_app, dlq):
    shop_app.Task = DLQTask
    task = shop_app.tasks[HANDLE_TASK]
    assert isinstance(task, DLQTask)
    assert task._built_in
    assert is_internal(SimpleNamespace(task=task))


def test_two_functions_cannot_have_one_name(dlq):
    dlq.handler(where=Filter(task="mail"), name="leave")(leave)  # the same function, imported again
    with pytest.raises(SettingsError, match=r"Handler leave: .*leave has this name already; give"):
        dlq.handler(where=Filter(task="mail"), name="leave")(lambda letter: Leave())
    assert list(dlq.handlers) == ["leave"]


def test_a_wrong_handler_is_an_error_where_it_is_defined(dlq):
    with pytest.raises(
        SettingsError, match=r"Handler leave_all is not valid\. where matches every letter"
    ):

        @dlq.handler()
        def leave_all(letter): ...

    assert list(dlq.handlers) == ["leave"]


def test_trouble_is_logged_once_and_so_is_its_end(dlq, monkeypatch, caplog):
    caplog.set_level("INFO")
    lost = HandlerError("3 messages could not be sent")
    work_off(dlq, monkeypatch, lost, lost, 0.001, RuntimeError("a bug"), 0.001)
    assert caplog.text.count("not all automations run: 3 messages could not be sent") == 1
    assert caplog.text.count("all automations run again") == 1
    assert "celery_dlq: automations failed unexpectedly" in caplog.text


def test_a_store_that_is_away_is_logged_once(dlq, monkeypatch, caplog):
    caplog.set_level("INFO")
    away = StoreUnavailable("The dead-letter store does not answer")
    work_off(dlq, monkeypatch, away, away, 0.001)
    assert caplog.text.count("The dead-letter store does not answer") == 1


def test_it_gives_the_lease_up_when_it_ends(dlq, monkeypatch):
    work_off(dlq, monkeypatch, 0.001)
    name = lease_of(dlq.app)
    assert dlq.store.leases.take(name, holder="next", seconds=60) is not None


def test_while_another_worker_has_the_lease_it_waits(dlq):
    dlq.store.leases.take(lease_of(dlq.app), holder="other", seconds=9.0)
    thread = AutomationThread(dlq, "me", wake=int, draw=lambda low, high: high)
    thread.round()
    assert periodic.TRY_S < thread.pause_s() <= 9.0 + periodic.TRY_S


def test_a_filter_that_names_an_unknown_task_is_logged_at_the_start(dlq, monkeypatch, caplog):
    monkeypatch.setattr(module, "Engine", lambda *_parts: Engine())
    for name in ("shop.chrage", "charge", "shop.charge", "arge"):
        dlq.handler(where=Filter(task=name), name=f"of.{name}")(lambda letter: Leave())
    worker = worker_of(dlq)
    started = UpkeepStep(worker)
    started.start(worker)
    started.stop(worker)
    warnings = [one for one in caplog.records if one.levelname == "WARNING"]
    said = [one.getMessage() for one in warnings if one.name.startswith("celery_dlq")]
    assert [one.partition(":")[0] for one in said] == ["handler of.shop.chrage", "handler of.arge"]
    assert "'shop.chrage' is not a task of this app; did you mean 'shop.charge'?" in said[0]


def test_the_step_starts_its_thread_and_stops_it(dlq, monkeypatch):
    engine = Engine()
    monkeypatch.setattr(module, "Engine", lambda *_parts: engine)
    worker = worker_of(dlq)
    started = UpkeepStep(worker)
    started.start(worker)
    assert engine.done.wait(PATIENCE_S)
    started.stop(worker)
    started.stop(worker)
    assert "dlq-automations" not in {one.name for one in threading.enumerate()}
