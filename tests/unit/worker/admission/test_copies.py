"""Of several copies of a message, the one that the store accepts first runs."""

from types import SimpleNamespace

import pytest
from celery.worker import state
from support.parent_requests import charging_app, held_recorder, request_maker

from celery_dlq.model.headers import COPY_HEADER, LETTER_HEADER, REDRIVE_HEADER, RELEASE_HEADER
from celery_dlq.worker.admission import copies as module
from celery_dlq.worker.admission.copies import Copies
from celery_dlq.worker.admission.pipeline import Admission


class Store:
    """Accepts the first copy of each; what it was asked."""

    def __init__(self):
        self.accepted, self.asked = {}, []
        self.parked = SimpleNamespace(accept=self.accept_releases)
        self.sendings = SimpleNamespace(accept=self.accept_sendings)

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
def recorder(app):
    recorder = held_recorder(app)
    recorder.store = Store()
    return recorder


@pytest.fixture
def consumer():
    return Consumer()


@pytest.fixture
def copies(recorder, consumer):
    copies = Copies(recorder)
    Admission([copies]).join(consumer, consumer.on_task_request)
    return copies


@pytest.fixture
def arrive(app, copies, consumer):
    """Lets a message with these headers come."""
    make = request_maker(app)

    def arrive(**headers):
        request = make(**headers)
        state.task_reserved(request)
        consumer.on_task_request(request)
        return request

    return arrive


def release(copy):
    return {RELEASE_HEADER: f"here.4711/{copy}"}


def redrive(copy, number=1, **headers):
    return {REDRIVE_HEADER: number, COPY_HEADER: copy, **headers}


def test_any_other_message_runs_at_once_and_nobody_is_asked(arrive, recorder, consumer):
    request = arrive()
    assert consumer.ran == [request]
    assert recorder.waiting == []


@pytest.mark.parametrize("headers", [release(1), redrive("c1")], ids=["release", "redrive"])
def test_it_runs_when_the_store_says_so(arrive, recorder, consumer, headers):
    request = arrive(**headers)
    assert consumer.ran == []
    recorder.release()
    assert consumer.ran == [request]


@pytest.mark.parametrize(
    ("first", "second", "word"),
    [
        (release(2), release(1), "was released twice; this copy is dropped"),
        (redrive("c2"), redrive("c1"), "was sent twice by its redrive 1"),
    ],
    ids=["release", "redrive"],
)
def test_a_second_copy_is_dropped(arrive, recorder, consumer, caplog, first, second, word):
    runs, dropped = arrive(**first), arrive(**second)
    recorder.release()
    assert consumer.ran == [runs]
    assert (runs.done, dropped.done) == ([], ["ack"])
    assert dropped not in state.reserved_requests
    assert word in caplog.text


@pytest.mark.parametrize("headers", [release(1), redrive("c1")], ids=["release", "redrive"])
def test_the_copy_that_was_accepted_may_be_delivered_again(arrive, recorder, consumer, headers):
    arrive(**headers)
    arrive(redelivered=True, **headers)
    recorder.release()
    assert len(consumer.ran) == 2


def test_a_redrive_is_told_by_letter_number_and_claim(arrive, recorder):
    arrive(**redrive("c1"))
    arrive(**redrive("c1", 2))
    arrive(**redrive("c1", 2, **{LETTER_HEADER: "kept-as"}))
    recorder.release()
    assert recorder.store.asked == [
        [("4711", 1, "c1")], [("4711", 2, "c1")], [("kept-as", 2, "c1")],
    ]  # fmt: skip


def test_a_retry_of_a_redriven_message_is_not_asked_about(arrive, recorder, consumer):
    arrive(**redrive("c1", retries=1))
    assert (len(consumer.ran), recorder.waiting) == (1, [])


def test_a_retry_of_it_that_was_parked_is_asked_about_as_a_release(arrive, recorder):
    arrive(**redrive("c1", retries=1), **release(1))
    recorder.release()
    assert recorder.store.asked == [[("here.4711", 1)]]


def test_what_an_older_version_sent_runs(arrive, recorder, consumer):
    arrive(**{REDRIVE_HEADER: 1})
    assert (len(consumer.ran), recorder.waiting) == (1, [])


@pytest.mark.parametrize("headers", [release(1), redrive("c1")], ids=["release", "redrive"])
def test_with_the_store_away_it_waits_and_then_runs_all_the_same(
    arrive, recorder, consumer, caplog, headers
):
    recorder.store = None
    request = arrive(**headers)
    for _ in range(module.ACCEPT_TRIES):
        assert consumer.ran == []
        recorder.release()
        consumer.go_on()
    assert consumer.ran == [request]
    assert consumer.pauses == [module.ACCEPT_PAUSE_S] * (module.ACCEPT_TRIES - 1)
    assert "does not say if it ran" in caplog.text


def test_a_store_that_is_back_is_believed(arrive, recorder, consumer):
    store, recorder.store = recorder.store, None
    first = arrive(**redrive("c2"))
    recorder.release()
    recorder.store = store
    second = arrive(**redrive("c1"))
    recorder.release()
    consumer.go_on()
    recorder.release()
    assert consumer.ran == [second]
    assert first.done == ["ack"]


def test_what_was_asked_before_the_connection_was_lost_is_left_alone(
    arrive, recorder, consumer, copies
):
    before = arrive(**redrive("c1"))
    copies.stop()
    after = arrive(**redrive("c1"))
    recorder.release()
    assert consumer.ran == [after]
    assert before.done == []


@pytest.mark.parametrize(
    "headers",
    [{RELEASE_HEADER: 7}, {COPY_HEADER: "c1"}, redrive(7), redrive("c1", number="one")],
)
def test_a_header_that_is_none_of_ours_is_ignored(arrive, recorder, consumer, headers):
    arrive(**headers)
    assert (len(consumer.ran), recorder.waiting) == (1, [])


def test_an_error_of_ours_lets_it_run(arrive, recorder, consumer, caplog, monkeypatch):
    monkeypatch.setattr(module, "copy_of", lambda request: 1 / 0)
    arrive(**redrive("c1"))
    assert len(consumer.ran) == 1
    assert "could not tell" in caplog.text
