"""If a message has several copies, the one that the store accepts first runs."""

from types import SimpleNamespace

import pytest
from celery.exceptions import Reject
from celery.worker import state
from support.factories import T0
from support.workers.parent_requests import arrivals, charging_app, einfo, held_desk

from celery_dlq.model.headers import (
    COPY_HEADER,
    LETTER_HEADER,
    REDRIVE_HEADER,
    RELEASE_HEADER,
    SENT_HEADER,
)
from celery_dlq.store.base import Drop
from celery_dlq.worker.admission import Admission
from celery_dlq.worker.admission import copies as module
from celery_dlq.worker.admission.copies import REPORT_PAUSE_S, Copies
from celery_dlq.worker.admission.doubts import Doubts


class Store:
    """Accepts the first copy of each; what it was asked."""

    def __init__(self):
        self.accepted, self.asked = {}, []
        #: The messages in doubt.
        self.doubtful = frozenset()
        self.parked = SimpleNamespace(
            accept=self.accept_releases, in_doubt=lambda place: self.doubtful
        )
        self.sendings = SimpleNamespace(accept=self.accept_sendings, drop=self.drop)
        self.dropped = []

    def now(self):
        return T0

    def drop(self, drops, *, now):
        assert now == T0
        self.dropped += drops
        return [True] * len(drops)

    def accept_releases(self, keys):
        self.asked.append(list(keys))
        return [self.accepted.setdefault(parking, copy) == copy for parking, copy in keys]

    def accept_sendings(self, keys):
        self.asked.append(list(keys))
        return [
            self.accepted.setdefault((task_id, redrive), copy) == copy
            for task_id, redrive, copy in keys
        ]


class Consumer:
    """What stands before the pool; a timer that calls when the test lets it."""

    def __init__(self):
        self.ran, self.later, self.pauses = [], [], []
        self.on_task_request, self.timer = self.ran.append, self

    def call_after(self, seconds, callback):
        self.pauses.append(seconds)
        self.later.append(callback)

    def go_on(self):
        later, self.later = self.later, []
        for callback in later:
            callback()


@pytest.fixture
def app():
    return charging_app()


@pytest.fixture
def desk(app):
    desk = held_desk(app)
    desk.store = Store()
    return desk


@pytest.fixture
def consumer():
    return Consumer()


@pytest.fixture
def doubts():
    return Doubts("here")


@pytest.fixture
def copies(desk, consumer, doubts):
    copies = Copies(desk, doubts)
    Admission([copies]).join(consumer, consumer.on_task_request)
    return copies


@pytest.fixture
def arrive(app, copies, consumer):
    return arrivals(app, consumer)


def release(copy):
    return {RELEASE_HEADER: f"here.4711/{copy}"}


def redrive(copy, number=1, **headers):
    return {REDRIVE_HEADER: number, COPY_HEADER: copy, **headers}


def test_any_other_message_runs_at_once_and_nobody_is_asked(arrive, desk, consumer):
    request = arrive()
    assert consumer.ran == [request]
    assert desk.waiting == []


@pytest.mark.parametrize("headers", [release(1), redrive("c1")], ids=["release", "redrive"])
def test_it_runs_when_the_store_says_so(arrive, desk, consumer, headers):
    request = arrive(**headers)
    assert consumer.ran == []
    desk.release()
    assert consumer.ran == [request]


@pytest.mark.parametrize(
    ("first", "second", "word"),
    [
        (release(2), release(1), "was released twice; this copy is dropped"),
        (redrive("c2"), redrive("c1"), "was sent twice by its redrive 1"),
    ],
    ids=["release", "redrive"],
)
def test_a_second_copy_is_dropped(arrive, desk, consumer, caplog, first, second, word):
    runs, dropped = arrive(**first), arrive(**second)
    desk.release()
    assert consumer.ran == [runs]
    assert (runs.done, dropped.done) == ([], ["ack"])
    assert dropped not in state.reserved_requests
    assert word in caplog.text


@pytest.mark.parametrize("headers", [release(1), redrive("c1")], ids=["release", "redrive"])
def test_the_copy_that_was_accepted_may_be_delivered_again(arrive, desk, consumer, headers):
    arrive(**headers)
    arrive(redelivered=True, **headers)
    desk.release()
    assert len(consumer.ran) == 2


def test_a_redrive_is_told_by_letter_number_and_claim(arrive, desk):
    arrive(**redrive("c1"))
    arrive(**redrive("c1", 2))
    arrive(**redrive("c1", 2, **{LETTER_HEADER: "kept-as"}))
    desk.release()
    assert desk.store.asked == [
        [("4711", 1, "c1")], [("4711", 2, "c1")], [("kept-as", 2, "c1")],
    ]  # fmt: skip


def test_a_retry_of_a_redriven_message_is_not_asked_about(arrive, desk, consumer):
    arrive(**redrive("c1", retries=1))
    assert (len(consumer.ran), desk.waiting) == (1, [])


def test_a_retry_of_it_that_was_parked_is_asked_about_as_a_release(arrive, desk):
    arrive(**redrive("c1", retries=1), **release(1))
    desk.release()
    assert desk.store.asked == [[("here.4711", 1)]]


def test_what_an_older_version_sent_runs(arrive, desk, consumer):
    arrive(**{REDRIVE_HEADER: 1})
    assert (len(consumer.ran), desk.waiting) == (1, [])


@pytest.mark.parametrize("headers", [release(1), redrive("c1")], ids=["release", "redrive"])
def test_with_the_store_away_it_waits_and_then_runs_all_the_same(
    arrive, desk, consumer, caplog, headers
):
    desk.store = None
    request = arrive(**headers)
    for _ in range(module.ACCEPT_TRIES):
        assert consumer.ran == []
        desk.release()
        consumer.go_on()
    assert consumer.ran == [request]
    asked = [module.ACCEPT_PAUSE_S] * (module.ACCEPT_TRIES - 1)
    assert consumer.pauses == [*asked, REPORT_PAUSE_S]
    assert "does not say if it ran" in caplog.text


def run_unchecked(desk, consumer):
    """The store is away until a message runs; returns the store."""
    store, desk.store = desk.store, None
    while not consumer.ran:
        desk.release()
        consumer.go_on()
    desk.release()
    return store


def test_a_copy_that_ran_unchecked_is_reported_when_the_store_is_back(arrive, desk, consumer):
    arrive(**redrive("c1"))
    desk.store = run_unchecked(desk, consumer)
    assert consumer.pauses[-1] == REPORT_PAUSE_S
    consumer.go_on()
    desk.release()
    assert (desk.store.asked, consumer.later) == ([[("4711", 1, "c1")]], [])
    other = arrive(**redrive("c2"))
    desk.release()
    assert (len(consumer.ran), other.done) == (1, ["ack"])


def test_reports_outlive_the_connection_whose_timers_are_gone(arrive, desk, consumer, copies):
    arrive(**redrive("c1"))
    desk.store = run_unchecked(desk, consumer)
    copies.stop()
    consumer.later.clear()
    copies.start()
    desk.release()
    assert desk.store.asked == [[("4711", 1, "c1")]]


def test_a_redriven_message_that_is_dropped_is_reported(arrive, desk, consumer, copies):
    copies.dropped(arrive(**redrive("c1", 2)), "its task was revoked")
    desk.release()
    assert desk.store.dropped == [Drop("4711", 2, "c1", "its task was revoked")]


def test_it_is_reported_until_the_store_has_answered(arrive, desk, consumer, copies):
    request = arrive(**redrive("c1"))
    desk.release()
    store, desk.store = desk.store, None
    copies.dropped(request, "its task was revoked")
    for _ in range(3):
        desk.release()
        consumer.go_on()
    desk.store = store
    desk.release()
    assert len(store.dropped) == 1
    consumer.go_on()
    assert desk.waiting == []


def test_the_drop_of_any_other_message_is_not_reported(arrive, desk, copies):
    copies.dropped(arrive(), "its task was revoked")
    assert desk.waiting == []


def test_an_error_of_ours_does_not_keep_a_message_from_being_dropped(
    arrive, copies, caplog, monkeypatch
):
    request = arrive(**redrive("c1"))
    monkeypatch.setattr(module, "sending_of", lambda headers: 1 / 0)
    copies.dropped(request, "its task was revoked")
    assert "could not report" in caplog.text


def test_a_store_that_is_back_is_believed(arrive, desk, consumer):
    store, desk.store = desk.store, None
    first = arrive(**redrive("c2"))
    desk.release()
    desk.store = store
    second = arrive(**redrive("c1"))
    desk.release()
    consumer.go_on()
    desk.release()
    assert consumer.ran == [second]
    assert first.done == ["ack"]


def test_what_was_asked_before_the_connection_was_lost_is_left_alone(
    arrive, desk, consumer, copies
):
    before = arrive(**redrive("c1"))
    copies.stop()
    after = arrive(**redrive("c1"))
    desk.release()
    assert consumer.ran == [after]
    assert before.done == []


@pytest.mark.parametrize(
    "headers",
    [{RELEASE_HEADER: 7}, {COPY_HEADER: "c1"}, redrive(7), redrive("c1", number="one")],
)
def test_a_header_that_is_none_of_ours_is_ignored(arrive, desk, consumer, headers):
    arrive(**headers)
    assert (len(consumer.ran), desk.waiting) == (1, [])


def test_an_error_of_ours_lets_it_run(arrive, desk, consumer, caplog, monkeypatch):
    monkeypatch.setattr(module, "copy_of", lambda request: 1 / 0)
    arrive(**redrive("c1"))
    assert len(consumer.ran) == 1
    assert "could not tell" in caplog.text


class TestALostConnection:
    @pytest.fixture
    def run(self, arrive, app, copies):
        """Whose task runs when the connection is lost."""
        app.tasks["shop.charge"].acks_late = True
        run = arrive()
        state.task_accepted(run)
        copies.stop()
        return run

    def test_a_run_that_goes_on_gets_the_new_delivery(self, arrive, consumer, run):
        again = arrive(redelivered=True)
        assert consumer.ran == [run]
        assert state.requests["4711"] is run
        assert again not in state.reserved_requests
        assert (run.done, again.done) == ([], [])
        run.on_success((False, 1, 0.1))
        assert (run.done, again.done) == ([], ["ack"])

    def test_a_run_that_has_ended_is_not_repeated(self, arrive, consumer, run):
        run.on_success((False, 1, 0.1))
        again = arrive(redelivered=True)
        assert consumer.ran == [run]
        assert again.done == ["ack"]
        assert "4711" not in state.requests

    def test_a_run_that_was_acknowledged_early_is_acknowledged_again(self, arrive, consumer, run):
        run.acknowledge()
        assert arrive(redelivered=True).done == ["ack"]
        assert consumer.ran == [run]

    def test_a_run_that_was_cancelled_is_repeated(self, arrive, consumer, run):
        run._announce_cancelled()
        again = arrive(redelivered=True)
        assert consumer.ran == [run, again]

    def test_a_run_that_gave_its_message_back_is_repeated(self, arrive, consumer, desk, run):
        desk.store = None  # which does not count this end
        run.on_failure(einfo(Reject(requeue=True)))
        desk.release()
        assert run.done == ["reject True"]
        again = arrive(redelivered=True)
        assert consumer.ran == [run, again]

    def test_a_run_that_was_ended_in_anothers_place_is_repeated(self, arrive, consumer, run):
        run._end_bystander(lambda: None)
        assert run.done == ["reject True"]
        again = arrive(redelivered=True)
        assert consumer.ran == [run, again]

    @pytest.mark.parametrize(
        "other",
        [{}, {"redelivered": True, "retries": 1}, {"redelivered": True, REDRIVE_HEADER: 2}],
        ids=["sent twice", "its retry", "a redrive"],
    )
    def test_another_message_with_its_id_runs(self, arrive, consumer, desk, run, other):
        other = arrive(**other)
        desk.release()
        assert consumer.ran == [run, other]

    def test_what_comes_back_otherwise_runs(self, arrive, consumer, run, copies):
        state.task_ready(run)
        copies.stop()
        again = arrive(redelivered=True)
        assert consumer.ran == [run, again]


def test_until_it_is_known_which_are_in_doubt_the_store_is_asked_once(arrive, desk, consumer):
    desk.store.accepted = {"here.um2": 2}
    first, second = arrive(**{SENT_HEADER: "m1"}), arrive(**{SENT_HEADER: "m2"})
    desk.release()
    assert consumer.ran == [first]
    assert second.done == ["ack"]


def test_if_the_store_does_not_say_which_are_in_doubt_the_message_runs(arrive, desk, consumer):
    desk.store = None
    request = arrive(**{SENT_HEADER: "m1"})
    desk.release()
    assert consumer.ran == [request]
    assert desk.waiting == []


def test_a_message_that_is_not_in_doubt_runs_at_once(arrive, desk, consumer, doubts):
    desk.store.doubtful = {"other"}
    doubts.refresh(desk.store)
    request = arrive(**{SENT_HEADER: "m1"})
    assert consumer.ran == [request]
    assert desk.store.asked == []


def test_a_message_in_doubt_asks_the_store_first(arrive, desk, consumer, doubts):
    desk.store.doubtful = {"m1", "m2"}
    doubts.refresh(desk.store)
    desk.store.accepted = {"here.um2": 2}
    first, second = arrive(**{SENT_HEADER: "m1"}), arrive(**{SENT_HEADER: "m2"})
    assert consumer.ran == []
    desk.release()
    assert consumer.ran == [first]
    assert second.done == ["ack"]


def test_a_message_that_was_taken_before_it_was_in_doubt_is_reported(arrive, desk, doubts):
    arrive(**{SENT_HEADER: "m1"})
    doubts.refresh(desk.store)
    assert desk.store.asked == []
    desk.store.doubtful = {"m1", "m2"}
    doubts.refresh(desk.store)
    assert desk.store.asked == [[("here.um1", 1)]]


def test_the_oldest_message_is_forgotten_first(desk, doubts, monkeypatch):
    monkeypatch.setattr("celery_dlq.worker.admission.doubts.MOST", 2)
    for name in ("m1", "m2", "m3"):
        doubts.take(name)
    desk.store.doubtful = {"m1", "m2", "m3"}
    doubts.refresh(desk.store)
    assert sorted(desk.store.asked[0]) == [("here.um2", 1), ("here.um3", 1)]
