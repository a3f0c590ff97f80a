"""AMQP: a message as the frames that carry it. py-amqp writes the same ones, by some hundred calls for each
message, and hands each to the socket by itself."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from struct import Struct, pack
from typing import Any

from amqp import Message, spec
from amqp.serialization import dumps

from celery_dlq.letter import DeadLetter
from celery_dlq.redrive.message import prepared

_METHOD, _HEADER, _BODY, _END = 1, 2, 3, b"\xce"

#: What is around the content of a frame.
_AROUND = 8

_CLASS = spec.Basic.Publish[0]


class Framed:
    """Encodes messages for one channel, which is to return those that no queue takes.

    :param producer: of a channel of py-amqp.
    """

    def __init__(self, producer: Any) -> None:
        self._producer, self._channel_id = producer, producer.channel.channel_id
        self._most = producer.channel.connection.frame_max - _AROUND
        self._methods: dict[tuple[str, str], bytes] = {}

    def frames(self, letter: DeadLetter) -> bytes:
        """The original message of ``letter``, to be written as it is."""
        message, exchange, routing_key = prepared(self._producer, letter)
        body = message.body
        header = pack(">HHQ", _CLASS, 0, len(body)) + _properties(message.properties)
        starts = range(0, len(body), self._most)
        pieces = [self._frame(_BODY, body[start : start + self._most]) for start in starts]
        return b"".join(
            [self._method(exchange, routing_key), self._frame(_HEADER, header), *pieces]
        )

    def _method(self, exchange: str, routing_key: str) -> bytes:
        place = exchange, routing_key
        if place not in self._methods:
            arguments = dumps("Bssbb", (0, exchange, routing_key, True, False))
            content = pack(">HH", *spec.Basic.Publish) + arguments
            self._methods[place] = self._frame(_METHOD, content)
        return self._methods[place]

    def _frame(self, kind: int, content: bytes) -> bytes:
        return pack(">BHI", kind, self._channel_id, len(content)) + content + _END


def _properties(properties: Mapping[str, Any]) -> bytes:
    flags, fields = 0, []
    for number, (name, kind) in enumerate(Message.PROPERTIES):
        value = properties.get(name)
        if value is not None:
            flags |= 0x8000 >> number
            fields.append(_field(kind, value))
    return pack(">H", flags) + b"".join(fields)


def _field(kind: str, value: Any) -> bytes:
    if kind == "F":
        return _table(value)
    if kind == "o":
        return pack("B", value)
    return _short(value) if type(value) is str else bytes(dumps(kind, (value,)))


def _short(text: str) -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    return pack("B", len(data)) + data


def _table(table: Mapping[Any, Any]) -> bytes:
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
            entries.append(_other(name, value))
    content = b"".join(entries)
    return pack(">I", len(content)) + content


_name, _text = functools.lru_cache(maxsize=1_024)(_short), Struct(">cI").pack

#: Of few values: counts, flags, and nothing. In lists without flags, which are equal to numbers.
_NUMBERS = frozenset({int, bool, type(None)})
_COUNTS = frozenset({int, type(None)})


def _other(name: Any, value: Any) -> bytes:
    table = bytes(dumps("F", ({name: value},)))
    return table[4:]


_number = functools.lru_cache(maxsize=1_024, typed=True)(_other)


@functools.lru_cache(maxsize=1_024)  # time limits, as a rule
def _counts(name: Any, counts: tuple[int | None, ...]) -> bytes:
    return _other(name, list(counts))
