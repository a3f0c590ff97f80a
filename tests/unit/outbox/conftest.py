"""An app that sends to a broker of the test."""

import uuid

import kombu
import pytest
from celery import Celery
from kombu.transport.memory import Channel

from celery_dlq import DeadLetterQueue, DLQTask


class Broker:
    """The memory broker, which a test may take away."""

    def __init__(self, monkeypatch):
        #: The error of each connect, and of each publication; None if it succeeds.
        self.away, self.silent = None, None
        #: Whether a message is taken although its publication fails.
        self.takes = False
        self.connects = 0
        ensure, publish = kombu.Connection.ensure_connection, Channel.basic_publish

        def connecting(connection, *args, **options):
            self.connects += 1
            if self.away is not None:
                raise self.away
            return ensure(connection, *args, **options)

        def publishing(channel, *args, **options):
            if self.silent is None or self.takes:
                publish(channel, *args, **options)
            if self.silent is not None:
                raise self.silent

        monkeypatch.setattr(kombu.Connection, "ensure_connection", connecting)
        monkeypatch.setattr(Channel, "basic_publish", publishing)

    def fails(self, error, *, takes=False):
        """The connection breaks while a message is written."""
        self.silent, self.takes = error, takes


@pytest.fixture
def broker(monkeypatch):
    return Broker(monkeypatch)


@pytest.fixture
def app(tmp_path):
    app = Celery("shop", broker=f"memory://{uuid.uuid4().hex}", set_as_current=False)
    app.conf.update(
        dlq_store_url=f"sqlite:///{tmp_path}/dlq.sqlite3",
        dlq_spool_dir=str(tmp_path / "spool"),
        dlq_unsent="store",
        dlq_recorder=False,
    )
    yield app
    app.close()


@pytest.fixture
def dlq(app):
    dlq = DeadLetterQueue.of(app)
    yield dlq
    if "keeper" in vars(dlq.sending):
        dlq.sending.keeper.writer.stop()


@pytest.fixture
def charge(app, dlq):
    @app.task(base=DLQTask, name="shop.charge")
    def charge(*args, **kwargs):
        return None

    return charge


@pytest.fixture
def queued(app):
    """The messages in the broker."""

    def read():
        with app.connection_for_read() as connection, connection.channel() as channel:
            found = []
            while True:
                message = channel.basic_get("celery", no_ack=True)
                if message is None:
                    return found
                found.append(message)

    return read
