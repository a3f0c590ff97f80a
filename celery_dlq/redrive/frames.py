"""AMQP: a message as the frames that carry it. py-amqp writes the same ones, by some hundred calls for each
message, and hands each to the socket by itself."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from struct import pack
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
    entries = b"".join(
        _ENTRIES.get(type(value), _other)(name, value) for name, value in table.items()
    )
    return pack(">I", len(entries)) + entries


_name = functools.lru_cache(maxsize=1_024)(_short)


def _text(name: str, value: str) -> bytes:
    data = value.encode("utf-8", "surrogatepass")
    return _name(name) + pack(">cI", b"S", len(data)) + data


def _nothing(name: str, _value: None) -> bytes:
    return _name(name) + b"V"


@functools.lru_cache(maxsize=1_024, typed=True)  # counts, and flags
def _number(name: str, value: int) -> bytes:
    return _other(name, value)


def _other(name: Any, value: Any) -> bytes:
    table = bytes(dumps("F", ({name: value},)))
    return table[4:]


#: How an entry of a table is written, by the type of its value.
_ENTRIES: dict[type, Callable[[Any, Any], bytes]] = {
    str: _text, type(None): _nothing, int: _number, bool: _number,
}  # fmt: skip
