"""Processes that send messages of ``dlq_unsent`` through a proxy, and workers that take them."""

from __future__ import annotations

import contextlib
from urllib.parse import urlsplit, urlunsplit

import pytest
from celery import Celery
from project import wait_for
from proxy import Proxy
from queues import queue_settings, transport_options

from celery_dlq import DeadLetterQueue, DLQTask, Filter
from celery_dlq.model.states import State


def through(proxy: Proxy, url: str) -> str:
    """The address of ``proxy``, as ``url`` is the address of its server."""
    parts = urlsplit(url)
    user = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
    return urlunsplit(parts._replace(netloc=f"{user}127.0.0.1:{proxy.port}"))


class Sender:
    """A process that sends tasks of ``project``, whose workers are connected to the broker itself.

    :param broker: its address of the broker; None for that of the project.
    """

    def __init__(self, project, broker=None, **settings):
        self.project, self.has_own_address = project, broker is not None
        self.app = Celery("proj", broker=broker or project.broker, set_as_current=False)
        self.app.conf.update(
            **queue_settings(project.queue, project.queue_type),
            broker_transport_options=transport_options(project.broker, project.queue),
        )
        self.app.conf.update({
            "dlq_store_url": project.store_url,
            "dlq_spool_dir": str(project.directory / "spool"),
            "dlq_unsent": "store",
            "dlq_unsent_after": 0.5,
            **settings,
        })  # fmt: skip
        self.dlq = DeadLetterQueue.of(self.app)
        # To the workers, the proxy is their broker.
        self.dlq.hold = project.dlq.hold
        self.task = self.app.task(base=DLQTask, name="proj.waits", shared=False)(_not_here)

    def send(self, number, **options):
        """Send the message of a task that notes that it runs."""
        return self.task.apply_async((number, 0.0, 0), **options)

    def letters(self):
        """The messages that were not sent, the oldest first."""
        wanted = Filter(states=frozenset({State.PARKED}))
        found = self.dlq.store.letters.find(wanted, limit=500).letters
        return sorted(found, key=lambda letter: letter.args)

    @property
    def doubts(self):
        """How many of them may have been sent."""
        return len(self.dlq.store.parked.in_doubt(self.dlq.hold.place))

    def close(self):
        """Close everything that it has opened."""
        if "keeper" in vars(self.dlq.sending):
            self.dlq.sending.keeper.writer.stop()
        if self.has_own_address:  # otherwise, other apps in this process share its pool
            with contextlib.suppress(Exception):
                self.app.pool.force_close_all()
        if self.app.conf.result_backend:
            self.app.backend.result_consumer.stop()
            self.app.backend.client.connection_pool.disconnect()
        self.dlq.store.close()
        self.app.close()


def _not_here(*args, **kwargs):
    raise AssertionError("runs in a worker only")


@pytest.fixture
def make_sender():
    """Makes senders."""
    made = []

    def make(project, broker=None, **settings):
        made.append(Sender(project, broker, **settings))
        return made[-1]

    yield make
    for sender in made:
        sender.close()


@pytest.fixture
def make_proxy():
    """Makes proxies before a broker, each with the address of that broker through it."""
    made = []

    def make(url):
        parts = urlsplit(url)
        made.append(Proxy(parts.hostname, parts.port))
        return made[-1], through(made[-1], url)

    yield make
    for proxy in made:
        proxy.close()


@pytest.fixture(params=["redis", "rabbitmq"])
def project(request, make_project, urls_of):
    """A project on each broker, with quick workers."""
    project = make_project(*urls_of(f"{request.param}-sqlite"), module="proj_parking")
    project.dlq.store.check_schema()
    return project


@pytest.fixture
def runs(project):
    """Waits until each of these numbers has run once, and no more."""

    def wait(*numbers):
        wanted = sorted(f"{number} 0" for number in numbers)
        wait_for(f"{wanted} to run", lambda: len(project.lines("runs")) >= len(wanted))
        assert sorted(project.lines("runs")) == wanted

    return wait
