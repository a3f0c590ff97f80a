"""Automatic redrives of a SQLite store; and an app with handlers, with its messages in memory."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
from celery import Celery
from support.auto_world import World

from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.model.handling import HANDLE_TASK
from celery_dlq.redrive import loop
from celery_dlq.store.base import Lease
from celery_dlq.upkeep.automation.dispatcher import SWEEP_S
from celery_dlq.upkeep.automation.engine import Engine


def _work(*args, **kwargs): ...


@pytest.fixture
def app():
    app = Celery("unit", broker="memory://", backend="cache+memory://", set_as_current=False)
    app.task(_work, name="shop.charge", shared=False)
    app.task(_work, name="shop.mail", shared=False)
    app.finalize()
    return app


@pytest.fixture
def world(app, own_store, monkeypatch):
    """Makes a world with the given automatic redrives."""
    made = []

    def begin(letters):
        sent = made[0].publish(letters)
        return lambda: sent

    @contextmanager
    def opened(_app):
        yield SimpleNamespace(confirms_later=False, begin=begin)

    monkeypatch.setattr(loop, "open_publisher", opened)

    def make(*autos, **settings):
        made[:] = [World(app, own_store, *autos, **settings)]
        return made[0]

    return make


class Handling:
    """Dispatches, and runs what was sent, as workers do."""

    def __init__(self, app):
        self.app, self.dlq = app, DeadLetterQueue.of(app)
        self.store = self.dlq.store
        self.lease = self.store.leases.take("handlers", holder="me", seconds=600)
        self.time = 0.0
        context = self.dlq.redrive_context
        clock = replace(context.clock, monotonic=lambda: self.time)
        self.engine = Engine(replace(context, clock=clock), self.dlq.redrives, self.dlq.handlers)

    def dispatch(self) -> float:
        return self.engine.run(self.lease, lambda: self.lease)

    def sent(self, queue="dlq-handlers"):
        """The messages in the queue, which they leave."""
        messages = []
        with self.app.connection_for_read() as connection:
            simple = connection.SimpleQueue(queue)
            while simple.qsize():
                message = simple.get(block=False)
                message.ack()
                messages.append(message)
            simple.close()
        return messages

    def run(self, message) -> None:
        (args, _kwargs, _embed) = message.decode()
        self.app.tasks[HANDLE_TASK].apply(args).get()

    def work_off(self) -> int:
        """Dispatch and run until nothing is left; returns how many messages there were."""
        messages, is_swept = 0, False
        while True:
            wait_s = self.dispatch()
            found = self.sent()
            messages += len(found)
            for message in found:
                self.run(message)
            if wait_s and not found:
                if is_swept:
                    return messages
                self.time += SWEEP_S
            is_swept = bool(wait_s and not found)


@pytest.fixture
def handling(shop_app):
    return Handling(shop_app)


@pytest.fixture
def dlq(handling):
    return handling.dlq


@pytest.fixture
def store(handling):
    return handling.store


@pytest.fixture
def other_lease():
    return Lease(name="handlers", token=99)
