from __future__ import annotations

import contextlib
import threading
from types import SimpleNamespace

import pytest

from celery_dlq.errors import IngestError, StoreUnavailable
from celery_dlq.ingest import step
from celery_dlq.ingest.engine import IngestReport
from celery_dlq.ingest.step import IngestStep, IngestThread

PATIENCE_S = 60


class Dlq:
    """Answers one ``open_ingestion`` after the other: an error, or a report for a run."""

    def __init__(self, *answers, queues=("dead",)):
        self.answers = list(answers)
        self.settings = SimpleNamespace(ingest_queues=queues)
        self.store = SimpleNamespace(check_schema=lambda: None)
        self.opened, self.done = [], threading.Event()

    @contextlib.contextmanager
    def open_ingestion(self, queue, *, worker, need_place):
        self.opened.append((queue, worker, need_place))
        yield SimpleNamespace(run=self.run)

    def run(self, *, should_stop):
        answer = self.answers.pop(0) if self.answers else IngestReport(total=0)
        if not self.answers:
            self.done.set()
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def impatience(monkeypatch):
    for name in ("POLL_S", "RETRY_S", "RETRY_MAX_S"):
        monkeypatch.setattr(step, name, 0.001)


def work_off(dlq):
    thread = IngestThread(dlq, "dead", worker="celery@host")
    thread.start()
    assert dlq.done.wait(PATIENCE_S)
    thread.stopping.set()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_it_looks_again_and_again_on_one_connection(caplog):
    caplog.set_level("INFO")
    dlq = Dlq(IngestReport(total=3, arrived=2, known=1), IngestReport(total=0))
    work_off(dlq)
    assert dlq.opened == [("dead", "celery@host", False)]
    assert "ingested 3 messages of queue dead, 1 of them already known" in caplog.text


@pytest.mark.parametrize(
    "error", [IngestError("There is no queue"), StoreUnavailable(), KeyError("a bug")]
)
def test_after_an_error_it_tries_again_on_a_new_connection(error, caplog):
    dlq = Dlq(error, IngestReport(total=0))
    work_off(dlq)
    assert len(dlq.opened) == 2
    assert "queue dead is not ingested, next try in 0.001 s" in caplog.text
    assert ("Traceback" in caplog.text) is isinstance(error, KeyError)


def test_while_the_store_is_away_the_broker_is_left_alone(caplog):
    dlq, asked = Dlq(), threading.Event()

    def away():
        asked.set()
        raise StoreUnavailable

    dlq.store.check_schema = away
    thread = IngestThread(dlq, "dead", worker="")
    thread.start()
    assert asked.wait(PATIENCE_S)
    thread.stopping.set()
    thread.join(PATIENCE_S)
    assert dlq.opened == []


def worker(dlq, *consumed):
    amqp = SimpleNamespace(queues=SimpleNamespace(consume_from=dict.fromkeys(consumed)))
    app = SimpleNamespace(dead_letter_queue=dlq, amqp=amqp)
    return SimpleNamespace(app=app, hostname="celery@host", steps=[])


def test_without_the_setting_the_step_is_off():
    assert not IngestStep(worker(Dlq())).include_if(worker(Dlq(queues=())))
    assert IngestStep(worker(Dlq())).include_if(worker(Dlq()))


def test_each_queue_has_a_thread_until_the_worker_stops():
    dlq = Dlq(queues=("dead", "buried"))
    parent = worker(dlq)
    bootstep = IngestStep(parent)
    bootstep.start(parent)
    threads = list(bootstep._threads)
    assert dlq.done.wait(PATIENCE_S)
    bootstep.stop(parent)
    assert [thread.name for thread in threads] == ["dlq-ingest-dead", "dlq-ingest-buried"]
    assert not any(thread.is_alive() for thread in threads)


def test_the_worker_s_own_queue_is_refused(caplog):
    parent = worker(Dlq(), "dead")
    bootstep = IngestStep(parent)
    bootstep.start(parent)
    assert bootstep._threads == []
    assert "from which this worker takes tasks" in caplog.text
