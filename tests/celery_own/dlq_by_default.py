"""A pytest plugin that makes DLQTask the default task class, and its request the default request.

Loaded with ``-p``, and so before Celery's conftest and tests import what is replaced here.
"""

from unittest.mock import Mock

import celery
import celery.worker.request
import pytest
from celery.contrib.testing import mocks

from celery_dlq import DeadLetterQueue, DLQTask
from celery_dlq.worker.body.ending import begin_run
from celery_dlq.worker.end.classes import RecordedRequest
from celery_dlq.worker.end.request import DLQRequest


class _InstantDesk:
    """What is written is safe at once, and no question has an answer."""

    written, is_in_loop = 0, False

    def write(self, what, then, urgent=False):
        _InstantDesk.written += 1
        then()

    def write_now(self, what):
        _InstantDesk.written += 1

    def ask(self, question, then):
        then(None)

    def ask_together(self, question, about, then):
        then(None)


class _NoFiles:
    """A flight recorder that is never covered."""

    recorded, uncovered, trouble = 0, 0, None

    def record(self, *_args):
        return None

    def confirm(self):
        return None

    close = beat = confirm


class _InstantQueue(DeadLetterQueue):
    """Needs no store."""

    def new_capture(self):
        capture = super().new_capture()
        capture.__dict__["desk"] = _InstantDesk()
        capture.__dict__["flight_recorder"] = _NoFiles()
        return capture


def _readable(make):
    """Celery's mock messages have mocks in the fields of which a letter keeps copies."""

    def message(*args, **kwargs):
        made = make(*args, **kwargs)
        made.properties = {}
        made.delivery_info = {"exchange": "", "routing_key": "testcelery", "redelivered": False}
        return made

    return message


def _without_capture(start):
    """Celery's mock consumers have every attribute, and so a capture that is a mock."""

    def start_strategy(self, app, consumer, **kwargs):
        if isinstance(consumer, Mock):
            consumer.dlq = None
        return start(self, app, consumer, **kwargs)

    return start_strategy


DLQTask.wire = _InstantQueue.of
DLQTask.start_strategy = _without_capture(DLQTask.start_strategy)
celery.Celery.task_cls = celery.Task = DLQTask
# Before Celery's own class is replaced, on which this one is based.
assert not issubclass(RecordedRequest, DLQRequest)
celery.worker.request.Request = DLQRequest
mocks.TaskMessage, mocks.TaskMessage1 = map(_readable, (mocks.TaskMessage, mocks.TaskMessage1))
mocks.task_message_from_sig.__defaults__ = (True, mocks.TaskMessage)


@pytest.fixture(autouse=True)
def _dlq_is_the_default(app):
    assert issubclass(app.Task, DLQTask)
    assert celery.Task is DLQTask
    begin_run()  # as a worker does, whose tracer these tests do without


def pytest_collection_finish(session):
    for module in {item.module for item in session.items}:
        assert getattr(module, "Request", DLQRequest) is DLQRequest


def pytest_sessionfinish():
    assert _InstantDesk.written, "no test of Celery's made a dead letter: is the plugin at work?"
