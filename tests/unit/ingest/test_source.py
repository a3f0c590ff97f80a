"""kombu's transports without exchanges of their own, by the one in memory; and Amazon SQS, which
cannot be had here, by what kombu's channel for it does."""

from __future__ import annotations

import pytest
from celery import Celery
from kombu.transport import memory, virtual

from celery_dlq.ingest.source import PolledQueue, open_source


@pytest.fixture
def app(monkeypatch):
    # As all of kombu's transports but this one, whose messages die with their process.
    monkeypatch.setattr(memory.Channel, "do_restore", True)
    app = Celery("unit", broker="memory://localhost", set_as_current=False)
    yield app
    with app.connection_for_write() as connection, connection.channel() as channel:
        for name in ("orders", "dead"):
            channel._delete(name)
    app.close()


def bury(app, body, queue="orders"):
    """A message that was sent to ``queue`` and moved to the queue ``dead`` as it is."""
    with app.connection_for_write() as connection, connection.channel() as channel:
        connection.Producer(channel, auto_declare=False).publish(
            body, exchange="", routing_key=queue, headers={"id": body}
        )
        channel._put("dead", channel._get(queue))


def size(app, queue):
    with app.connection_for_write() as connection, connection.channel() as channel:
        return channel._size(queue)


def test_messages_are_taken_oldest_first_and_go_when_they_are_removed(app):
    for body in ("a", "b", "c"):
        bury(app, body)
    with open_source(app, "dead") as source:
        assert source.count() == 3
        first = source.take(2)
        assert [taken.envelope.headers["id"] for taken in first] == ["a", "b"]
        assert {taken.envelope.queue for taken in first} == {"orders"}
        assert len({taken.tag for taken in first}) == 2
        source.remove(first)
        source.remove(source.take(2))
        assert source.take(2) == []
    assert size(app, "dead") == 0


def test_messages_that_are_not_removed_go_back_to_the_dead_letter_queue(app):
    bury(app, "a")
    bury(app, "b")
    with open_source(app, "dead") as source:
        one, _other = source.take(2)
        source.remove([one])
    assert (size(app, "dead"), size(app, "orders")) == (1, 0)
    with open_source(app, "dead") as source:
        (again,) = source.take(5)
        assert again.envelope.queue == "orders", "its origin is not forgotten"
        source.remove([again])


def test_a_message_that_cannot_be_read_is_taken_as_it_is_and_so_are_the_others(app):
    bury(app, "a")
    with app.connection_for_write() as connection, connection.channel() as channel:
        channel._put("dead", {"no": "message"})
    bury(app, "b")
    with open_source(app, "dead") as source:
        source.take(5)
    assert size(app, "dead") == 3
    with open_source(app, "dead") as source:
        taken = source.take(5)
        bodies = [one.envelope.body for one in taken]
        source.remove(taken)
    assert sorted(bodies) == [b"a", b"b", b'{"no": "message"}']
    assert size(app, "dead") == 0


def test_impossible_fields_leave_the_body(app):
    with app.connection_for_write() as connection, connection.channel() as channel:
        info = {"exchange": 7, "routing_key": ["x"]}
        properties = {"delivery_tag": "t", "delivery_info": info}
        channel._put("dead", {"body": "x", "content-encoding": 7, "properties": properties})
    with open_source(app, "dead") as source:
        (taken,) = source.take(1)
        assert (taken.envelope.body, taken.envelope.headers) == (b"x", {})
        source.remove([taken])


class SQSChannel(virtual.Channel):
    """As kombu's: a receipt's handle is the delivery tag, an acknowledgement deletes."""

    def __init__(self, connection, messages):
        super().__init__(connection)
        self.messages, self.deleted, self.sent = messages, [], []

    def sqs(self, queue=None):
        return self

    def _size(self, queue):
        return len(self.messages)

    def _get(self, queue):
        if not self.messages:
            raise virtual.Empty
        return self.messages.pop(0)

    def _put(self, queue, message):
        self.sent.append((queue, message))

    def basic_ack(self, delivery_tag, multiple=False):
        info = self.qos.get(delivery_tag).delivery_info
        self.deleted.append((info["sqs_queue"], info["routing_key"], info["sqs_message"]))
        super().basic_ack(delivery_tag, multiple)


def received(number, receipt):
    message = {"MessageId": f"id-{number}", "ReceiptHandle": receipt}
    info = {
        "exchange": "", "routing_key": "orders",
        "sqs_message": message, "sqs_queue": "https://sqs/dead",
    }  # fmt: skip
    properties = {"delivery_tag": receipt, "delivery_info": info}
    return {"body": "[[], {}, {}]", "headers": {"id": "a"}, "properties": properties}


class TestSQS:
    @pytest.fixture
    def channel(self, app):
        with app.connection_for_write() as connection:
            connection.connect()
            transport = connection.connection
            channel = SQSChannel(transport, [received(1, "r1"), received(2, "r2")])
            transport.channels.append(channel)
            yield channel

    def test_the_message_s_own_id_tells_it_and_not_that_of_the_receipt(self, app, channel):
        source = PolledQueue(app, channel, "dead")
        assert [taken.tag for taken in source.take(5)] == ["id-1", "id-2"]

    def test_a_removal_deletes_from_the_dead_letter_queue(self, app, channel):
        source = PolledQueue(app, channel, "dead")
        source.remove(source.take(1))
        ((url, queue, message),) = channel.deleted
        assert (url, queue, message["MessageId"]) == ("https://sqs/dead", "dead", "id-1")

    def test_messages_that_are_left_are_not_sent_again_but_come_back(self, app, channel):
        PolledQueue(app, channel, "dead").take(2)
        channel.close()
        assert (channel.sent, channel.deleted) == ([], [])
