"""A redrive on a SQLite store, with a publisher that fails as told and a clock that only sleeping moves."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from datetime import timedelta
from time import sleep

import pytest
from celery import Celery
from support.factories import T0, attempt, letter

from celery_dlq import Filter, Settings
from celery_dlq.base.redact import Redactor
from celery_dlq.model.letter import Outcome
from celery_dlq.model.operation import Orders, Pacing
from celery_dlq.model.states import State
from celery_dlq.redrive import loop
from celery_dlq.redrive.broker.message import Sent
from celery_dlq.redrive.context import Clock, RedriveContext
from celery_dlq.redrive.operation import Operations

EVERYTHING = Filter()


@pytest.fixture(autouse=True)
def batches_of_two(monkeypatch):
    monkeypatch.setattr(loop, "BATCH", 2)


class Time:
    """Stands still but for sleeping; then the test may let something happen."""

    def __init__(self):
        self.now, self.slept = T0 + timedelta(hours=1), []
        self.meanwhile = lambda: None

    def sleep(self, seconds):
        self.pass_(seconds)
        self.slept.append(seconds)
        assert len(self.slept) < 10_000, "it waits in vain"
        self.meanwhile()

    def pass_(self, seconds):
        self.now += timedelta(seconds=seconds)

    @property
    def clock(self):
        return Clock(now=lambda: self.now, monotonic=lambda: self.now.timestamp(), sleep=self.sleep)


class FakePublisher:
    """Confirms everything, unless the test says otherwise for a batch."""

    def __init__(self, confirms_later):
        self.confirms_later = confirms_later
        self.batches, self.answers = [], {}
        #: Batches that were written, and batches whose outcome was asked for.
        self.steps = []
        #: Whether the connection is lost on which the next batch would be written.
        self.is_lost = False
        self.before = lambda letters: None

    def send(self, letters):
        self.before(letters)
        ids = [made.task_id for made in letters]
        self.batches.append(ids)
        sent = self.answers.get(len(self.batches), Sent(confirmed=list(ids)))
        self.is_lost = bool(sent.error or sent.uncertain)
        return sent

    def begin(self, letters):
        if self.is_lost and len(self.batches) + 1 not in self.answers:
            unsent = Sent(unsent=[made.task_id for made in letters], error="reset")
            return lambda: unsent
        sent, number = self.send(letters), len(self.batches)
        self.steps.append(f"write {number}")

        def outcome():
            self.steps.append(f"confirm {number}")
            return sent

        return outcome

    @property
    def sent(self):
        return [task_id for batch in self.batches for task_id in batch]


class Worker:
    """Ends the messages that were sent, as the test says."""

    def __init__(self, store, publisher, time):
        self._store, self._publisher, self._time = store, publisher, time
        self._ended = 0

    def run(self, fails=lambda _task_id: False):
        new = self._publisher.sent[self._ended :]
        self._ended += len(new)
        for task_id in new:
            self._time.pass_(0.001)
            redrive = 1
            if fails(task_id):
                moment = (self._time.now - T0).total_seconds() / 60
                self._store.letters.save(
                    [letter(task_id, attempt(redrive=redrive, minutes=moment))]
                )
            else:
                done = Outcome(
                    task_id=task_id, redrive=redrive, succeeded_at=self._time.now, worker="w"
                )
                self._store.letters.record_outcomes([done])


@pytest.fixture
def app():
    app = Celery("unit", broker="memory://", backend="cache+memory://", set_as_current=False)
    app.task(_charge, name="shop.charge", shared=False)
    app.finalize()
    return app


def _charge(*args, **kwargs): ...


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def store(own_store):
    return own_store


@pytest.fixture(params=[False, True], ids=["confirms at once", "confirms later"])
def publisher(request, monkeypatch):
    publisher = FakePublisher(request.param)

    @contextmanager
    def opened(app):
        publisher.is_lost = False
        yield publisher

    monkeypatch.setattr(loop, "open_publisher", opened)
    return publisher


@pytest.fixture
def worker(store, publisher, time):
    return Worker(store, publisher, time)


@pytest.fixture
def silent():
    """Names of tasks that do not report outcomes."""
    return set()


@pytest.fixture
def operations(app, store, publisher, time, silent):
    """Operations with batches of two."""
    context = RedriveContext(
        app=app, store=store, settings=Settings(), redactor=Redactor(()),
        reports=lambda task: task not in silent, clock=time.clock,
    )  # fmt: skip
    return Operations(context)


@pytest.fixture
def redrive(operations):
    """Make an operation and run it; returns it as it is in the end."""

    def redrive(
        wanted=EVERYTHING, *, orders=None, on_progress=lambda _: None,
        should_stop=lambda: False, **pacing,
    ):  # fmt: skip
        orders = orders or Orders(pacing=Pacing(**pacing))
        made = operations.make(wanted, orders, who="tester", detached=False)
        return operations.resume(
            made.id, who="tester", on_progress=on_progress, should_stop=should_stop
        )

    return redrive


@pytest.fixture
def make(operations):
    """Make an operation."""

    def make(wanted=EVERYTHING, *, detached=False, **pacing):
        orders = Orders(pacing=Pacing(**pacing))
        return operations.make(wanted, orders, who="tester", detached=detached)

    return make


@pytest.fixture
def resume(operations):
    """Go on here and now."""

    def resume(operation, **options):
        chosen = {"on_progress": lambda _: None, "should_stop": lambda: False, **options}
        return operations.resume(operation.id, who="tester", **chosen)

    return resume


@pytest.fixture
def fill(store):
    """Save letters of these names."""

    def fill(*names, **changes):
        store.letters.save([letter(name, **changes) for name in names])

    return fill


@pytest.fixture
def states(store):
    """The state of each letter."""

    def states():
        page = store.letters.find(Filter(states=frozenset(State)), limit=100)
        return {made.task_id: made.state.value for made in page.letters}

    return states


@pytest.fixture
def once_claimed(publisher, states):
    """A stop that comes, while a batch is sent, when so many letters are claimed."""

    def once_claimed(count):
        stopped = threading.Event()

        def stop_once_more_is_claimed(letters):
            while list(states().values()).count("claimed") < count:
                sleep(0.01)
            stopped.set()

        publisher.before = stop_once_more_is_claimed
        return stopped.is_set

    return once_claimed
