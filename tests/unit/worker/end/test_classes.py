"""A message is in the flight recorder from its acceptance until its run has ended, however it ends."""

from __future__ import annotations

import os
from dataclasses import replace
from types import SimpleNamespace

import pytest
from billiard.exceptions import Terminated, WorkerLostError
from celery import Celery
from celery.exceptions import Ignore, Reject, Retry
from celery.worker import state as worker_state
from celery.worker.request import Request, create_request_cls
from support.workers.parent_requests import Message, charging_app, einfo

from celery_dlq import DLQTask
from celery_dlq.model.headers import REDRIVE_HEADER
from celery_dlq.model.letter import Outcome
from celery_dlq.recorder.files import directories, locked_files, look
from celery_dlq.recorder.flight import FlightRecorder
from celery_dlq.recorder.segment import Mark, read
from celery_dlq.worker.batches import _Batch
from celery_dlq.worker.end import letters
from celery_dlq.worker.end.classes import RecordedRequest, bound

SUCCESS = (False, None, 0.1)


class Delivered(Message):
    acknowledged, errors = False, ()


@pytest.fixture
def files(tmp_path):
    found = FlightRecorder(tmp_path / "recorder", worker="w@host")
    yield found
    for segment in found._segments:
        segment.live.clear()
    found.close()


@pytest.fixture
def capture(app, desk, files):
    found = app.dead_letter_queue.capture
    found.__dict__["flight_recorder"] = files
    return found


@pytest.fixture
def accept(app, capture):
    """Makes a request as a consumer's strategy does, and has the pool accept it."""

    def accept(task="shop.charge", redelivered=False, payload=None, pool=None, pid=4711, **headers):
        registered, done = app.tasks[task], []
        with bound(registered, capture):
            cls = create_request_cls(
                registered.Request, registered, SimpleNamespace(apply_async=None), "w@host", None,
                app=app,
            )  # fmt: skip
        message = Delivered(task, **headers)
        message.payload = payload or message.payload
        message.delivery_info["redelivered"] = redelivered
        request = cls(
            message, app=app, task=registered, hostname="w@host", body=message.body,
            on_ack=lambda *_: done.append(files_of(capture)), on_reject=lambda *a: None,
        )  # fmt: skip
        request.when_acknowledged = done
        request.on_accepted(pid, 0.0)
        return request

    yield accept
    worker_state.reset_state()


def marks_in(files):
    """What is known of the messages that have not ended."""
    return [
        entry.marks
        for path in files.directory.glob("*/*.rec")
        for entry in read(path.read_bytes()).entries
    ]


def files_of(capture):
    """Messages that a process which looks now would find."""
    return sum(one.messages for one in look(capture.flight_recorder.directory))


def test_the_message_is_in_the_file_before_it_is_acknowledged(accept, files):
    request = accept()
    assert request.when_acknowledged == [1]
    assert files.live == 1


def test_it_names_the_process_of_a_greenlet_and_not_the_greenlet(accept, files, capture):
    accept(pid=id(object()))
    files._own.close()  # as the kernel does when the worker is killed
    [directory] = directories(files.directory)
    with locked_files(directory) as found:
        assert [message.pid for message, _ in found.messages()] == [os.getpid()]


def test_a_success_ends_it(accept, files):
    request = accept()
    request.on_success(SUCCESS)
    assert files.live == 0
    request.on_success(SUCCESS)
    assert files.live == 0


def test_a_failure_ends_it_when_its_letter_is_safe(accept, files, desk):
    request = accept()
    request.on_failure(einfo(KeyError("eur")), return_ok=True)
    assert files.live == 1
    assert desk.urgent == [], "it may wait for others: its message is acknowledged"
    desk.release()
    assert files.live == 0


def test_so_does_a_process_that_died(accept, files, desk):
    request = accept()
    request.on_failure(einfo(WorkerLostError("signal 9")))
    assert files.live == 1
    desk.release()
    assert files.live == 0


def test_so_does_a_failure_that_comes_as_the_result(accept, files, desk):
    request = accept()
    request.on_success((True, einfo(KeyError("eur")), 0.1))
    assert files.live == 1
    desk.release()
    assert files.live == 0


def test_a_hard_time_limit_ends_it_when_its_letter_is_safe(accept, files, desk):
    request = accept()
    request.on_timeout(False, 5.0)
    assert files.live == 1
    desk.release()
    assert files.live == 0


def test_a_soft_time_limit_does_not(accept, files):
    request = accept()
    request.on_timeout(True, 5.0)
    assert files.live == 1
    request.on_success(SUCCESS)


@pytest.mark.parametrize("exc", [Retry("later", exc=KeyError()), Ignore(), Reject(requeue=False)])
def test_so_does_a_run_that_left_without_a_failure(accept, files, desk, exc):
    request = accept()
    request.on_failure(einfo(exc))
    desk.release()
    assert files.live == 0


def test_a_revoked_task_that_was_terminated_has_ended(accept, files):
    request = accept()
    request.terminate(SimpleNamespace(terminate_job=lambda *_: None), signal="TERM")
    assert files.live == 0
    request.on_failure(einfo(Terminated(15)))
    assert files.live == 0


def test_a_cold_shutdown_ends_it_with_its_letter(accept, files, desk):
    request = accept()
    request.cancel(SimpleNamespace(terminate_job=lambda *_: None))
    [letter] = desk.records
    assert letter.reason.value == "cancelled"
    assert files.live == 0


def test_a_cold_shutdown_does_not_end_it_while_its_letter_is_being_saved(accept, files, desk):
    request = accept()
    request.on_failure(einfo(KeyError("eur")), return_ok=True)
    request.cancel(SimpleNamespace(terminate_job=lambda *_: None))
    assert files.live == 1
    desk.release()
    assert files.live == 0


def test_a_cold_shutdown_whose_letter_is_not_saved_leaves_it_in_the_file(accept, files, desk):
    def fail(_letter):
        raise KeyboardInterrupt

    desk.write_now = fail
    request = accept()
    with pytest.raises(KeyboardInterrupt):
        request.cancel(SimpleNamespace(terminate_job=lambda *_: None))
    assert files.live == 1


@pytest.mark.parametrize(("forgets", "recorded"), [(True, 1), (False, 0)])
def test_a_late_task_is_recorded_if_the_broker_forgets_its_message(
    app, accept, files, desk, forgets, recorded
):
    dlq = app.dead_letter_queue
    dlq.__dict__["hold"] = replace(dlq.hold, forgets=forgets)
    app.tasks["shop.charge"].acks_late = True
    request = accept()
    assert files.live == recorded
    request.on_failure(einfo(WorkerLostError("signal 9")))
    desk.release()
    assert request.acknowledged, "it has gone back to its queue"
    assert files.live == 0


@pytest.mark.parametrize(
    "headers", [{REDRIVE_HEADER: 1}, {"retries": 1}], ids=["a redrive", "a retry"]
)
def test_a_success_that_the_store_waits_for_ends_it_when_it_is_safe(accept, files, desk, headers):
    request = accept(**headers)
    request.on_success(SUCCESS)
    assert files.live == 1
    assert desk.urgent == desk.records
    assert marks_in(files) == [Mark.SUCCEEDED], "which tells more than that it was running"
    desk.release()
    assert files.live == 0


def test_a_cold_shutdown_makes_no_letter_of_a_success_that_is_being_stored(accept, files, desk):
    request = accept(**{REDRIVE_HEADER: 1})
    request.on_success(SUCCESS)
    request._announce_cancelled("cancelled")
    assert [type(record) for record in desk.records] == [Outcome]


def test_a_letter_that_cannot_be_made_does_not_keep_it(accept, files, monkeypatch, caplog):
    def fail(*_, **__):
        raise RuntimeError("no letter")

    monkeypatch.setattr(letters, "snapshot", fail)
    accept().on_failure(einfo(KeyError("eur")))
    assert files.live == 0
    assert "could not make a dead letter" in caplog.text  # with the whole message


def test_a_users_own_request_class_is_called_and_recorded(app, accept, files, desk):
    calls = []

    class Own(Request):
        def on_success(self, outcome, **options):
            calls.append("success")
            super().on_success(outcome, **options)

        def on_failure(self, *args, **options):
            calls.append("failure")
            return super().on_failure(*args, **options)

    app.tasks["shop.charge"].Request = Own
    accept().on_success(SUCCESS)
    # Celery's own subclass replaces a user's on_success, with and without this package.
    assert (calls, files.live) == ([], 0)
    accept().on_failure(einfo(KeyError("eur")))
    desk.release()
    assert (calls, files.live) == (["failure"], 0)


def test_without_celerys_subclass_a_users_on_success_is_called(app, capture, files):
    class Own(Request):
        def on_success(self, outcome, **options):
            super().on_success(outcome, **options)
            self.was_called = True

    task = app.tasks["shop.charge"]
    task.Request = Own
    with bound(task, capture):
        made = task.Request
    message = Delivered("shop.charge")
    request = made(message, app=app, task=task, hostname="w@host", body=message.body)
    request.on_accepted(4711, 0.0)
    assert files.live == 1
    request.on_success(SUCCESS)
    assert (request.was_called, files.live) == (True, 0)
    worker_state.reset_state()


def test_the_class_of_a_task_is_as_before_after_its_strategy_was_made(app, capture):
    task = app.tasks["shop.charge"]
    before = task.Request
    with bound(task, capture):
        assert issubclass(task.Request, RecordedRequest)
    assert task.Request == before


@pytest.mark.parametrize("option", [{"acks_late": True}, {"dlq_recorder": False}])
def test_a_task_is_not_recorded_if_the_broker_keeps_it_or_it_opts_out(
    app, accept, files, desk, option
):
    for name, value in option.items():
        setattr(app.tasks["shop.charge"], name, value)
    request = accept()
    assert not isinstance(request, RecordedRequest)
    assert files.live == 0
    assert not files.directory.exists()


@pytest.mark.parametrize("setting", [True, False])
def test_a_setting_turns_it_on_or_off_for_all_tasks(setting):
    app = charging_app(dlq_recorder=setting)
    task = app.tasks["shop.charge"]
    with bound(task, app.dead_letter_queue.capture):
        assert issubclass(task.Request, RecordedRequest) == setting


def test_celerys_own_tasks_are_not_recorded(capture):
    app = Celery("unit", broker="memory://", task_cls=DLQTask, set_as_current=False)
    app.finalize()
    task = app.tasks["celery.backend_cleanup"]
    with bound(task, capture):
        assert not issubclass(task.Request, RecordedRequest)


def test_a_message_of_celery_3_names_its_task_in_the_file(accept, files, capture):
    """Its headers do not, and its body may be one that must not be unpickled."""
    request = accept()
    message, fields = Delivered("shop.charge"), request.request_dict
    message.headers = {}
    files.record(message, "shop.charge", 7, fields)
    request._message, request._dlq_entry = message, None
    request.record_acceptance(7)
    assert files.live == 3
    [path] = capture.flight_recorder.directory.glob("*/*.rec")
    assert path.read_bytes().count(b'"fields":{"id":"4711","task":"shop.charge","retries":0') == 2


def test_a_batch_is_recorded_message_by_message(app, accept, files, desk):
    requests = [accept(id=name) for name in ("one", "two", "three")]
    for request in requests:
        request.end_record()
        request.__dict__.pop("_already_acknowledged", None)
    assert files.live == 0
    batch = _Batch(requests)
    batch.on_accepted(4711, 0.0)
    assert files.live == 3
    batch.on_return((einfo(KeyError("eur")),) * 3)
    assert files.live == 3
    desk.release()
    assert files.live == 0


def test_a_batch_that_succeeds_ends_all_its_messages(accept, files, desk):
    requests = [accept(id="one"), accept(id="two", retries=1)]
    _Batch(requests).on_return(None)
    assert files.live == 1, "the success of a retry is not stored yet"
    desk.release()
    assert files.live == 0
