"""For AMQP, a message is put into frames by hand: they have to be those that py-amqp would have written."""

import contextlib
from datetime import datetime, timezone
from decimal import Decimal
from types import SimpleNamespace

import pytest
from amqp import Channel as AMQPChannel
from amqp.method_framing import frame_writer
from claimed import HEADERS as WRITTEN
from claimed import claimed
from factories import envelope, letter
from kombu import Producer
from kombu.transport.pyamqp import Channel as KombuChannel

from celery_dlq.redrive.frames import Framed
from celery_dlq.redrive.message import arguments_of


class Channel(KombuChannel):
    """py-amqp's channel, and no broker."""

    def __init__(self, frame_max: int) -> None:
        self.written = b""
        self.channel_id, self.auto_decode = 7, True
        self.connection = SimpleNamespace(
            frame_max=frame_max, bytes_sent=0, client_properties={}, transport=self
        )
        self.connection.frame_writer = frame_writer(self.connection, self)

    def write(self, frames: bytes) -> None:
        self.written += bytes(frames)

    def having_timeout(self, _seconds):
        return contextlib.nullcontext()

    basic_publish = AMQPChannel._basic_publish

    def __del__(self) -> None: ...


HEADERS = {
    "id": "a", "task": "t", "eta": None, "retries": 1, "flag": True, "one": 1.0, "big": 2**40,
    "ü": "\ud800\n",
    "bytes": b"\xff", "timelimit": [None, 3], "nested": {"x": {"y": [1, "z"]}}, "price": Decimal("1.50"),
    "at": datetime(2026, 1, 2, tzinfo=timezone.utc), "": "no name",
}  # fmt: skip

MESSAGES = {
    "plain": envelope(),
    "headers": envelope(headers=HEADERS),
    "zero and no": envelope(headers={"x": 0, "y": False, "task": "t"}),
    "no and zero": envelope(headers={"x": False, "y": 0, "task": "t"}),
    "lists": envelope(
        headers={"id": "a", "a": [None, None], "b": [1, 1], "c": [True, 1], "d": [[1], "x"], "e": []}
    ),
    "properties": envelope(
        properties={
            "correlation_id": "c", "reply_to": "r", "priority": 6, "delivery_mode": 1,
            "timestamp": 1_700_000_000, "message_id": "ü", "type": b"t", "unknown": 1,
        }
    ),
    "no content type": envelope(content_type="", content_encoding=""),
    "no body": envelope(body=b""),
    "exchange": envelope(queue="", exchange="shop", routing_key="orders.new"),
    "body that fills a frame": envelope(body=b"x" * 4_088),
    "body of many frames": envelope(body=bytes(range(256)) * 64, content_encoding="binary"),
}  # fmt: skip


LETTERS = {
    **{name: letter("a", envelope=message, claim_token="t") for name, message in MESSAGES.items()},
    "as written": claimed(),
    "as written, without a mode": claimed(properties={"correlation_id": "c"}),
    "as written, no body": claimed(body=b""),
    "as written, body that fills a frame": claimed(body=b"x" * 4_088, queue="ü"),
    "as written, body of many frames": claimed(body=bytes(range(256)) * 64),
    "written, to be read": claimed({**WRITTEN, "stamped_headers": ["a", "b"]}),
    "written, for an exchange": claimed(queue="", exchange="shop"),
}


@pytest.mark.parametrize("one", LETTERS.values(), ids=LETTERS)
def test_the_frames_are_those_that_py_amqp_writes(one):
    channel = Channel(frame_max=4_096)
    Producer(channel, auto_declare=False).publish(**arguments_of(one), mandatory=True)
    framed = Framed(Producer(channel, auto_declare=False))
    assert framed.frames(one) == channel.written
    # From what is kept of the first one.
    assert framed.frames(one) == channel.written


@pytest.mark.parametrize(
    "hopeless",
    [
        envelope(headers={"id": "a", "x": object()}),
        envelope(headers={"n" * 300: "x"}),
        envelope(properties={"correlation_id": "c" * 300}),
        claimed({**WRITTEN, "n" * 300: "x"}).envelope,
        claimed(properties={"correlation_id": "c" * 300}).envelope,
    ],
)
def test_what_amqp_cannot_say_is_an_error(hopeless):
    framed = Framed(Producer(Channel(frame_max=4_096), auto_declare=False))
    with pytest.raises(Exception, match=r"."):
        framed.frames(letter("0d3f", envelope=hopeless, claim_token="t"))
