from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from celery_dlq.errors import StoreUnavailable
from celery_dlq.upkeep.recovery import thread as thread_module
from celery_dlq.upkeep.recovery.thread import RecoveryThread

PATIENCE_S = 60


class Queue:
    """Each round of the recovery takes the next answer; the last one is repeated."""

    def __init__(self, *answers):
        self.answers, self.rounds, self.failed = list(answers), 0, []
        self.enough = threading.Event()
        self.store_health = SimpleNamespace(works=lambda _does: None, fails=self.fails)

    def fails(self, _does, error):
        self.failed.append(str(error))

    def show_life(self):
        self.rounds += 1
        if self.rounds > len(self.answers):
            self.enough.set()

    def recover(self):
        answer = self.answers[min(self.rounds, len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        yield from answer


@pytest.fixture
def run(monkeypatch):
    def run(queue):
        monkeypatch.setattr(thread_module, "BEAT_S", 0.0)
        thread = RecoveryThread(queue)
        thread.start()
        assert queue.enough.wait(PATIENCE_S)
        thread.stop()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()

    return run


def test_a_directory_that_cannot_be_read_is_logged_once_and_its_end_too(run, caplog):
    caplog.set_level("INFO")
    run(Queue(PermissionError("no"), PermissionError("no"), [], []))
    assert caplog.text.count("messages of killed workers are not recovered: no") == 1
    assert caplog.text.count("messages of killed workers are recovered again") == 1


def test_a_store_that_is_away_is_tried_again(run):
    queue = Queue(StoreUnavailable("away"), [])
    run(queue)
    assert queue.failed == ["away"]


def test_an_unexpected_error_does_not_end_it(run, caplog):
    run(Queue(RuntimeError("a bug"), []))
    assert "recovery failed unexpectedly" in caplog.text


def test_it_stops_between_two_directories():
    stopped = []

    def endless():
        thread.stop()
        for number in range(1_000):
            stopped.append(number)
            yield number

    thread = RecoveryThread(Queue(endless()))
    thread._dlq.rounds = 1
    assert thread._recover()
    assert stopped == [0]
