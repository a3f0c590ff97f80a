"""For AMQP, a message is put into frames by hand: they have to be those that py-amqp would have written, byte
for byte."""

import contextlib
from datetime import datetime, timezone
from decimal import Decimal
from types import SimpleNamespace

import pytest
from amqp import Channel as AMQPChannel
from amqp import Message
from amqp.method_framing import frame_writer
from amqp.serialization import dumps
from celery import Celery
from hypothesis import example, given
from hypothesis import strategies as st
from kombu import Producer
from kombu.transport.pyamqp import Channel as KombuChannel
from support.factories import envelope, letter
from support.stores.claimed_letters import HEADERS as CLAIMED
from support.stores.claimed_letters import OTHERS, PROPERTIES, claimed, extra, properties, values

from celery_dlq.redrive.broker.amqp import FrameEncoder, entries_of, properties_of, short
from celery_dlq.redrive.broker.message import arguments_of


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
    **OTHERS,
    "claimed": claimed(),
    "claimed, without a mode": claimed(properties={"correlation_id": "c"}),
    "claimed, no body": claimed(body=b""),
    "claimed, body that fills a frame": claimed(body=b"x" * 4_088, queue="ü"),
    "claimed, body of many frames": claimed(body=bytes(range(256)) * 64),
    "claimed, stamped": claimed({**CLAIMED, "stamped_headers": ["a", "b"]}),
    "claimed, for an exchange": claimed(queue="", exchange="shop"),
    "claimed, only the first headers": claimed(
        {name: CLAIMED[name] for name in ("task", "id", "retries", "eta", "expires")}
    ),
}


def by_amqp(one):
    channel = Channel(frame_max=4_096)
    Producer(channel, auto_declare=False).publish(**arguments_of(one), mandatory=True)
    return channel.written


def check(one):
    written = by_amqp(one)
    encoder = FrameEncoder(Producer(Channel(frame_max=4_096), auto_declare=False))
    assert encoder.frames(one) == written
    # Once more, from what is kept of the first time.
    assert encoder.frames(one) == written


@pytest.mark.parametrize("one", LETTERS.values(), ids=LETTERS)
def test_the_frames_are_those_that_py_amqp_writes(one):
    check(one)


@given(extra | st.dictionaries(st.text(max_size=3), values, max_size=9), properties)
def test_any_headers_and_properties_are_written_as_py_amqp_writes_them(more, given_properties):
    check(claimed({**CLAIMED, **more}, given_properties))


@pytest.mark.parametrize(
    "more",
    [
        {"group_index": 2**40, "ignore_result": True, "ratio": 0.5, "timelimit": [300, 250.5]},
        {"argsrepr": "('\"é', 'b,', \"a\\\\\", '\ud800')", "origin": "é@box"},
        {"argsrepr": "x" * 2_000, "kwargsrepr": "{'x': " + "'\"'" * 2_000 + "}"},
        {"stamps": {"a": {"b": [1, {}]}}, "empty": "", "": [], "ü": None, "quoted\"name'": 1},
        {"0": 0, "1": False, "2": 0.0, "3": [0], "4": [False], "5": "0", "6": "null"},
        {"argsrepr": "(17,", "kwargsrepr": "{}", "a": ",", "b": ",", "c": ",,"},
        {"stamps": {"a": 1, "b": 2}},
    ],
    ids=["numbers", "escaped", "long", "nested", "alike", "commas", "table"],
)
@pytest.mark.parametrize("given_properties", [PROPERTIES, {"correlation_id": "", "priority": 0}])
def test_headers_that_celery_writes_are_written_as_py_amqp_writes_them(more, given_properties):
    check(claimed({**CLAIMED, **more}, given_properties))


def test_a_message_of_celery_itself_is_written_as_py_amqp_writes_it():
    app = Celery("unit", broker="memory://", set_as_current=False)
    message = app.amqp.as_task_v2("0d3f", "shop.charge", ('O"Neil', b"\xff"), {"a": "b"}, retries=2)
    check(claimed(message.headers, message.properties))


@given(extra)
def test_what_is_in_a_table_is_what_py_amqp_writes(table):
    assert entries_of(table) == dumps("F", (table,))[4:]
    # From what is kept of the first time.
    assert entries_of(table) == dumps("F", (table,))[4:]


@given(st.dictionaries(st.binary(max_size=9), values, max_size=3))
@example({b"raw\xff": "text", b"\xfe": 2.5, b"": [None, 3], b"n": {b"\xff": "text"}})
def test_names_of_bytes_are_what_py_amqp_writes(table):
    assert entries_of(table) == dumps("F", (table,))[4:]
    assert entries_of(table) == dumps("F", (table,))[4:]


@given(properties, extra)
def test_properties_are_what_py_amqp_writes(given_properties, table):
    message = Message("", application_headers=table or None, **given_properties)
    assert properties_of(message.properties) == message._serialize_properties()


def test_texts_are_what_py_amqp_writes():
    assert short("é\ud800") == dumps("s", ("é\ud800",))
    assert entries_of({"é": "\ud800"}) == dumps("F", ({"é": "\ud800"},))[4:]
    assert entries_of({b"\xff": "é"}) == dumps("F", ({b"\xff": "é"},))[4:]


@pytest.mark.parametrize(
    "hopeless",
    [
        envelope(headers={"id": "a", "x": object()}),
        envelope(headers={"n" * 300: "x"}),
        envelope(properties={"correlation_id": "c" * 300}),
        claimed({**CLAIMED, "n" * 300: "x"}).envelope,
        claimed({**CLAIMED, "number": 2**70}).envelope,
        claimed(properties={"correlation_id": "c" * 300}).envelope,
    ],
)
def test_what_amqp_cannot_say_is_an_error(hopeless):
    encoder = FrameEncoder(Producer(Channel(frame_max=4_096), auto_declare=False))
    with pytest.raises(Exception, match=r"."):
        encoder.frames(letter("0d3f", envelope=hopeless, claim_token="t"))
