from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest
from support.factories import T0, envelope

from celery_dlq.base.redact import Redactor
from celery_dlq.errors import IngestError, RecordRefused, StoreUnavailable
from celery_dlq.ingest.ingestion import Ingestion
from celery_dlq.ingest.letters import LetterMaker
from celery_dlq.ingest.source import BrokerMessage
from celery_dlq.store.base import Filter, Saved
from celery_dlq.worker.grouping import Grouping

WIRING = SimpleNamespace(
    redactor=Redactor(),
    settings=SimpleNamespace(release="", own_namespace="", routes=()),
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
    return BrokerMessage(
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


def ingestion(source, store, batch_size=2):
    maker = LetterMaker(queue="dead", to="", wiring=WIRING)
    return Ingestion(source, store, maker, batch_size=batch_size, now=lambda: T0)


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


def test_run_again_after_a_kill_before_the_removal_it_adds_nothing(own_store):
    store = own_store
    for hours in (0, 1):
        again = ingestion(Source([], "abc"), store)
        again._now = lambda hours=hours: T0 + timedelta(hours=hours)
        report = again.run()
        assert (report.arrived, report.known) == ((3, 0) if hours == 0 else (0, 3))
    assert store.counts.letters(Filter()) == 3
    assert [len(store.letters.get(task_id).attempts) for task_id in "abc"] == [1, 1, 1]
