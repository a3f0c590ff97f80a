from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from celery_dlq.errors import ArchiveError, StoreUnavailable
from celery_dlq.store.base import Lease
from celery_dlq.upkeep.expiring import RetentionThread, Round

PATIENCE_S = 60
HELD, TURN = Lease(name="retention", token=3), Lease(name="retention.turn", token=9)


class Leases:
    """Gives the turn and the lease or not, in turn; the last answer stays."""

    def __init__(self, *turns, lease=HELD):
        self.turns, self.lease, self.given_up, self.holders = list(turns), lease, [], set()

    def take(self, name, *, holder, seconds):
        if name == "retention":
            assert holder == "me"
            return self.lease
        assert (name, seconds) == ("retention.turn", 3_600.0)
        assert holder not in self.holders
        self.holders.add(holder)
        return self.turns.pop(0) if len(self.turns) > 1 else self.turns[0]

    def give_up(self, lease):
        self.given_up.append(lease)


class Queue:
    """Counts the rounds; each of them may raise an error."""

    def __init__(self, leases, *errors, round=lambda pause: None, stopped=False):
        self.stopped = stopped
        self.store = SimpleNamespace(leases=leases)
        self.health = SimpleNamespace(works=self.works, fails=self.fails)
        self.errors, self.rounds, self.failed, self.round = list(errors), 0, [], round
        self.done = threading.Event()

    def run(self, lease, pause):
        assert lease == HELD
        self.rounds += 1
        if self.errors:
            raise self.errors.pop(0)
        self.round(pause)
        return Round(7, is_over=not self.stopped)

    def works(self, _does):
        self.done.set()

    def fails(self, does, error):
        self.failed.append((does, str(error)))


def thread_of(queue, draw):
    dlq = SimpleNamespace(store_health=queue.health, store=queue.store, retention=queue)
    return RetentionThread(dlq, "me", draw=draw)


@pytest.fixture
def run():
    started = []

    def begin(queue, draw=lambda _low, _high: 0.001):
        thread = thread_of(queue, draw)
        started.append(thread)
        thread.start()
        return thread

    yield begin
    for thread in started:
        thread.stop()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_after_a_round_no_worker_begins_another_one_for_an_hour(run):
    leases = Leases(TURN, None)
    queue = Queue(leases)
    run(queue)
    assert queue.done.wait(PATIENCE_S)
    assert (queue.rounds, leases.given_up) == (1, [HELD])


def test_it_does_nothing_before_its_turn(run):
    queue = Queue(Leases(None))
    run(queue)
    assert queue.done.wait(PATIENCE_S)
    assert queue.rounds == 0


def test_while_another_process_runs_a_round_it_gives_its_turn_back(run):
    leases = Leases(TURN, None, lease=None)
    queue = Queue(leases)
    run(queue)
    assert queue.done.wait(PATIENCE_S)
    assert (queue.rounds, leases.given_up) == (0, [TURN])


def test_an_error_ends_the_round_and_not_the_thread_and_the_turn_is_given_back(run):
    leases = Leases(TURN, TURN, TURN, None)
    queue = Queue(leases, StoreUnavailable("away"), ValueError("a bug"))
    run(queue)
    assert queue.done.wait(PATIENCE_S)
    assert queue.rounds == 3
    assert queue.failed == [("retention", "away")]
    assert leases.given_up[:4] == [HELD, TURN, HELD, TURN]


def test_a_worker_that_stops_gives_its_turn_back(run):
    pausing = threading.Event()

    def long_round(pause):
        pausing.set()
        assert pause(PATIENCE_S)

    leases = Leases(TURN)
    thread = run(Queue(leases, round=long_round, stopped=True))
    assert pausing.wait(PATIENCE_S)
    thread.stop()
    thread.join(PATIENCE_S)
    assert leases.given_up == [HELD, TURN]


def test_workers_ask_rarely():
    asked = []

    def draw(low, high):
        asked.append((low, high))
        thread.stop()
        return 0.0

    thread = thread_of(Queue(Leases(None)), draw)
    thread.run()
    assert asked == [(0.0, 600.0)]


def test_a_round_that_lost_its_lease_is_not_the_last_one_within_an_hour(run):
    leases = Leases(TURN, None)
    queue = Queue(leases, stopped=True)
    run(queue)
    assert queue.done.wait(PATIENCE_S)
    assert leases.given_up == [HELD, TURN]


def test_a_turn_that_is_not_due_does_not_end_an_obstacle(run, caplog):
    caplog.set_level("INFO")
    leases = Leases(TURN, None)
    queue = Queue(leases, ArchiveError("the archive is away"))
    asked = threading.Event()
    queue.health.works = lambda _does: asked.set()
    run(queue)
    assert asked.wait(PATIENCE_S)
    said = [record.getMessage() for record in caplog.records]
    assert said == ["expired letters are not removed: the archive is away"]
