"""The depths of queues, on a connection of their own."""

from __future__ import annotations

import pytest
from celery import Celery

from celery_dlq.errors import BrokerError
from celery_dlq.upkeep.stall import ANSWER_S, Queues


@pytest.fixture
def app():
    app = Celery("unit", broker="memory://", set_as_current=False)
    yield app
    app.close()


@pytest.fixture
def queues(app):
    queues = Queues(app)
    yield queues
    queues.close()


def put(app, queue, number):
    with app.connection_for_write() as connection, connection.SimpleQueue(queue) as simple:
        for _ in range(number):
            simple.put({})


def test_only_queues_with_messages_are_named(app, queues):
    put(app, "a", 3)
    assert queues.waiting(["a", "b"]) == {"a": 3}
    put(app, "b", 1)
    assert queues.waiting(["a", "b"]) == {"a": 3, "b": 1}


def test_its_connection_is_kept_until_it_is_closed(queues):
    queues.waiting(["a"])
    first = queues._connection
    queues.waiting(["a"])
    assert queues._connection is first
    queues.close()
    queues.close()
    queues.waiting(["a"])
    assert queues._connection is not first


def test_a_broker_that_is_away_is_an_error():
    app = Celery("unit", broker="redis://127.0.0.1:1", set_as_current=False)
    queues = Queues(app)
    for _ in range(2):
        with pytest.raises(BrokerError, match="how many messages wait"):
            queues.waiting(["a"])
    app.close()


@pytest.mark.parametrize(
    ("broker", "limit"),
    [("redis://127.0.0.1:1", "socket_timeout"), ("amqp://127.0.0.1:1", "read_timeout")],
)
def test_each_question_has_a_time_limit(monkeypatch, broker, limit):
    app = Celery("unit", broker=broker, set_as_current=False)
    app.conf.broker_transport_options = {limit: 3_600, "other": 1}
    seen = {}

    def remember(connection, **_):
        seen.update(connection.transport_options)
        return connection

    monkeypatch.setattr("kombu.Connection.ensure_connection", remember)
    connection = Queues(app)._connect()
    assert (seen[limit], seen["other"]) == (ANSWER_S, 1)
    assert connection.connect_timeout == ANSWER_S
    app.close()


def test_another_error_is_not_taken_for_the_brokers(queues, monkeypatch):
    queues.waiting(["a"])

    def fail():
        raise RuntimeError("a bug")

    monkeypatch.setattr(queues, "_open_channel", fail)
    with pytest.raises(RuntimeError):
        queues.waiting(["a"])
    assert queues._connection is None
