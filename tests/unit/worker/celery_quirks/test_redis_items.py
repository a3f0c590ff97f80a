"""Items of a Redis list that no message is made of, read by kombu's own channel from a scripted client."""

import base64
import json
from types import SimpleNamespace

import pytest
from kombu.transport.virtual import Message
from kombu.utils.json import loads

from celery_dlq.worker.celery_quirks.brokers import as_message, catch_unreadable, is_readable


def envelope(**changes):
    whole = {
        "body": base64.b64encode(b"[[], {}, {}]").decode(), "content-type": "application/json",
        "content-encoding": "utf-8", "headers": {"task": "t"},
        "properties": {"delivery_tag": "tag", "body_encoding": "base64",
                       "delivery_info": {"exchange": "", "routing_key": "celery"}},
    }  # fmt: skip
    return {**whole, **changes}


def item(**changes):
    return json.dumps(envelope(**changes)).encode()


PROPERTIES = envelope()["properties"]

UNREADABLE = {
    "text": b"hello",
    "nothing": b"",
    "binary": b"\xff\x00",
    "a number": b"7",
    "a list": b"[1]",
    "another table": b'{"task": "t"}',
    "headers are a list": item(headers=["a"]),
    "headers are text": item(headers="a"),
    "properties are a list": item(properties=[]),
    "no tag": item(properties={**PROPERTIES, "delivery_tag": None}),
    "no address": item(properties={**PROPERTIES, "delivery_info": {}}),
    "body is a number": item(body=7),
    "body is no base64": item(body="abcde"),
    "unknown encoding of the body": item(properties={**PROPERTIES, "body_encoding": "rot13"}),
    "nested too deep": b"[" * 100_000,
    "a value of an unknown type": item(headers={"a": {"__type__": "x", "__value__": 1}}),
}


class FakeChannel:
    """As kombu's Redis channel: takes an item off the list, then makes a message of it."""

    sep = "\x06\x16"

    def __init__(self, taken):
        self.delivered = []
        self.client = SimpleNamespace(parse_response=lambda *_a, **_k: taken)
        self.connection = SimpleNamespace(_deliver=self._deliver)
        self.handlers = {"BRPOP": self._brpop_read}
        self.error = None

    def decode_body(self, body, encoding):
        return {"base64": base64.b64decode}[encoding](body)

    def _brpop_read(self):
        queue, raw = self.client.parse_response(None, "BRPOP")
        self._deliver(loads(raw), queue.decode())
        return True

    def _deliver(self, payload, queue):
        message = Message(payload, channel=self)
        assert message.delivery_info["exchange"] is not None, "Redis' own transport looks"
        assert message.delivery_tag is not None, "so does Redis"
        self.delivered.append((queue, message))
        if self.error:
            raise self.error


@pytest.mark.parametrize("what", UNREADABLE)
def test_what_is_no_message_is_delivered_as_one(what):
    raw = UNREADABLE[what]
    channel = FakeChannel((b"celery", raw))
    catch_unreadable(channel)
    assert channel.handlers["BRPOP"]() is True
    [(queue, message)] = channel.delivered
    assert (queue, message.delivery_info["routing_key"]) == ("celery", "celery")
    assert message.delivery_tag
    if what.startswith("headers are"):
        assert message.body == b"[[], {}, {}]"
        assert message.headers == {"x-dlq-headers": json.loads(raw)["headers"]}
    else:
        assert (message.body, message.headers) == (raw, {})
    assert is_readable(json.dumps(message._raw).encode()), "a crash gives it back as it is now"


def test_a_message_is_delivered_once():
    channel = FakeChannel((b"celery", item()))
    catch_unreadable(channel)
    assert channel.handlers["BRPOP"]() is True
    assert len(channel.delivered) == 1


def test_an_error_behind_a_good_message_goes_on():
    channel = FakeChannel((b"celery", item()))
    channel.error = KeyError("a handler's")
    catch_unreadable(channel)
    with pytest.raises(KeyError, match="a handler's"):
        channel.handlers["BRPOP"]()
    assert len(channel.delivered) == 1


def test_an_error_before_anything_was_taken_goes_on():
    channel = FakeChannel(None)
    catch_unreadable(channel)
    with pytest.raises(TypeError):
        channel.handlers["BRPOP"]()


def test_other_transports_are_left_alone():
    channel = SimpleNamespace()
    catch_unreadable(channel)
    assert vars(channel) == {}


def test_queues_of_other_priorities_have_the_same_name():
    channel = FakeChannel((b"celery\x06\x163", b"hello"))
    catch_unreadable(channel)
    channel.handlers["BRPOP"]()
    assert channel.delivered[0][0] == "celery"


def test_each_gets_a_tag_of_its_own():
    first, second = (as_message(b"hello", "celery") for _ in range(2))
    assert first["properties"]["delivery_tag"] != second["properties"]["delivery_tag"]


def test_one_that_redis_has_noted_keeps_its_tag():
    channel = FakeChannel((b"celery", item(body="abcde")))
    catch_unreadable(channel, lambda: "noted")
    channel.handlers["BRPOP"]()
    assert channel.delivered[0][1].delivery_tag == "noted"
