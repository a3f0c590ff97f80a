"""On Redis, a message is put together by hand: it has to be the one that kombu would have written."""

from __future__ import annotations

import contextlib
import json
from types import SimpleNamespace

import pytest
from factories import envelope, letter
from kombu import Connection, Producer
from kombu.transport.redis import Channel
from kombu.utils.json import dumps

from celery_dlq.redrive.message import arguments_of
from celery_dlq.redrive.pipeline import Pipelined, fits, numbered


class Pipe:
    """Takes commands; ``fail`` is what writing them raises."""

    def __init__(self, fail: Exception | None = None) -> None:
        self.commands: list[tuple[str, str]] = []
        self.fail = fail

    def lpush(self, key: str, *texts: str) -> None:
        self.commands += [(key, text) for text in texts]

    def execute(self) -> None:
        if self.fail:
            raise self.fail


class NoRedis(Channel):
    """kombu's channel, and no server."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe, self.closed = pipe, True
        self.connection = SimpleNamespace(client=None)
        self._next_delivery_tag = numbered("tag")

    @contextlib.contextmanager
    def conn_or_acquire(self, client=None):
        yield SimpleNamespace(pipeline=lambda _transaction: contextlib.nullcontext(self.pipe))

    def _put(self, queue, message, **options):
        key = self._q_for_pri(queue, self._get_message_priority(message, reverse=False))
        self.pipe.lpush(key, dumps(message))


def producer(pipe: Pipe) -> Producer:
    return Producer(NoRedis(pipe), auto_declare=False)


MESSAGES = {
    "plain": envelope(),
    "properties": envelope(
        properties={"correlation_id": "c", "reply_to": "r", "priority": 6, "delivery_mode": 1}
    ),
    "odd priority": envelope(properties={"priority": 99, "expiration": "5000"}),
    "bytes in headers": envelope(headers={"id": "a", "task": "t", "x": b"\xff", "ü": "\ud800\n"}),
    "no content type": envelope(content_type="", content_encoding=""),
    "body that is no text": envelope(body=bytes(range(256)), content_encoding="binary"),
    "no body": envelope(body=b""),
}


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
def test_what_is_written_is_what_kombu_writes(message):
    one, ours, theirs = letter("a", envelope=message, claim_token="t"), Pipe(), Pipe()
    sent = Pipelined(producer(ours)).send([one])
    producer(theirs).publish(**arguments_of(one))
    assert ours.commands == theirs.commands
    assert (sent.confirmed, sent.error) == (["a"], None)


def test_all_of_a_batch_are_written_together_in_order():
    pipe = Pipe()
    sent = Pipelined(producer(pipe)).send([letter(name) for name in "abc"])
    assert sent.confirmed == ["a", "b", "c"]
    messages = [json.loads(text) for _, text in pipe.commands]
    assert [message["headers"]["id"] for message in messages] == ["a", "b", "c"]
    tags = {message["properties"]["delivery_tag"] for message in messages}
    assert len(tags) == 3


def test_of_a_write_that_fails_nothing_is_known():
    sent = Pipelined(producer(Pipe(ConnectionResetError("gone")))).send([letter("a"), letter("b")])
    assert (sent.confirmed, sent.unsent, sent.uncertain) == ([], [], ["a", "b"])
    assert "gone" in sent.error


def test_without_a_connection_nothing_was_sent(monkeypatch):
    made = producer(Pipe())
    monkeypatch.setattr(made.channel, "conn_or_acquire", lambda: 1 / 0)
    sent = Pipelined(made).send([letter("a"), letter("b")])
    assert (sent.confirmed, sent.unsent, sent.uncertain) == ([], ["a", "b"], [])
    assert sent.error


def test_a_message_that_cannot_be_written_is_refused_alone():
    hopeless = letter("b", envelope=envelope(headers={"id": "b", "x": object()}))
    sent = Pipelined(producer(Pipe())).send([letter("a"), hopeless, letter("c")])
    assert sent.confirmed == ["a", "c"]
    assert "cannot be encoded" in sent.refused["b"]


def test_only_kombus_own_channel_is_written_to(monkeypatch):
    assert not fits(SimpleNamespace())
    assert not fits(NoRedis(Pipe()))
    with Connection("memory://") as connection, connection.channel() as channel:
        assert not fits(channel)
    own = Channel.__new__(Channel)
    own._expires = {}
    assert fits(own)
    own._expires = {"q": 5}
    assert not fits(own)
    own._expires = {}
    own.body_encoding = None
    assert not fits(own)


def test_each_list_is_written_to_once_in_the_order_of_its_letters():
    class Counting(Pipe):
        calls: list[str] = []

        def lpush(self, key, *texts):
            self.calls.append(key)
            super().lpush(key, *texts)

    queues = {"a": "slow", "b": "fast", "c": "slow", "d": "fast"}
    pipe = Counting()
    sent = Pipelined(producer(pipe)).send(
        [letter(name, envelope=envelope(name, queue=queue)) for name, queue in queues.items()]
    )
    assert pipe.calls == ["slow", "fast"]
    ids = [json.loads(text)["headers"]["id"] for _, text in pipe.commands]
    assert ids == ["a", "c", "b", "d"]
    assert sent.confirmed == ["a", "b", "c", "d"]
