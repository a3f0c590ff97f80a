"""Which messages of redrives a real broker holds."""

from __future__ import annotations

import contextlib
import json

import pytest
from celery import Celery
from queues import redis_options
from redis import Redis
from support.factories import envelope, letter

from celery_dlq.redrive.broker import queues as module
from celery_dlq.redrive.broker.publisher import open_publisher
from celery_dlq.redrive.broker.queues import Look, open_presence

pytestmark = pytest.mark.service

QUEUE = "dlq-test-presence"


@pytest.fixture(params=["", "dlq-test-prefix:"], ids=["plain", "prefix"])
def app(request, redis_url):
    app = Celery("unit", broker=f"{redis_url}/9", set_as_current=False)
    options = {**redis_options(QUEUE), "global_keyprefix": request.param}
    app.conf.broker_transport_options = options
    yield app
    with Redis.from_url(f"{redis_url}/9") as client:
        client.delete(*client.keys(f"*{QUEUE}*"))
    app.close()


def send(app, *letters):
    with open_publisher(app) as publisher:
        assert len(publisher.send(letters).confirmed) == len(letters)


def redriven(task_id, priority=0, redrives=0, **headers):
    sent = envelope(
        task_id,
        queue=QUEUE,
        headers={"id": task_id, "task": "shop.charge", **headers},
        properties={"priority": priority, "correlation_id": task_id},
    )
    return letter(task_id, envelope=sent, claim_token="t", redrive_count=redrives)


def look(app, queue=QUEUE):
    with open_presence(app) as presence:
        return presence.look(queue)


def test_redis_is_asked_for_each_message_of_a_redrive_whatever_its_priority(app):
    assert look(app) == Look(frozenset(), sees_workers=True)
    other = redriven("d", id="not-the-letter-s")
    send(app, redriven("a"), redriven("b", priority=6, redrives=2), other)
    assert look(app) == Look(frozenset({("a", 1), ("b", 3), ("d", 1)}), sees_workers=True)


def test_so_is_each_message_that_a_worker_holds(app):
    send(app, redriven("a"), redriven("b"))
    with app.connection_for_read() as connection, connection.SimpleQueue(QUEUE) as simple:
        message = simple.get(timeout=10)
        assert look(app).held == {("a", 1), ("b", 1)}
        message.ack()
        assert look(app).held == {("b", 1)}


def test_other_messages_and_items_that_are_no_messages_are_passed_over(app, redis_url):
    prefix = app.conf.broker_transport_options["global_keyprefix"]
    items = ["x-dlq-redrive", json.dumps(["x-dlq-redrive"]), json.dumps({"headers": {}}), b"\xff"]
    with Redis.from_url(f"{redis_url}/9") as client:
        client.lpush(prefix + QUEUE, *items)
        client.hset(f"{prefix}{QUEUE}-unacked", "tag", "x-dlq-redrive")
    send(app, redriven("a"))
    assert look(app) == Look(frozenset({("a", 1)}), sees_workers=True)


def test_of_more_than_can_be_read_nothing_is_known(app, monkeypatch):
    monkeypatch.setattr(module, "LOOK_BYTES", 10_000)
    send(app, redriven("a"))
    assert look(app) is not None
    send(app, *(redriven(f"b{number}") for number in range(60)))
    assert look(app) is None
    assert look(app, f"{QUEUE}-2") == Look(frozenset(), sees_workers=True)


def test_rabbitmq_says_only_whether_there_are_messages(rabbitmq_url):
    app = Celery("unit", broker=rabbitmq_url, set_as_current=False)
    with app.connection_for_write() as connection, contextlib.ExitStack() as stack:
        assert look(app) is None
        simple = stack.enter_context(contextlib.closing(connection.SimpleQueue(QUEUE)))
        stack.callback(simple.queue.delete)
        assert look(app) == Look(frozenset(), sees_workers=False)
        send(app, redriven("a"))
        assert look(app) is None
    app.close()
