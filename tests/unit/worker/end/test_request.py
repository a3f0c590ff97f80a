"""DLQRequest as the worker's parent uses it, with a desk that the test holds back."""

import re
import signal
import time
from types import SimpleNamespace

import celery
import pytest
from billiard.exceptions import Terminated, TimeLimitExceeded, WorkerLostError
from celery import Celery
from celery.app.task import Context
from celery.concurrency.base import BasePool
from celery.exceptions import Ignore, InvalidTaskError, Reject, Retry
from celery.utils.collections import LimitedSet
from celery.worker.request import Request
from support.workers.parent_requests import Message, einfo

import celery_dlq.worker.end.request
from celery_dlq import DeadLetter, Decision, DLQTask, Reason, Verdict
from celery_dlq.model.headers import COPY_HEADER, LETTER_HEADER, REDRIVE_HEADER
from celery_dlq.model.letter import Outcome, digest_of
from celery_dlq.worker.body.ending import Replaced, RunEnd, died
from celery_dlq.worker.body.report import report
from celery_dlq.worker.end.request import DLQRequest
from celery_dlq.worker.message import envelope


@pytest.fixture
def late(app):
    app.tasks["shop.charge"].acks_late = True


REFUSED = {
    "it has no id": {"id": ""},
    "the id is not text but a list of 1": {"id": ["a"]},
    "retries are not a number but str": {"retries": "2"},
    "timelimit is not a pair but int": {"timelimit": 5},
    "timelimit is not a pair of numbers": {"timelimit": ["a", None]},
    "the eta 0001-01-01 00:00:00+14:00 is out of range": {"eta": "0001-01-01T00:00:00+14:00"},
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_celery_would_drop_or_run_wrongly_is_refused(make, why):
    with pytest.raises(InvalidTaskError, match=re.escape(why)):
        make(**REFUSED[why])


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (("abc", {}, {}), "args are not a list but str"),
        (([], [], {}), "kwargs are not a table but a list of 0"),
        (([], {}, 5), "the third part of the body is not a table but int"),
    ],
)
def test_so_is_a_body_with_other_contents(make, payload, why):
    with pytest.raises(InvalidTaskError, match=why):
        make(payload=payload)


@pytest.mark.parametrize(
    "headers",
    [{}, {"id": 7}, {"timelimit": [10, None]}, {"retries": None}, {"eta": "2026-11-22T00:00:00Z"}],
)
def test_what_celery_can_run_is_taken(make, headers):
    assert make(**headers).name == "shop.charge"


def test_a_message_that_is_as_nearly_all_is_not_looked_at_twice(make, monkeypatch):
    monkeypatch.setattr(celery_dlq.worker.end.request, "check_request", None)
    assert "_payload" not in vars(make()), "Celery keeps what is read by that name"


def noted(exc, rule, reason):
    """What the process that ran the task knows of its end."""
    context = Context(id="4711", retries=0, hostname="child@host")
    return died(context, exc, Decision(Verdict.TERMINAL, rule=rule), reason)


def test_a_failure_is_recorded_before_its_message_is_acknowledged(make, desk, late):
    request = make()
    request.on_failure(einfo(KeyError("eur")), return_ok=True)
    [letter] = desk.records
    assert isinstance(letter, DeadLetter)
    assert request.done == [], "the letter is not safe yet"
    desk.release()
    assert request.done == ["ack"]


def test_the_letter_is_made_of_the_raw_message(make, desk):
    make().on_failure(einfo(KeyError("eur")), return_ok=True)
    [letter] = desk.records
    assert letter.envelope.body == b'[[17], {"token": "s3cret"}, {}]'
    assert letter.envelope.properties == {"correlation_id": "4711", "reply_to": "r", "priority": 2}
    assert (letter.queue, letter.task, letter.tags) == ("slow", "shop.charge", ("money",))
    assert (letter.args, letter.kwargs) == ([17], {"token": "[redacted]"})
    assert letter.exception_type == "KeyError"
    assert "KeyError: 'eur'" in letter.traceback


@pytest.mark.parametrize(
    ("exc", "reason"),
    [
        (KeyError("eur"), Reason.TERMINAL),
        (ConnectionError("raised where nobody could retry it"), Reason.EXHAUSTED),
        (Reject("no", requeue=False), Reason.REJECTED),
        (WorkerLostError("signal 9"), Reason.POISON),
        (SystemExit(1), Reason.POISON),
        (TimeLimitExceeded(5), Reason.TIMEOUT),
    ],
)
def test_the_reason_says_how_it_died(make, desk, exc, reason):
    make().on_failure(einfo(exc))
    assert [letter.reason for letter in desk.records] == [reason]


@pytest.mark.parametrize(
    "exc", [Retry("later", exc=KeyError()), Ignore(), Terminated(15), Reject(requeue=True)]
)
def test_what_lives_on_or_was_dropped_on_purpose_is_no_letter(make, desk, late, exc):
    make().on_failure(einfo(exc))
    assert desk.records == []


def test_a_message_that_goes_back_to_its_queue_is_no_letter(make, desk, app, late):
    app.tasks["shop.charge"].reject_on_worker_lost = True
    request = make()
    request.on_failure(einfo(WorkerLostError("signal 9")))
    assert request.done == [], "its death is not counted yet"
    desk.release()
    assert desk.records == []
    assert request.done == ["reject True"]


@pytest.mark.skipif(not hasattr(Request, "_retry_worker_lost"), reason="since Celery 5.7")
@pytest.mark.parametrize("can_send", [True, False])
def test_a_lost_process_whose_retry_cannot_be_sent_is_a_letter(
    make, desk, app, monkeypatch, can_send
):
    task = app.tasks["shop.charge"]
    monkeypatch.setattr(task, "retry_on_worker_lost", True, raising=False)

    def send():
        if not can_send:
            raise ConnectionError("the broker is away")

    retry = SimpleNamespace(apply_async=send)
    monkeypatch.setattr(task, "signature_from_request", lambda *_args, **_options: retry)
    request = make()
    request.acknowledge()
    request.on_failure(einfo(WorkerLostError("signal 9")))
    assert [letter.reason for letter in desk.records] == ([] if can_send else [Reason.POISON])


def test_a_requeue_that_came_too_late_is_a_letter(make, desk):
    request = make()
    request.acknowledge()
    request.on_failure(einfo(Reject(requeue=True)))
    assert [letter.reason for letter in desk.records] == [Reason.REJECTED]


def test_a_hard_time_limit_is_one_letter_and_everything_waits_for_it(make, desk, late):
    request = make()
    request.on_failure(einfo(TimeLimitExceeded(1)))
    request.on_timeout(soft=False, timeout=1)
    assert len(desk.records) == 1
    assert request.done == []
    desk.release()
    assert request.done == ["ack"]


def test_a_pool_that_only_reports_the_time_out_has_its_letter_too(make, desk):
    make().on_timeout(soft=False, timeout=1)
    assert [letter.reason for letter in desk.records] == [Reason.TIMEOUT]


def test_a_soft_time_limit_is_only_announced(make, desk):
    make().on_timeout(soft=True, timeout=1)
    assert desk.records == []


def test_the_note_of_the_process_that_ran_it_wins(make, desk, app):
    info = einfo(KeyError("pickled beyond recognition"))
    report(info, noted(KeyError("real"), "mine", Reason.EXHAUSTED))
    make().on_failure(info, return_ok=True)
    [letter] = desk.records
    assert (letter.message, letter.rule, letter.reason) == ("'real'", "mine", Reason.EXHAUSTED)


def test_a_first_success_costs_and_records_nothing(make, desk):
    request = make()
    assert "on_success" not in vars(request)
    request.on_success((False, 1, 0.1))
    assert desk.records == []


@pytest.mark.parametrize(
    ("options", "redrive"),
    [({REDRIVE_HEADER: 3}, 3), ({"redelivered": True}, 0), ({"retries": 1}, 0)],
)
def test_success_of_what_came_back_is_an_outcome(make, desk, late, options, redrive):
    request = make(**options)
    request.on_success((False, 1, 0.1))
    [outcome] = desk.records
    assert isinstance(outcome, Outcome)
    assert (outcome.task_id, outcome.redrive) == ("4711", redrive)
    assert outcome.digest == digest_of(envelope(request.message, request.app).body)
    assert request.done == [], "the outcome is not safe yet"
    desk.release()
    assert request.done == ["ack"]


@pytest.mark.parametrize("headers", [{"id": "x" * 300}, {"id": 7}])
def test_outcome_and_failure_belong_to_the_letter_that_was_sent(make, desk, headers):
    sent_again = {REDRIVE_HEADER: 1, LETTER_HEADER: "kept-as", **headers}
    make(**sent_again).on_success((False, 1, 0.1))
    make(**sent_again).on_failure(einfo(KeyError("again")), return_ok=True)
    assert [record.task_id for record in desk.records] == ["kept-as", "kept-as"]


def test_a_redrive_header_that_is_no_count_is_none(make, desk):
    make(**{REDRIVE_HEADER: "many"}).on_success((False, 1, 0.1))
    make(**{REDRIVE_HEADER: -1}).on_failure(einfo(KeyError()), return_ok=True)
    outcome, letter = desk.records
    assert (outcome.redrive, letter.attempts[-1].redrive) == (0, 0)


def test_failure_of_what_came_back_is_a_failure(make, desk):
    make(**{REDRIVE_HEADER: 3}).on_success((True, einfo(KeyError("again")), 0.1))
    [letter] = desk.records
    assert [attempt.redrive for attempt in letter.attempts] == [3]


def test_a_letter_that_cannot_be_made_is_in_the_log_and_celery_goes_on(make, desk, late, caplog):
    request = make()
    request._message.properties = 7
    request.on_failure(einfo(KeyError("eur")), return_ok=True)
    assert request.done == ["ack"]
    [record] = [record for record in caplog.records if record.levelname == "CRITICAL"]
    assert "s3cret" in record.getMessage()


def test_celerys_own_tasks_are_no_letters(desk):
    app = Celery("unit", broker="memory://", task_cls=DLQTask, set_as_current=False)
    app.finalize()
    task = app.tasks["celery.backend_cleanup"]
    message = Message(task.name)
    request = DLQRequest(message, app=app, task=task, body=message.body)
    request.on_failure(einfo(KeyError()), return_ok=True)
    assert desk.records == []


class BrokenBackend:
    """A result backend that is down."""

    def __getattr__(self, name):
        raise ConnectionError("the backend is down")


class TestResultBackendDown:
    @pytest.fixture(autouse=True)
    def _down(self, app):
        app.tasks["shop.charge"].backend = BrokenBackend()

    def test_a_retry_that_is_on_its_way_is_no_letter(self, make, desk):
        info = einfo(ConnectionError("the backend is down"))
        report(info, RunEnd(retried=True))
        make().on_failure(info, return_ok=True)
        assert desk.records == []

    @pytest.mark.skipif(celery.VERSION < (5, 7), reason="an earlier Celery can end it")
    def test_a_message_that_celery_could_not_end_is_acknowledged(self, make, desk, late, caplog):
        request = make()
        request.on_failure(einfo(Reject("no", requeue=False)))
        assert request.done == []
        desk.release()
        assert request.done == ["ack"]
        assert "Celery failed to end" in caplog.text

    def test_a_message_that_expired_is_dropped_and_the_worker_lives(
        self, make, desk, caplog, monkeypatch
    ):
        # The process remembers what has expired.
        monkeypatch.setattr("celery.worker.request.revoked_tasks", LimitedSet())
        request = make(expires="2020-01-01T00:00:00+00:00")
        assert request.revoked()
        assert request.revoked(), "and stays so"
        assert request.done == ["ack"]
        assert desk.records == []
        assert "Celery failed to end" in caplog.text


def test_a_memory_error_outside_of_the_body_does_not_reach_celery(make, desk, late):
    request = make()
    request.on_failure(einfo(MemoryError("in before_start")), return_ok=True)
    desk.release()
    [letter] = desk.records
    assert (letter.exception_type, letter.message) == (
        "celery_dlq.errors.TaskAborted",
        "MemoryError: in before_start",
    )
    assert request.done == ["ack"]


def test_a_retry_that_was_refused_before_the_body_has_the_reason(make, desk, late):
    request, info = make(), einfo(ValueError("no attempts left"))
    report(info, RunEnd(reason=Reason.EXHAUSTED))
    request.on_failure(info)
    desk.release()
    [letter] = desk.records
    assert (letter.reason, letter.message) == (Reason.EXHAUSTED, "no attempts left")


class TestShutdown:
    def test_a_task_that_was_acknowledged_is_a_letter_before_it_is_announced(self, make, desk, app):
        request, announced = make(), []
        app.tasks["shop.charge"].on_retry = lambda *_: announced.append(len(desk.records))
        request.acknowledge()
        request._announce_cancelled()
        assert announced == [1], "the letter came first"
        [letter] = desk.records
        assert (letter.reason, letter.task_id) == (Reason.CANCELLED, "4711")
        request.on_failure(einfo(Terminated(15)))
        assert len(desk.records) == 1

    def test_a_task_that_goes_back_to_its_queue_is_none(self, make, desk, late):
        make()._announce_cancelled()
        assert desk.records == []

    def test_a_task_whose_success_is_stored_is_none(self, make, desk, app):
        request = make()
        request.acknowledge()
        app.backend.store_result("4711", 1, "SUCCESS")
        request._announce_cancelled()
        assert desk.records == []

    @pytest.mark.parametrize(("redrive", "outcomes"), [(0, 0), (2, 1)])
    def test_a_task_whose_body_has_returned_is_none(
        self, make, desk, monkeypatch, redrive, outcomes
    ):
        request = make(**({REDRIVE_HEADER: redrive} if redrive else {}))
        request.acknowledge()
        request.worker_pid = 7
        monkeypatch.setattr(
            celery_dlq.worker.end.request, "has_returned", lambda *asked: asked == (7, "4711")
        )
        request._announce_cancelled()
        assert [record.redrive for record in desk.records] == [redrive] * outcomes

    @pytest.mark.parametrize("exc", [Terminated(15), WorkerLostError("signal 9")])
    def test_a_task_whose_body_has_returned_does_not_go_back(
        self, make, desk, late, monkeypatch, exc
    ):
        """Its process was ended before its parent had its result."""
        request = make()
        request.worker_pid = 7
        monkeypatch.setattr(
            celery_dlq.worker.end.request, "has_returned", lambda *asked: asked == (7, "4711")
        )
        request._announce_cancelled()
        request.on_failure(einfo(exc))
        assert (request.done, desk.records) == (["ack"], [])

    def test_the_success_of_an_earlier_message_with_the_same_id_is_not_its_own(
        self, make, desk, app
    ):
        app.backend.store_result("4711", 1, "SUCCESS")
        request = make()
        request.acknowledge()
        request.time_start = time.time() + 60  # so it began a minute after that success
        request._announce_cancelled()
        assert [letter.reason for letter in desk.records] == [Reason.CANCELLED]

    def test_a_task_that_is_ended_in_anothers_place_goes_back_to_its_queue(self, make, desk, late):
        request = make()
        request.on_failure(einfo(Terminated(15)))
        assert request.done == ["reject True"]
        assert desk.records == []

    def test_one_that_was_acknowledged_is_a_letter(self, make, desk):
        request = make()
        request.acknowledge()
        request.on_failure(einfo(Terminated(15)))
        [letter] = desk.records
        assert letter.reason is Reason.CANCELLED

    @pytest.mark.parametrize("how", ["before it began", "by name"])
    def test_one_that_was_meant_is_revoked(self, make, desk, late, how, monkeypatch):
        request = make()
        if how == "by name":
            monkeypatch.setattr("celery_dlq.worker.end.fate.revoked_tasks", {"4711"})
        else:
            request.terminate(None, "KILL")
        request.on_failure(einfo(Terminated(15)))
        assert request.done == ["ack"]
        assert desk.records == []

    def test_a_backend_that_is_down_costs_no_letter_and_stops_no_shutdown(
        self, make, desk, app, caplog
    ):
        request = make()
        request.acknowledge()
        app.tasks["shop.charge"].backend = BrokenBackend()
        request._announce_cancelled()
        assert [letter.reason for letter in desk.records] == [Reason.CANCELLED]
        assert "Celery failed to end shop.charge[4711], which was cancelled" in caplog.text

    def test_a_greenlet_that_was_killed_is_not_acknowledged_as_a_success(self, make, desk, late):
        request, killed = make(), []
        pool = SimpleNamespace(is_green=True, terminate_job=lambda *job: killed.append(job))
        request.on_accepted(5, 0.0)
        request.cancel(pool)
        request.on_success((False, None, None))
        assert killed == [(5, signal.SIGTERM)]
        assert (request.done, desk.records) == ([], []), "it goes back to its queue"

    def test_a_task_that_ended_as_it_was_cancelled_is_acknowledged(self, make, late):
        request = make()
        request.on_accepted(5, 0.0)
        request.cancel(SimpleNamespace(terminate_job=lambda *job: None))
        request.on_success((False, None, 0.1))
        assert request.done == ["ack"]

    def test_where_no_task_can_be_ended_it_goes_on(self, make, desk, caplog):
        request = make()
        request.on_accepted(5, 0.0)
        request.cancel(BasePool())
        assert desk.records == []
        assert "shop.charge[4711] cannot be cancelled in this pool; it goes on" in caplog.text


class DropNotes(list):
    """Stands in for the check for copies."""

    def dropped(self, request, why):
        self.append((request.id, why))


@pytest.fixture
def drops(app):
    notes = app.dead_letter_queue.capture.__dict__["copies"] = DropNotes()
    return notes


def test_a_redriven_message_that_is_revoked_has_no_outcome_and_that_is_reported(
    make, drops, monkeypatch
):
    monkeypatch.setattr("celery.worker.request.revoked_tasks", {"4711"})
    request = make(**{REDRIVE_HEADER: 1, COPY_HEADER: "c1"})
    assert request.revoked()
    assert (drops, request.done) == ([("4711", "its task was revoked")], ["ack"])


def test_so_has_one_whose_task_raises_ignore(make, drops):
    make(**{REDRIVE_HEADER: 1, COPY_HEADER: "c1"}).on_failure(einfo(Ignore()))
    assert drops == [("4711", "its task raised Ignore")]


def test_one_whose_task_replaced_itself_has_succeeded(make, desk, drops):
    request = make(**{REDRIVE_HEADER: 1, COPY_HEADER: "c1"})
    request.on_failure(einfo(Replaced(continues=False)))
    [outcome] = desk.records
    assert isinstance(outcome, Outcome)
    assert (outcome.task_id, outcome.redrive, outcome.task) == ("4711", 1, "shop.charge")
    assert (drops, request.done) == ([], [])
    desk.release()
    assert request.done == ["ack"]


def test_one_whose_replacement_belongs_to_the_same_redrive_says_nothing(make, desk, drops):
    request = make(**{REDRIVE_HEADER: 1, COPY_HEADER: "c1"})
    request.on_failure(einfo(Replaced(continues=True)))
    assert (desk.records, drops, request.done) == ([], [], ["ack"])


@pytest.mark.parametrize("headers", [{}, {"retries": 1}], ids=["the first run", "a retry"])
def test_one_that_was_not_redriven_says_nothing_when_it_is_replaced(make, desk, headers):
    """The message in its place has the same id, and may be dead already: nothing would tell the two apart."""
    request = make(**headers)
    request.on_failure(einfo(Replaced(continues=False)))
    assert (desk.records, request.done) == ([], ["ack"])


def test_one_whose_task_is_retried_or_fails_is_not_dropped(make, desk, drops):
    make(**{REDRIVE_HEADER: 1, COPY_HEADER: "c1"}).on_failure(einfo(Retry("later", exc=KeyError())))
    make(**{REDRIVE_HEADER: 1, COPY_HEADER: "c1"}).on_failure(einfo(KeyError()))
    make().on_failure(einfo(Ignore()))
    assert drops == []
