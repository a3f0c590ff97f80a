"""How a stalled worker is ended: its tasks first, then Celery's shutdown, then by force."""

from __future__ import annotations

import subprocess
import sys

import pytest
from celery.worker import state
from support.clock import Clock

from celery_dlq.upkeep.ending import EXIT_STATUS, SHUTDOWN_S, TICK_S, Ending


class Worker:
    """A stalled worker. ``then`` maps seconds to what happens at that time."""

    def __init__(self, then=None):
        self.clock, self.then = Clock(), dict(then or {})
        self.is_stalled, self.has_ended = True, False
        self.acts = []
        self.ending = Ending(
            lambda: self.is_stalled, lambda: self.has_ended, grace_s=300.0,
            finish=lambda: self.note("finished"), end_process=lambda status: self.note(status),
            monotonic=self.clock, sleep=self.sleep,
        )  # fmt: skip

    def note(self, act):
        self.acts.append((round(self.clock.now), act))

    def sleep(self, seconds):
        self.clock.now += seconds
        for at in [at for at in self.then if at <= self.clock.now]:
            self.then.pop(at)(self)

    def run(self):
        self.ending.run()
        return self.acts


@pytest.fixture(autouse=True)
def asked():
    """Gives what Celery was asked."""
    yield lambda: (state.should_stop, state.should_terminate)
    state.should_stop = state.should_terminate = None
    state.reset_state()


class Request:
    id = "r"


@pytest.fixture
def running():
    request = Request()
    state.active_requests.add(request)
    return request


def end(worker):
    worker.has_ended = True


def end_task(_worker):
    state.active_requests.clear()


def recover(worker):
    worker.is_stalled = False


def shut_down(_worker):
    state.should_stop = 0


def test_a_worker_without_tasks_is_shut_down_at_once(asked):
    worker = Worker({2: end})
    assert worker.run() == []
    assert asked() == (EXIT_STATUS, None)
    assert worker.clock.now <= 2 + TICK_S


def test_a_shutdown_that_hangs_is_ended_by_force():
    assert Worker().run() == [(SHUTDOWN_S, "finished"), (SHUTDOWN_S, EXIT_STATUS)]


def test_running_tasks_may_end_first(asked, running):
    worker = Worker({100: end_task, 103: end})
    assert worker.run() == []
    assert 103 <= worker.clock.now <= 104
    assert asked() == (EXIT_STATUS, None)


def test_a_task_that_does_not_end_is_cut_off(asked, running, caplog):
    assert Worker().run() == [(300, "finished"), (300, EXIT_STATUS)]
    assert asked() == (None, None)
    assert "tasks that still run: 1" in caplog.text


def test_a_worker_that_receives_again_stays(asked, running):
    worker = Worker({100: recover})
    assert worker.run() == []
    assert asked() == (None, None)


def test_a_worker_that_shuts_down_by_itself_is_left_alone(asked, running):
    worker = Worker({100: shut_down})
    assert worker.run() == []
    assert asked() == (0, None)


def test_what_fails_at_the_end_does_not_keep_the_process_alive(caplog):
    worker = Worker()

    def fail():
        raise RuntimeError("a bug")

    worker.ending._finish = fail
    assert worker.run() == [(SHUTDOWN_S, EXIT_STATUS)]
    assert "could not finish" in caplog.text


ENDS = """
import time
from billiard import Process
from celery_dlq.upkeep.ending import end_process_now
child = Process(target=time.sleep, args=(600,))
child.start()
print(child.pid, flush=True)
end_process_now(75)
"""


def test_the_process_and_its_pool_are_gone_at_once():
    done = subprocess.run(
        [sys.executable, "-c", ENDS], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 75, done.stderr
    # Otherwise the child would have kept the pipe open, and this test waiting.
    assert done.stdout.strip().isdigit()
