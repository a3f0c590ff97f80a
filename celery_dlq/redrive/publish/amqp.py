"""Encodes AMQP messages as frames, byte for byte as py-amqp does. py-amqp itself makes about a hundred calls
for each message, and writes each message to the socket separately."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from struct import Struct, pack
from typing import Any

from amqp import Message, spec
from amqp.serialization import dumps

from celery_dlq.model.letter import DeadLetter
from celery_dlq.redrive.publish.message import prepared

_METHOD, _HEADER, _BODY, _END = 1, 2, 3, b"\xce"

#: Bytes of a frame around its content.
_AROUND = 8

_CLASS = spec.Basic.Publish[0]

_start = Struct(">BHI").pack
#: The start of a header frame up to the properties, and how many of its bytes the frame's length counts.
_header, _COUNTED = Struct(">BHIHHQ").pack, 12


class FrameEncoder:
    """Encodes messages for one channel. It asks the broker to return messages that no queue accepts.

    :param producer: a producer on a channel of py-amqp.
    """

    def __init__(self, producer: Any) -> None:
        self._producer, self._channel_id = producer, producer.channel.channel_id
        self._most = producer.channel.connection.frame_max - _AROUND
        self._methods: dict[tuple[str, str], bytes] = {}

    def frames(self, letter: DeadLetter) -> bytes:
        """The original message of ``letter``, ready for the socket."""
        message, exchange, routing_key = prepared(self._producer, letter)
        properties, body = properties_of(message.properties), message.body
        length = _COUNTED + len(properties)
        header = _header(_HEADER, self._channel_id, length, _CLASS, 0, len(body))
        parts = [self._method(exchange, routing_key), header, properties, _END]
        for start in range(0, len(body), self._most):
            piece = body[start : start + self._most]
            parts += (_start(_BODY, self._channel_id, len(piece)), piece, _END)
        return b"".join(parts)

    def _method(self, exchange: str, routing_key: str) -> bytes:
        place = exchange, routing_key
        if place not in self._methods:
            arguments = dumps("Bssbb", (0, exchange, routing_key, True, False))
            content = pack(">HH", *spec.Basic.Publish) + arguments
            start = _start(_METHOD, self._channel_id, len(content))
            self._methods[place] = start + content + _END
        return self._methods[place]


def properties_of(properties: Mapping[str, Any]) -> bytes:
    """The properties of a message of py-amqp."""
    flags, fields = 0, []
    for number, (name, kind) in enumerate(Message.PROPERTIES):
        value = properties.get(name)
        if value is not None:
            flags |= 0x8000 >> number
            fields.append(_field(kind, value))
    return pack(">H", flags) + b"".join(fields)


def entries_of(table: Mapping[Any, Any]) -> bytes:
    """The entries of a table, without its length."""
    entries: list[bytes] = []
    for name, value in table.items():
        kind = type(value)
        if kind is str:
            data = value.encode("utf-8", "surrogatepass")
            entries += (_name(name), _text(b"S", len(data)), data)
        elif kind in _NUMBERS:
            entries.append(_number(name, value))
        elif kind is list and all(type(item) in _COUNTS for item in value):
            entries.append(_counts(name, tuple(value)))
        else:
            entries.append(_entry(name, value))
    return b"".join(entries)


def short(text: str | bytes) -> bytes:
    """A text of at most 255 bytes. A name that is not in UTF-8 was read as bytes."""
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return _octet(len(data)) + data


def _field(kind: str, value: Any) -> bytes:
    if kind == "F":
        entries = entries_of(value)
        return pack(">I", len(entries)) + entries
    if kind == "o":
        return _octet(value)
    return short(value) if type(value) is str else bytes(dumps(kind, (value,)))


_octet, _text = Struct("B").pack, Struct(">cI").pack

# Messages share their names, and most of their numbers and time limits.
_name = functools.lru_cache(maxsize=1_024)(short)

#: Types with few values in headers: counts, flags and None. Flags in lists are left out, because the cache
#: could not tell True from 1 there.
_NUMBERS = frozenset({int, bool, type(None)})
_COUNTS = frozenset({int, type(None)})


def _entry(name: Any, value: Any) -> bytes:
    table = bytes(dumps("F", ({name: value},)))
    return table[4:]


_number = functools.lru_cache(maxsize=1_024, typed=True)(_entry)


@functools.lru_cache(maxsize=1_024)
def _counts(name: Any, counts: tuple[int | None, ...]) -> bytes:
    return _entry(name, list(counts))
