import threading
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import pytest

from celery_dlq.errors import StoreUnavailable
from celery_dlq.store.base import Lease
from celery_dlq.upkeep import step
from celery_dlq.upkeep.step import UpkeepStep, UpkeepThread

PATIENCE_S = 60


class Store:
    """Answers each request for the lease in turn; has nothing parked."""

    def __init__(self, *answers):
        self.answers, self.given_up, self.pruned = list(answers), [], 0
        self.expired = []
        #: How many rows there are to be forgotten, in each transaction.
        self.history, self.forgotten = [], []
        self.done = threading.Event()

    def take_lease(self, name, *, holder, seconds):
        answer = self.answers.pop(0) if self.answers else None
        if not self.answers:
            self.done.set()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def give_up_lease(self, lease):
        self.given_up.append(lease)

    def next_due(self, place):
        return None

    def expire_sendings(self, *, sent_before, now):
        self.expired.append(now - sent_before)

    def prune_releases(self, *, older_than_s):
        self.pruned += 1

    def prune_circuits(self, *, older_than_s):
        assert older_than_s > 0

    def prune_history(self, before, *, limit):
        assert 0 < limit <= 1_000
        self.forgotten.append(before)
        return self.history.pop() if self.history else 0


@pytest.fixture(autouse=True)
def impatience(monkeypatch):
    for name in ("LOOK_S", "RETRY_S", "TRY_S", "PRUNE_PAUSE_S"):
        monkeypatch.setattr(step, name, 0.001)


def queue(store, history_retention=86_400.0):
    return SimpleNamespace(
        app=None,
        store=store,
        hold=SimpleNamespace(place="here"),
        settings=SimpleNamespace(
            batch_size=10, outcome_timeout=3_600.0, history_retention=history_retention
        ),
        redrives=SimpleNamespace(left=list),
    )


def work_off(store, **settings):
    thread = UpkeepThread(queue(store, **settings), "me")
    thread.start()
    assert store.done.wait(PATIENCE_S)
    thread.stopping.set()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_it_waits_for_its_turn_and_ends_it_with_the_worker():
    held = Lease(name="parked.here", token=3)
    store = Store(None, None, held, held)
    work_off(store)
    assert store.given_up in ([held], []), "unless somebody else had it by then"
    assert store.pruned == 1
    assert store.expired == [timedelta(hours=1)]


def test_a_store_that_is_away_is_told_once_and_again_when_it_is_back(caplog):
    caplog.set_level("INFO")
    away = StoreUnavailable("The dead-letter store does not answer")
    work_off(Store(away, away, away, None, RuntimeError("a bug"), None))
    assert caplog.text.count("parked retries are not released: The dead-letter store") == 1
    assert caplog.text.count("parked retries are released again") == 1
    assert "failed unexpectedly" in caplog.text


def test_the_step_starts_its_threads_and_stops_them():
    store = Store(None)
    worker = SimpleNamespace(
        app=SimpleNamespace(dead_letter_queue=queue(store)), hostname="w@host", steps=[]
    )
    upkeep = UpkeepStep(worker)
    upkeep.start(worker)
    assert store.done.wait(PATIENCE_S)
    upkeep.stop(worker)
    upkeep.stop(worker)
    names = {one.name for one in threading.enumerate()}
    assert names.isdisjoint({"dlq-upkeep", "dlq-operations"})


HELD = Lease(name="parked.here", token=3)


def test_history_is_forgotten_in_steps_until_nothing_old_is_left():
    store = Store(*[HELD] * 9)
    store.history = [500, 500, 7]
    work_off(store)
    assert len(store.forgotten) == 4
    (before,) = set(store.forgotten)
    age = datetime.now(timezone.utc) - before
    assert timedelta(days=1) <= age < timedelta(days=2)


def test_without_its_lease_it_forgets_no_more():
    store = Store(HELD, HELD, None)
    store.history = [500] * 5
    work_off(store)
    assert 1 <= len(store.forgotten) < 5


def test_history_may_be_kept_for_ever():
    store = Store(*[HELD] * 9)
    work_off(store, history_retention=None)
    assert (store.forgotten, store.pruned) == ([], 1)
