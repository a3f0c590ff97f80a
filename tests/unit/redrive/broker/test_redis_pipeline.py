"""On Redis, a message is written by orjson: it has to say what kombu would have written."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection
from types import SimpleNamespace

import pytest
from celery import Celery
from hypothesis import example, given
from hypothesis import strategies as st
from kombu import Connection, Producer
from kombu.transport.redis import Channel
from kombu.utils.json import dumps
from redis.exceptions import ResponseError
from support.factories import envelope, letter
from support.stores.claimed_letters import (
    HEADERS,
    OF_CELERY,
    OTHERS,
    OURS,
    claimed,
    extra,
    properties,
    texts,
)

from celery_dlq.model.headers import DELIVERY_HEADERS
from celery_dlq.redrive.broker.message import arguments_of
from celery_dlq.redrive.broker.publisher import RedisPipeline, fits, numbered


class Pipe:
    """Takes commands; ``fail`` is what writing them raises, and ``refused`` the lists that Redis refuses."""

    def __init__(self, fail: Exception | None = None, refused: Collection[str] = ()) -> None:
        self.commands: list[tuple[str, bytes]] = []
        self.answers: list[object] = []
        self.fail, self.refused = fail, refused

    def lpush(self, key: str, *texts: bytes) -> None:
        self.commands += [(key, text) for text in texts]
        refusal = ResponseError(f"WRONGTYPE {key} is not a list")
        self.answers.append(refusal if key in self.refused else len(texts))

    def execute(self, raise_on_error: bool) -> list[object]:
        assert not raise_on_error
        if self.fail:
            raise self.fail
        return self.answers


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


LETTERS = {
    **{name: letter("a", envelope=message, claim_token="t") for name, message in MESSAGES.items()},
    **{name: one for name, one in OTHERS.items() if one.envelope.queue},
    **{str(given): claimed(properties=given) for given in OF_CELERY},
    **{name: claimed({**HEADERS, name: "1"}) for name in (*OURS, *DELIVERY_HEADERS, "compression")},
}


def check(one):
    ours, theirs = Pipe(), Pipe()
    sent = RedisPipeline(producer(ours)).send([one])
    producer(theirs).publish(**arguments_of(one))
    assert read(ours) == read(theirs)
    assert (sent.confirmed, sent.error) == ([one.task_id], None)


def read(pipe: Pipe) -> str:
    """The commands, written again by one hand: in no other form is NaN equal to itself, and 1 not to 1.0."""
    return json.dumps([(key, json.loads(text)) for key, text in pipe.commands])


@pytest.mark.parametrize("one", LETTERS.values(), ids=LETTERS)
def test_what_is_written_is_what_kombu_writes(one):
    check(one)


@given(extra, properties, st.binary(max_size=9), texts)
@example({"a": float("nan"), "b": [-float("inf")]}, {}, b"", "")
@example({"a": 2**64, "b": {"c": -(2**63) - 1}}, {}, b"", "")
def test_any_message_is_written_as_kombu_writes_it(more, given_properties, body, queue):
    check(claimed({**HEADERS, **more}, given_properties, body=body, queue=queue or "celery"))


def test_a_message_of_celery_itself_is_written_as_kombu_writes_it():
    app = Celery("unit", broker="memory://", set_as_current=False)
    message = app.amqp.as_task_v2("0d3f", "shop.charge", ('O"Neil', b"\xff"), {"a": "b"}, retries=2)
    check(claimed(message.headers, message.properties, body=bytes(range(256))))


def test_all_of_a_batch_are_written_together_in_order():
    pipe = Pipe()
    sent = RedisPipeline(producer(pipe)).send([letter(name) for name in "abc"])
    assert sent.confirmed == ["a", "b", "c"]
    messages = [json.loads(text) for _, text in pipe.commands]
    assert [message["headers"]["id"] for message in messages] == ["a", "b", "c"]
    tags = {message["properties"]["delivery_tag"] for message in messages}
    assert len(tags) == 3


def test_of_a_write_that_fails_nothing_is_known():
    sent = RedisPipeline(producer(Pipe(ConnectionResetError("gone")))).send(
        [letter("a"), letter("b")]
    )
    assert (sent.confirmed, sent.unsent, sent.uncertain) == ([], [], ["a", "b"])
    assert "gone" in sent.error


def test_without_a_connection_nothing_was_sent(monkeypatch):
    made = producer(Pipe())
    monkeypatch.setattr(made.channel, "conn_or_acquire", lambda: 1 / 0)
    sent = RedisPipeline(made).send([letter("a"), letter("b")])
    assert (sent.confirmed, sent.unsent, sent.uncertain) == ([], ["a", "b"], [])
    assert sent.error


def test_a_message_that_cannot_be_written_is_refused_alone():
    hopeless = letter("b", envelope=envelope(headers={"id": "b", "x": object()}))
    sent = RedisPipeline(producer(Pipe())).send([letter("a"), hopeless, letter("c")])
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
    sent = RedisPipeline(producer(pipe)).send(
        [letter(name, envelope=envelope(name, queue=queue)) for name, queue in queues.items()]
    )
    assert pipe.calls == ["slow", "fast"]
    ids = [json.loads(text)["headers"]["id"] for _, text in pipe.commands]
    assert ids == ["a", "c", "b", "d"]
    assert sorted(sent.confirmed) == ["a", "b", "c", "d"]


def to(name, queue):
    return letter(name, envelope=envelope(name, queue=queue))


def test_letters_for_a_list_that_redis_refuses_are_named_and_the_others_are_sent():
    letters = [to("a", "odd"), to("b", "fine"), to("c", "odd")]
    sent = RedisPipeline(producer(Pipe(refused=["odd"]))).send(letters)
    assert (sent.confirmed, sent.unsent, sent.uncertain, sent.error) == (["b"], [], [], None)
    assert sent.refused == dict.fromkeys(
        "ac", "Redis refuses it (ResponseError: WRONGTYPE odd is not a list)"
    )


def test_an_error_about_all_lists_is_not_about_the_letters():
    letters = [to("a", "one"), to("b", "two")]
    sent = RedisPipeline(producer(Pipe(refused=["one", "two"]))).send(letters)
    assert (sent.confirmed, sent.unsent, sent.uncertain, sent.refused) == ([], ["a", "b"], [], {})
    assert sent.error == "ResponseError: WRONGTYPE one is not a list"
