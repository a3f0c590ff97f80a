"""One request alone in its worker: which others wait, for how long, and when they go on."""

import pytest
from celery.worker import state
from support.workers.parent_requests import Ticks

from celery_dlq.worker.admission import Admission
from celery_dlq.worker.admission.isolation import HOLD_S, IsolatedRun


class Fake:
    """A request as far as the worker's own lists and the pool know it."""

    def __init__(self, name):
        self.id, self._apply_result = name, None

    def __repr__(self):
        return self.id


class Worker(Ticks):
    """A consumer, its timer, and a pool that starts whatever it is given."""

    def __init__(self):
        super().__init__()
        self.controller, self.timer = self, self
        self.started, self.slots_given_back = [], 0
        self.now = 0.0

    def on_task_request(self, request):
        request._apply_result = "the pool's"
        self.started.append(request.id)

    def _quick_release(self):
        self.slots_given_back += 1

    def receive(self, name):
        request = Fake(name)
        state.task_reserved(request)
        self.on_task_request(request)
        return request

    def end(self, request):
        state.task_ready(request)


@pytest.fixture
def worker():
    return Worker()


@pytest.fixture
def isolation(worker):
    isolation = IsolatedRun(monotonic=lambda: worker.now)
    Admission([isolation]).join(worker, worker.on_task_request)
    return isolation


@pytest.fixture
def suspect(worker):
    suspect = Fake("suspect")
    state.task_reserved(suspect)
    return suspect


@pytest.fixture
def enter(isolation, suspect):
    """Sends the suspect in; what it was told is on the list."""
    told = []

    def start(alone):
        told.append(alone)
        suspect._apply_result = "the pool's"

    def joined(then):
        told.append("joined")
        then()

    def enter():
        isolation.enter(suspect, start, joined)
        return told

    return enter


def test_without_a_suspect_requests_go_straight_to_the_pool(worker, isolation):
    worker.receive("a")
    assert worker.started == ["a"]
    assert worker.ticks == []


def test_nothing_else_runs_so_it_starts_at_once(enter):
    assert enter() == [True]


def test_it_waits_until_those_before_it_have_ended(worker, enter):
    before = worker.receive("before")
    told = enter()
    worker.tick()
    assert told == []
    worker.end(before)
    worker.tick()
    assert told == [True]


def test_it_waits_for_what_is_about_to_run(worker, isolation, enter):
    coming = Fake("coming")
    isolation.expect(coming)
    told = enter()
    assert told == []
    isolation.arrived(coming)
    worker.tick()
    assert told == [True]


def test_what_waits_elsewhere_and_was_not_given_to_the_pool_is_no_company(worker, enter):
    held_by_another_gate = Fake("held")
    state.task_reserved(held_by_another_gate)
    assert enter() == [True]


def test_others_are_held_until_it_has_ended_and_then_go_in_their_order(worker, enter, suspect):
    enter()
    for name in "abc":
        worker.receive(name)
    worker.tick()
    assert worker.started == []
    worker.end(suspect)
    worker.tick()
    assert worker.started == ["a", "b", "c"]
    assert worker.ticks == [], "nothing is left to look at"


def test_a_second_suspect_gives_its_slot_back_and_waits_with_the_others(
    worker, isolation, enter, suspect
):
    enter()
    worker.receive("a")
    second = Fake("second")
    state.task_reserved(second)
    isolation.enter(second, lambda alone: pytest.fail("two at once"), lambda then: None)
    assert worker.slots_given_back == 1
    assert isolation.keeps_out(Fake("third"))
    worker.end(suspect)
    worker.tick()
    assert worker.started == ["a", "second", "third"], "each asks again from the beginning"


def test_the_one_that_is_alone_is_not_kept_out(isolation, enter, suspect):
    enter()
    assert not isolation.keeps_out(suspect)


def test_company_that_never_ends_does_not_hold_the_others_for_ever(worker, enter):
    worker.receive("endless")
    told = enter()
    worker.receive("held")
    worker.now += HOLD_S
    worker.tick()
    assert told == [False], "it runs, but not alone"
    assert worker.started == ["endless", "held"]


def test_a_suspect_that_never_ends_does_not_hold_the_others_for_ever(worker, enter):
    told = enter()
    worker.receive("held")
    worker.now += HOLD_S
    worker.tick()
    assert told == [True, "joined"], "that it is not alone any more is written down first"
    assert worker.started == ["held"]


def test_a_lost_connection_lets_go_of_all(worker, isolation, enter, suspect):
    enter()
    worker.receive("held")
    isolation.stop()
    worker.tick()
    assert worker.started == [], "its message went back to the broker"
    worker.receive("new")
    assert worker.started == ["new"]


def test_an_error_of_ours_holds_nobody(worker, isolation, suspect, caplog):
    worker.receive("before")
    isolation.enter(suspect, lambda alone: 1 / 0, lambda then: None)
    worker.receive("held")
    worker.end(next(iter(state.reserved_requests - {suspect})))
    worker.now += HOLD_S
    worker.tick()
    assert "held" in worker.started
    assert "ZeroDivisionError" in caplog.text


def test_a_held_request_that_cannot_go_on_keeps_no_other_one(
    worker, isolation, enter, suspect, caplog
):
    enter()
    for name in "abc":
        worker.receive(name)
    start = isolation._onward

    def enter_pool(request):
        if request.id == "b":
            raise OSError("no")
        start(request)

    isolation._onward = enter_pool
    worker.end(suspect)
    worker.tick()
    assert worker.started == ["a", "c"]
    assert "could not let go of b" in caplog.text
