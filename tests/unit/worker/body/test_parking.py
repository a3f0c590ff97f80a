"""A retry that is to wait long, from the body that asks for it to the letter that the store keeps."""

import json
import pickle
from datetime import datetime, timedelta, timezone

import pytest
from celery import signature
from celery.exceptions import Retry
from support.workers.parent_requests import charging_app, held_desk, request_maker
from support.workers.task_tracer import Run

from celery_dlq import DLQTask, Reason
from celery_dlq.model.headers import ATTEMPTS_HEADER, COMPRESSED_HEADER, RELEASE_HEADER
from celery_dlq.model.states import State, Verdict
from celery_dlq.worker.failure import read_attempts, unwrap


def parking_of(run):
    return run.end.parking


def seconds_from_now(moment) -> float:
    return (moment - datetime.now(timezone.utc)).total_seconds()


@pytest.fixture
def waits(app):
    """Makes a task whose retry waits so many seconds."""

    def make(seconds, **options):
        @app.task(base=DLQTask, name="shop.waits", default_retry_delay=seconds, **options)
        def charge(*args, **kwargs):
            raise ConnectionError("bank")

        return charge

    return make


def test_a_short_wait_is_the_brokers(waits):
    run = Run(waits(60))
    assert run.message.headers["eta"]
    assert parking_of(run) is None


def test_a_long_wait_is_parked_and_nothing_is_sent(waits):
    run = Run(waits(61), 17, currency="EUR")

    parking = pickle.loads(pickle.dumps(parking_of(run)))
    assert run.message is None
    assert (run.state, run.retried) == ("RETRY", True)
    assert 55 < seconds_from_now(parking.due_at) <= 61
    assert parking.failure.reason is Reason.PARKED
    assert "ConnectionError: bank" in parking.failure.traceback
    assert parking.failure.explanation.verdict is Verdict.TRANSIENT


def test_what_is_parked_is_the_message_that_celery_would_have_sent(app, waits):
    task = waits(59)
    headers = {"x-own": "1", RELEASE_HEADER: "here.1/1"}
    sent = Run(task, 17, retries=2, headers=headers, currency="EUR").message
    task.default_retry_delay = 61
    kept = parking_of(Run(task, 17, retries=2, headers=headers, currency="EUR")).envelope

    assert json.loads(kept.body) == json.loads(sent.body)
    assert (kept.content_type, kept.content_encoding) == (sent.content_type, sent.content_encoding)
    assert (kept.exchange, kept.routing_key, kept.queue) == ("", "celery", "celery")
    of_time = {"eta", ATTEMPTS_HEADER}
    assert {name: value for name, value in kept.headers.items() if name not in of_time} == {
        name: value for name, value in sent.headers.items() if name not in of_time
    }
    assert kept.headers["retries"] == 3
    assert kept.headers["eta"] is None
    assert RELEASE_HEADER not in kept.headers
    for name, value in kept.properties.items():
        assert sent.properties[name] == value
    [attempt] = read_attempts(kept.headers)
    assert (attempt.number, attempt.delay_s) == (3, 61.0)


def test_a_compressed_message_stays_compressed(app, waits):
    app.conf.task_compression = "gzip"
    kept = parking_of(Run(waits(61), "x" * 500)).envelope
    assert kept.headers["compression"] == "application/x-gzip"
    assert kept.headers[COMPRESSED_HEADER]
    assert kept.body[:2] != b"[["


def test_the_canvas_goes_with_it(app):
    @app.task(base=DLQTask, name="shop.first", bind=True)
    def first(self):
        self.request.chain = [signature("shop.second")]
        self.request.callbacks = [signature("shop.told")]
        raise self.retry(exc=ConnectionError("bank"), countdown=3600)

    _args, _kwargs, embed = json.loads(parking_of(Run(first)).envelope.body)
    assert [item["task"] for item in embed["chain"]] == ["shop.second"]
    assert [item["task"] for item in embed["callbacks"]] == ["shop.told"]


@pytest.mark.parametrize("aware", [True, False])
def test_an_eta_is_a_wait_too(app, aware):
    @app.task(base=DLQTask, name="shop.later", bind=True)
    def later(self):
        eta = datetime.now(timezone.utc) + timedelta(hours=2)
        raise self.retry(eta=eta if aware else eta.replace(tzinfo=None))

    parking = parking_of(Run(later))
    assert 7_100 < seconds_from_now(parking.due_at) <= 7_200


def test_celery_says_when_it_goes_on(app):
    @app.task(base=DLQTask, name="shop.later", bind=True)
    def later(self):
        raise self.retry(countdown=3600)

    again = unwrap(Run(later).einfo)
    assert isinstance(again, Retry)
    assert str(again) == "Retry in 3600s"


@pytest.mark.parametrize("ends", ["returns", "raises"])
def test_a_body_that_goes_on_after_its_retry_has_it_sent_by_the_broker(app, ends):
    @app.task(base=DLQTask, name="shop.stubborn", bind=True)
    def stubborn(self):
        try:
            self.retry(countdown=3600)
        except Retry:
            if ends == "raises":
                raise KeyError("eur") from None
        return 5

    run = Run(stubborn)
    assert run.state == ("SUCCESS" if ends == "returns" else "FAILURE")
    assert run.message.headers["eta"] > datetime.now(timezone.utc).isoformat()
    assert parking_of(run) is None


def test_a_retry_that_does_not_end_the_run_is_the_brokers(app):
    @app.task(base=DLQTask, name="shop.again", bind=True)
    def again(self):
        self.retry(countdown=3600, throw=False)
        return 5

    run = Run(again)
    assert run.state == "SUCCESS"
    assert run.message.headers["eta"]


def test_of_two_retries_the_first_is_parked_and_the_second_is_the_first(app):
    @app.task(base=DLQTask, name="shop.twice", bind=True)
    def twice(self):
        try:
            self.retry(countdown=3600)
        except Retry:
            raise self.retry(countdown=7200) from None

    run = Run(twice)
    assert run.message is None
    assert seconds_from_now(parking_of(run).due_at) < 3_700


def test_attempts_are_used_up_as_ever(waits):
    run = Run(waits(3600, max_retries=2), retries=2)
    assert run.failure.reason is Reason.EXHAUSTED
    assert parking_of(run) is None
    assert run.message is None


def test_an_eager_call_parks_nothing(waits):
    task = waits(3600, max_retries=0)
    assert isinstance(task.apply().result, ConnectionError)


class TestTheParent:
    @pytest.fixture
    def shop(self):
        return charging_app()

    def test_it_acknowledges_when_the_retry_is_safe(self, shop, app, waits):
        desk, make = held_desk(shop), request_maker(shop)
        request = make()
        shop.tasks["shop.charge"].acks_late = True

        request.on_failure(Run(waits(3600)).einfo)

        [letter] = desk.records
        assert letter.state is State.PARKED
        assert letter.reason is Reason.PARKED
        assert (letter.task_id, letter.task) == ("4711", "shop.charge")
        assert letter.parking.startswith(f"{app.dead_letter_queue.hold.place}.")
        assert letter.envelope.headers["retries"] == 1
        assert request.done == []
        desk.release()
        assert request.done == ["ack"]
