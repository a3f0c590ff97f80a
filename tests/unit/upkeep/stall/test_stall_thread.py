"""The thread of the watch: what it logs and announces."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from celery import Celery
from support.factories import T0

from celery_dlq.errors import BrokerError
from celery_dlq.model.worker import Stall
from celery_dlq.upkeep.stall import Recovered, StallThread

PATIENCE_S = 60


class Watch:
    """Gives one answer after the other."""

    wait_s = 0.0

    def __init__(self, answers):
        self.answers, self.done = list(answers), threading.Event()

    def look(self):
        if not self.answers:
            self.done.set()
            return None
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


STALL = Stall(worker="w@host", since=T0, noticed_at=T0, queues=("a", "b"), messages=9)


@pytest.fixture
def run():
    """Runs a thread whose watch gives these answers; what it has announced."""

    def run(*answers):
        announced = []
        dlq = SimpleNamespace(
            app=Celery("unit", broker="memory://", set_as_current=False),
            settings=SimpleNamespace(stall_after=300.0),
            announcer=lambda: SimpleNamespace(stalled=announced.append),
            store_health=SimpleNamespace(works=lambda _does: None),
        )  # fmt: skip
        capture = SimpleNamespace(reception=SimpleNamespace(received=0, stall=None))
        worker = SimpleNamespace(hostname="w@host", consumer=SimpleNamespace(dlq=capture))
        thread = StallThread(dlq, worker)
        thread._watch = watch = Watch(answers)
        thread.start()
        assert watch.done.wait(PATIENCE_S)
        thread.stop()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        return announced

    return run


def test_a_stall_is_logged_with_the_next_step_and_announced(run, caplog):
    assert run(None, STALL) == [STALL]
    [record] = [one for one in caplog.records if "stalled" in one.message]
    assert record.levelname == "ERROR"
    assert "messages wait (a, b: 9); restart it: `celery" in record.message
    assert "celery dlq help stalled-workers" in record.message


def test_the_end_of_a_stall_is_logged(run, caplog):
    caplog.set_level("INFO")
    assert run(Recovered(61.2)) == []
    assert "this worker receives messages again, after a stall of 61 s" in caplog.text


def test_a_broker_that_does_not_answer_is_logged_once_and_so_is_its_return(run, caplog):
    caplog.set_level("INFO")
    run(BrokerError("away"), BrokerError("away"), None)
    assert caplog.text.count("a stall of this worker would not be noticed: away") == 1
    assert caplog.text.count("a stall of this worker would be noticed again") == 1


def test_an_unexpected_error_does_not_end_it(run, caplog):
    assert run(RuntimeError("a bug"), STALL) == [STALL]
    assert "stall watch failed unexpectedly" in caplog.text
