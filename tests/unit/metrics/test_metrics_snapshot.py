from __future__ import annotations

import logging
import threading

import pytest

from celery_dlq.errors import StoreUnavailable
from celery_dlq.metrics.snapshot import FRESH_S, GIVE_UP_S, Look, Snapshot, Snapshots

#: Seconds that a loaded machine may take for what takes none.
SOON_S = 60


class Store:
    """Answers when it is let, with what it is given; or at once."""

    def __init__(self) -> None:
        self.answers: list[object] = []
        self.asked = 0
        self.let = threading.Event()
        self.let.set()
        #: Set while somebody waits for an answer.
        self.began = threading.Event()

    def read(self) -> object:
        self.asked += 1
        number, let = self.asked, self.let
        if not let.is_set():
            self.began.set()
        assert let.wait(SOON_S)
        answer = self.answers.pop(0) if self.answers else number
        if isinstance(answer, Exception):
            raise answer
        return answer


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def store():
    store = Store()
    yield store
    store.let.set()


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def snapshots(store, time):
    return Snapshots(store.read, patience_s=5.0, clock=lambda: 1_000.0 + time.now, monotonic=time)


def test_who_waits_gets_a_fresh_answer(snapshots):
    assert snapshots.look(SOON_S) == Look(Snapshot(1, 1_000.0, 0.0), up=True)


def test_a_fresh_answer_is_not_asked_for_again(snapshots, store, time):
    snapshots.look(SOON_S)
    time.now = FRESH_S - 0.1
    assert snapshots.look(SOON_S).snapshot.value == 1
    time.now = FRESH_S
    assert snapshots.look(SOON_S).snapshot.value == 2


def test_the_first_question_does_not_wait_and_has_no_answer(snapshots, store):
    store.let.clear()
    assert snapshots.look(0) == Look(None, up=None)


def test_one_question_at_a_time(snapshots, store):
    store.let.clear()
    for _ in range(5):
        snapshots.look(0)
    store.let.set()
    snapshots.look(SOON_S)
    assert store.asked == 1


def test_a_store_that_does_not_come_back_counts_as_down(snapshots, store, time):
    snapshots.look(SOON_S)
    store.let.clear()
    time.now = FRESH_S
    assert snapshots.look(0).up is True
    time.now = FRESH_S + 5.0
    look = snapshots.look(0)
    assert (look.up, look.snapshot.value, look.snapshot.taken_at) == (False, 1, 1_000.0)
    store.let.set()
    assert snapshots.look(SOON_S).up is True


def test_a_store_that_fails_leaves_the_last_answer(snapshots, store, time, caplog):
    store.answers = ["fine", StoreUnavailable("gone"), StoreUnavailable("gone"), "back"]
    assert snapshots.look(SOON_S).up is True
    for _ in range(2):
        time.now += FRESH_S
        look = snapshots.look(SOON_S)
        assert (look.up, look.snapshot.value) == (False, "fine")
    assert [record.getMessage() for record in caplog.records] == ["no numbers of the store: gone"]
    time.now += FRESH_S
    assert snapshots.look(SOON_S).snapshot.value == "back"


def test_an_unexpected_error_is_logged_with_its_traceback(snapshots, store, caplog):
    store.answers = [ZeroDivisionError()]
    assert snapshots.look(SOON_S) == Look(None, up=False)
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info[0] is ZeroDivisionError


def test_a_failing_store_is_not_asked_more_often_than_another(snapshots, store, time):
    store.answers = [StoreUnavailable("gone")]
    snapshots.look(SOON_S)
    snapshots.look(SOON_S)
    assert store.asked == 1


def test_a_question_that_nothing_ends_is_given_up(snapshots, store, time):
    snapshots.look(SOON_S)
    given_up = store.let = threading.Event()
    time.now = FRESH_S
    snapshots.look(0)
    assert store.began.wait(SOON_S)
    store.let = threading.Event()
    store.let.set()
    time.now = FRESH_S + GIVE_UP_S - 1
    assert snapshots.look(0).up is False
    time.now = FRESH_S + GIVE_UP_S
    look = snapshots.look(SOON_S)
    assert (look.up, look.snapshot.value) == (True, 3)
    # What comes of the first one after all is not the present.
    given_up.set()
    assert snapshots.look(SOON_S).snapshot.value == 3
