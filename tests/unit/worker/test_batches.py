"""Batches of celery-batches, in a worker that runs in a thread: a batch that fails ends as each of its
messages would have, had it run alone."""

from __future__ import annotations

import math
import shutil
import time
import uuid
from itertools import chain

import pytest
from celery import Celery
from celery.exceptions import Reject
from support.workers.embedded_worker import PATIENCE_S, QUICK, working

from celery_dlq import DeadLetterQueue, DLQTask, Filter, Reason, State
from celery_dlq.worker.batches import _Batch, is_batched
from celery_dlq.worker.uncaptured import gaps

celery_batches = pytest.importorskip("celery_batches")


class Ours(DLQTask, celery_batches.Batches):
    """Ours first."""

    abstract = True


class Theirs(celery_batches.Batches, DLQTask):
    """Ours last."""

    abstract = True


class Flushing(DLQTask, celery_batches.Batches):
    """Runs its batches itself."""

    abstract = True

    def flush(self, requests):
        return None


class Wrapping(DLQTask, celery_batches.Batches):
    """Runs its batches as celery-batches does."""

    abstract = True

    def flush(self, requests):
        return super().flush(requests)


class Shop:
    """An app with one task that takes three messages at a time."""

    def __init__(self, directory, base, **options):
        self.seen, self.error, self.failing = [], None, math.inf
        self.app = Celery("batched", broker="memory://", set_as_current=False)
        self.app.conf.update(
            task_default_queue=f"batched-{uuid.uuid4().hex}",
            task_ignore_result=True,
            broker_transport_options=QUICK,
            dlq_store_url=f"sqlite:///{directory}/store.sqlite3",
            dlq_spool_dir=str(directory / "spool"),
            dlq_retry_base=0.0,
        )
        options = {"flush_every": 3, "flush_interval": 30, **options}

        @self.app.task(base=base, name="charge", shared=False, **options)
        def charge(requests):
            self.seen.append([request.args[0] for request in requests])
            if self.error is not None and len(self.seen) <= self.failing:
                raise self.error

        self.app.finalize()
        self.task, self.dlq = charge, DeadLetterQueue.of(self.app)
        self.worker = self.consumer = None

    def __enter__(self):
        self.worker = working(self.app)
        self.consumer = self.worker.__enter__().consumer
        return self

    def __exit__(self, *exc):
        self.worker.__exit__(*exc)
        self.app.close()

    def send(self, *orders):
        # The body takes one argument, a list of messages.
        return [self.task.apply_async((order, "EUR")).id for order in orders]

    def letters(self, sent, state=State.DEAD):
        found = [self.dlq.store.letters.get(one) for one in sent]
        return found if all(one and one.state is state for one in found) else []


def wait_for(ready):
    deadline = time.monotonic() + PATIENCE_S
    while not (answer := ready()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
    return answer


@pytest.fixture
def make_shop(tmp_path, empty_store):
    shutil.copy(empty_store, tmp_path / "store.sqlite3")
    return lambda base=Ours, **options: Shop(tmp_path, base, **options)


@pytest.mark.parametrize("acks_late", [False, True])
@pytest.mark.parametrize("base", [Ours, Theirs])
def test_a_batch_that_fails_is_a_letter_for_each_message(make_shop, base, acks_late):
    with make_shop(base, acks_late=acks_late) as shop:
        shop.error = ValueError("EURO")
        sent = shop.send(1, 2, 3)
        letters = wait_for(lambda: shop.letters(sent))
        assert [letter.args[0] for letter in letters] == [1, 2, 3]
        for letter in letters:
            assert (letter.reason, letter.exception_type) == (Reason.TERMINAL, "ValueError")
            assert len(letter.attempts) == 1
            assert "raise self.error" in letter.traceback
            assert letter.envelope.queue == shop.app.conf.task_default_queue
        assert len({letter.fingerprint for letter in letters}) == 1
        assert shop.seen == [[1, 2, 3]]
        wait_for(lambda: not _unacknowledged(shop))


@pytest.mark.parametrize("base", [Wrapping, celery_batches.Batches])
def test_a_batch_that_is_run_by_celery_batches_runs_as_without_this_package(make_shop, base):
    with make_shop(base, acks_late=True) as shop:

        @shop.app.task(base=DLQTask, name="mail", shared=False)
        def mail(): ...

        sent = shop.send(1, 2, 3)
        wait_for(lambda: shop.seen == [[1, 2, 3]] and not _unacknowledged(shop))
        assert [shop.dlq.store.letters.get(one) for one in sent] == [None] * 3


def test_a_batch_that_the_pool_refuses_is_a_letter_for_each_message(make_shop, monkeypatch):
    with make_shop(acks_late=True) as shop:
        monkeypatch.setattr(_Batch, "on_accepted", _refusing)
        sent = shop.send(1, 2, 3)
        letters = wait_for(lambda: shop.letters(sent))
        assert {letter.message for letter in letters} == {
            "the pool cannot take it: ValueError: not here"
        }
        assert shop.seen == []
        wait_for(lambda: not _unacknowledged(shop))


def _refusing(batch, pid, time_accepted):
    raise ValueError("not here")


def test_a_batch_that_succeeds_asks_the_store_nothing(make_shop, monkeypatch):
    with make_shop(acks_late=True) as shop:
        capture = shop.consumer.dlq
        asked = []
        monkeypatch.setattr(capture.writer, "_put", asked.append)
        shop.send(1, 2, 3)
        wait_for(lambda: shop.seen == [[1, 2, 3]] and not _unacknowledged(shop))
        assert asked == []


def test_a_transient_failure_is_tried_again_and_exhausts_each_message(make_shop):
    with make_shop(max_retries=1, flush_interval=0.1) as shop:
        shop.error = ConnectionResetError("gone")
        sent = shop.send(1, 2, 3)
        letters = wait_for(lambda: shop.letters(sent))
        for letter in letters:
            assert letter.reason is Reason.EXHAUSTED
            assert [attempt.number for attempt in letter.attempts] == [1, 2]


def test_what_is_tried_again_and_succeeds_is_no_letter(make_shop):
    with make_shop(flush_interval=0.1) as shop:
        # Only the first batch fails: a retry may come before this test looks again.
        shop.error, shop.failing = ConnectionResetError("gone"), 1
        shop.send(1, 2, 3)
        wait_for(lambda: sorted(chain(*shop.seen[1:])) == [1, 2, 3])
        assert shop.dlq.store.counts.letters(Filter()) == 0


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (SystemExit(3), Reason.TERMINAL),
        (MemoryError(), Reason.TERMINAL),
        (Reject("no", requeue=False), Reason.REJECTED),
    ],
)
def test_other_ends_of_a_batch(make_shop, error, reason):
    with make_shop() as shop:
        shop.error = error
        sent = shop.send(1, 2, 3)
        letters = wait_for(lambda: shop.letters(sent))
        assert {letter.reason for letter in letters} == {reason}


def test_a_redriven_message_is_resolved_by_a_batch_that_succeeds(make_shop):
    with make_shop() as shop:
        shop.error = ValueError("EURO")
        sent = shop.send(1, 2, 3)
        wait_for(lambda: shop.letters(sent))
        shop.error = None
        done = shop.dlq.redrives.start(Filter(), who="tester")
        assert done.counts.out == 3
        wait_for(lambda: shop.letters(sent, State.RESOLVED))
        assert sorted(shop.seen[1:]) == [[1], [2], [3]], "one of several copies runs alone"


def test_what_runs_its_batches_itself_is_told(make_shop):
    shop = make_shop(Flushing)
    [gap] = gaps(shop.app)
    assert gap.loses_letters
    assert gap.why.startswith("its flush() replaces that of celery-batches")
    shop.app.close()


def test_a_task_that_takes_batches_is_no_gap(make_shop):
    shop = make_shop()
    assert is_batched(shop.app.tasks["charge"])
    assert gaps(shop.app) == []
    shop.app.close()


def _unacknowledged(shop):
    qos = shop.consumer.task_consumer.channel.qos
    return set(qos._delivered) - qos._dirty
