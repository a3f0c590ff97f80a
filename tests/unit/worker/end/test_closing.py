"""What monitors and meters are told of the end of a request, and when."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from celery.exceptions import Retry
from celery.worker import state
from support.workers.parent_requests import einfo, request_maker

from celery_dlq.model.headers import REDRIVE_HEADER
from celery_dlq.model.letter import Parking
from celery_dlq.model.states import State
from celery_dlq.settings import Settings
from celery_dlq.worker.body.ending import UNREPORTED, RunEnd
from celery_dlq.worker.body.report import report
from celery_dlq.worker.end import letters
from celery_dlq.worker.end.closing import report_to_valve
from celery_dlq.worker.end.request import DLQRequest

DEAD = ("task-dead-lettered", {"name": "shop.charge", "state": "DEAD-LETTERED"})


class Eventer:
    enabled = True

    def __init__(self):
        self.sent = []

    def send(self, kind, uuid, **fields):
        assert uuid == "4711"
        self.sent.append((kind, fields))

    @property
    def kinds(self):
        return [kind for kind, _ in self.sent]


@pytest.fixture
def request_(make, desk):
    request = make()
    request._eventer = Eventer()
    return request


def settings(app, **values):
    app.dead_letter_queue.__dict__["settings"] = Settings(**values)


def test_a_dead_letter_is_announced_after_its_failure_once_it_is_safe(request_, desk):
    request_.on_failure(einfo(ValueError("bad")))
    assert request_._eventer.sent == []
    desk.release()
    assert request_._eventer.kinds == ["task-failed", "task-dead-lettered"]
    assert request_._eventer.sent[-1] == DEAD


def test_a_lost_worker_is_announced(request_, desk):
    request_.on_failure(einfo(WorkerLostError("signal 9")))
    desk.release()
    assert request_._eventer.sent[-1] == DEAD


def test_a_time_limit_is_announced_last_whichever_way_it_comes(request_, desk):
    request_.on_failure(einfo(TimeLimitExceeded(3)))
    request_.on_timeout(False, 3)
    desk.release()
    assert request_._eventer.sent[-1] == DEAD
    assert request_._eventer.kinds.count("task-dead-lettered") == 1


def test_what_fails_once_more_after_its_letter_is_announced_once_more(request_, desk):
    request_.on_failure(einfo(TimeLimitExceeded(3)))
    desk.release()
    request_.on_timeout(False, 3)
    assert request_._eventer.sent[-1] == DEAD


def test_on_threads_only_the_time_limit_is_heard_of(request_, desk):
    request_.on_timeout(False, 3)
    desk.release()
    assert request_._eventer.sent[-1] == DEAD


def test_it_can_be_turned_off(app, request_, desk):
    settings(app, events=False)
    request_.on_failure(einfo(ValueError("bad")))
    desk.release()
    assert request_._eventer.kinds == ["task-failed"]


def test_a_cold_shutdown_tells_of_no_failure(request_, desk, monkeypatch):
    monkeypatch.setattr(state, "should_terminate", True)
    request_.on_failure(einfo(ValueError("bad")))
    desk.release()
    assert "task-dead-lettered" not in request_._eventer.kinds


def test_a_worker_without_events_sends_none(request_, desk):
    request_._eventer.enabled = False
    request_.on_failure(einfo(ValueError("bad")))
    desk.release()
    assert request_._eventer.sent == []


def retried(parking=None):
    info = einfo(Retry("again", ValueError("bad")))
    report(info, RunEnd(retried=True, for_error=True, rule="os.closed", parking=parking))
    return info


def test_a_retry_is_no_dead_letter(request_, desk):
    request_.on_failure(retried())
    desk.release()
    assert request_._eventer.kinds == ["task-retried"]


def test_nor_is_one_that_is_parked(request_, desk, monkeypatch):
    parked = SimpleNamespace(state=State.PARKED)
    monkeypatch.setattr(letters, "parked_letter", lambda *_: parked)
    request_.on_failure(retried(parking=object.__new__(Parking)))
    desk.release()
    assert desk.records == [parked]
    assert request_._eventer.kinds == ["task-retried"]


def test_an_event_that_cannot_be_sent_stops_nothing(request_, desk, monkeypatch, caplog):
    def send(kind, uuid, **fields):
        if kind == "task-dead-lettered":
            raise OSError("gone")

    monkeypatch.setattr(request_._eventer, "send", send)
    request_.on_failure(einfo(ValueError("bad")))
    desk.release()
    assert "could not send an event about shop.charge[4711]: task-dead-lettered" in caplog.text


@pytest.fixture
def receive(app, desk, monkeypatch):
    """A worker gets a message; what it sends at once."""

    def receive(**headers):
        sent = []
        monkeypatch.setattr(
            DLQRequest, "send_event", lambda _, kind, **fields: sent.append((kind, fields))
        )
        request_maker(app)(**headers)
        return sent

    return receive


def test_a_redriven_message_is_announced_when_a_worker_has_it(app, receive):
    expected = [("task-redriven", {"name": "shop.charge", "state": "REDRIVEN"})]
    assert receive(**{REDRIVE_HEADER: 1}) == expected
    settings(app, events=False)
    assert receive(**{REDRIVE_HEADER: 1}) == []


def test_neither_a_first_message_nor_the_retry_of_a_redriven_one_is(receive):
    assert receive() == []
    assert receive(**{REDRIVE_HEADER: 1, "retries": 2}) == []


class Meter:
    def __init__(self):
        self.noted = []

    def dead_lettered(self, letter, safe):
        self.noted.append(letter.exception_type)
        return safe

    def retried(self, task, rule):
        self.noted.append((task, rule))


@pytest.fixture
def meter(app):
    meter = app.dead_letter_queue.__dict__["meter"] = Meter()
    return meter


def test_retries_and_letters_are_counted_in_the_parent(app, desk, meter):
    make = request_maker(app)
    make().on_failure(retried())
    make().on_failure(einfo(ValueError("bad")))
    desk.release()
    assert meter.noted == [("shop.charge", "os.closed"), "ValueError"]


def test_a_breaker_that_fails_keeps_no_end_from_being_recorded(caplog):
    request = SimpleNamespace(
        _dlq_reported=False, type="shop.charge", name="shop.charge", id="0d3f",
        task=SimpleNamespace(_makes_letters=True),
    )  # fmt: skip

    report_to_valve(request, UNREPORTED, ValueError("no currency"))

    assert "the end of shop.charge[0d3f] was not reported to the valve" in caplog.text
