"""AMQP: a message as the frames that carry it. py-amqp writes the same ones, and hands each message to the
socket by itself."""

from __future__ import annotations

from struct import Struct, pack
from typing import Any

from amqp import spec
from amqp.serialization import dumps

from celery_dlq.letter import DeadLetter
from celery_dlq.redrive.message import prepared
from celery_dlq.redrive.spliced_tables import spliced_properties
from celery_dlq.redrive.tables import properties_of

_METHOD, _HEADER, _BODY, _END = 1, 2, 3, b"\xce"

#: What is around the content of a frame.
_AROUND = 8

_CLASS = spec.Basic.Publish[0]

_start = Struct(">BHI").pack
#: The start of a header frame up to the properties, and the length of what is of that in the frame.
_header, _OF_HEADER = Struct(">BHIHHQ").pack, 12


class Framed:
    """Encodes messages for one channel, which is to return those that no queue takes.

    :param producer: of a channel of py-amqp.
    """

    def __init__(self, producer: Any) -> None:
        self._producer, self._channel_id = producer, producer.channel.channel_id
        _, self._delivery_mode = producer._delivery_details("")
        self._most = producer.channel.connection.frame_max - _AROUND
        self._methods: dict[tuple[str, str], bytes] = {}

    def frames(self, letter: DeadLetter) -> bytes:
        """The original message of ``letter``, to be written as it is."""
        properties = spliced_properties(letter, self._delivery_mode)
        if properties is not None:
            envelope = letter.envelope
            return self._framed(self._method("", envelope.queue), properties, envelope.body)
        message, exchange, routing_key = prepared(self._producer, letter)
        method = self._method(exchange, routing_key)
        return self._framed(method, properties_of(message.properties), message.body)

    def _framed(self, method: bytes, properties: bytes, body: bytes) -> bytes:
        length = _OF_HEADER + len(properties)
        header = _header(_HEADER, self._channel_id, length, _CLASS, 0, len(body))
        parts = [method, header, properties, _END]
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
