from __future__ import annotations

import contextlib
import threading
from datetime import timedelta
from types import SimpleNamespace

import pytest
from support.factories import T0, envelope

from celery_dlq.errors import IngestError, RecordRefused, StoreUnavailable
from celery_dlq.ingest import ingestion as module
from celery_dlq.ingest.ingestion import Ingestion, IngestReport, IngestStep, IngestThread
from celery_dlq.ingest.letters import LetterMaker
from celery_dlq.ingest.source import Taken
from celery_dlq.redact import Redactor
from celery_dlq.store.base import Filter, Saved
from celery_dlq.worker.grouping import Grouping

WIRING = SimpleNamespace(
    redactor=Redactor(),
    settings=SimpleNamespace(release="", routes=()),
    grouping=Grouping(Redactor()),
)


class Source:
    """A queue, and what was done to it in the order it was done."""

    def __init__(self, acts, ids, queue="orders"):
        self.acts, self.waiting = acts, [message(task_id, queue) for task_id in ids]

    def count(self):
        return len(self.waiting)

    def take(self, limit):
        taken, self.waiting = self.waiting[:limit], self.waiting[limit:]
        return taken

    def remove(self, taken):
        self.acts.append(("remove", [item.handle for item in taken]))


def message(task_id, queue):
    headers = {"id": task_id, "task": "shop.charge"}
    return Taken(
        envelope=envelope(headers=headers, queue=queue, routing_key=queue),
        tag=f"tag-{task_id}",
        handle=task_id,
    )


class Store:
    """Takes all but the letters that a database would refuse."""

    def __init__(self, acts, refuses=(), down=False, refusal=ValueError):
        self.acts, self.refuses, self.down, self.refusal = acts, refuses, down, refusal
        self.letters = self

    def find(self, wanted, *, limit=50, after=None):
        from celery_dlq.store.base import Page

        return Page(letters=(), next=None)

    def save(self, letters):
        ids = [letter.task_id for letter in letters]
        if self.down:
            raise StoreUnavailable
        if set(ids) & set(self.refuses):
            raise self.refusal("too large for this database")
        self.acts.append(("save", ids))
        return Saved(arrived=len(ids), known=0)


def ingestion(source, store, batch_size=2, need_place=True):
    maker = LetterMaker(queue="dead", to="", worker="", wiring=WIRING)
    return Ingestion(
        source, store, maker, batch_size=batch_size, need_place=need_place, now=lambda: T0
    )


def test_each_batch_is_stored_before_it_is_removed():
    acts, seen = [], []
    report = ingestion(Source(acts, "abc"), Store(acts)).run(on_progress=seen.append)
    assert acts == [
        ("save", ["a", "b"]), ("remove", ["a", "b"]), ("save", ["c"]), ("remove", ["c"]),
    ]  # fmt: skip
    assert (report.total, report.arrived, report.interrupted) == (3, 3, False)
    assert [step.done for step in seen] == [2, 3]


def test_a_store_that_fails_leaves_the_batch():
    acts = []
    with pytest.raises(StoreUnavailable):
        ingestion(Source(acts, "abc"), Store(acts, down=True)).run()
    assert acts == []


@pytest.mark.parametrize("refusal", [RecordRefused, ValueError])
def test_a_letter_that_the_store_refuses_keeps_no_other_out(refusal, caplog):
    acts = []
    store = Store(acts, refuses="b", refusal=refusal)
    report = ingestion(Source(acts, "abc"), store, batch_size=3).run()
    assert acts == [("save", ["a"]), ("save", ["c"]), ("remove", ["a", "c"])]
    assert (report.arrived, report.refused, report.removed, report.done) == (2, 1, 2, 3)
    assert "refused DeadLetter b" in caplog.text


@pytest.mark.parametrize(("limit", "left"), [(1, 4), (2, 3), (3, 2), (5, 0), (9, 0)])
def test_the_limit_is_kept_to_the_message(limit, left):
    source = Source([], "abcde")
    report = ingestion(source, Store([])).run(limit=limit)
    assert len(source.waiting) == left
    assert report.arrived == report.total == 5 - left


def test_told_to_stop_it_finishes_the_batch_in_hand():
    acts = []
    report = ingestion(Source(acts, "abc"), Store(acts)).run(should_stop=lambda: bool(acts))
    assert acts == [("save", ["a", "b"]), ("remove", ["a", "b"])]
    assert (report.arrived, report.interrupted) == (2, True)


def test_a_message_without_origin_is_an_error_and_touches_nothing():
    acts = []
    with pytest.raises(IngestError, match=r"2 of the next 2 .*the first is a\).* --to QUEUE"):
        ingestion(Source(acts, "ab", queue="dead"), Store(acts)).run()
    assert acts == []


def test_without_an_operator_it_is_kept_without_a_queue(caplog):
    acts = []
    ingestion(Source(acts, "ab", queue="dead"), Store(acts), need_place=False).run()
    assert acts == [("save", ["a", "b"]), ("remove", ["a", "b"])]
    assert "2 messages of queue dead do not say where they came from" in caplog.text


def test_run_again_after_a_kill_before_the_removal_it_adds_nothing(own_store):
    store = own_store
    for hours in (0, 1):
        again = ingestion(Source([], "abc"), store)
        again._now = lambda hours=hours: T0 + timedelta(hours=hours)
        report = again.run()
        assert (report.arrived, report.known) == ((3, 0) if hours == 0 else (0, 3))
    assert store.counts.letters(Filter()) == 3
    assert [len(store.letters.get(task_id).attempts) for task_id in "abc"] == [1, 1, 1]


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
        monkeypatch.setattr(module, name, 0.001)


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
