"""Publishes to AMQP brokers: a batch is written as frames, and the broker confirms it.

The frames are byte for byte those of py-amqp, which itself makes about a hundred calls for each message, and
writes each message to the socket separately.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from struct import Struct, pack
from typing import Any

from amqp import ChannelError, Message, spec
from amqp.serialization import dumps
from kombu import Producer

from celery_dlq.model.headers import letter_of, release_of
from celery_dlq.model.letter import DeadLetter
from celery_dlq.redrive.broker.message import Sent, prepared, reason

#: Seconds to wait for the broker's next confirmation.
CONFIRM_TIMEOUT_S = 30.0

#: Bytes of the bodies that are written to a broker at once.
PORTION = 131_072

_METHOD, _HEADER, _BODY, _END = 1, 2, 3, b"\xce"

#: Bytes of a frame around its content.
_AROUND = 8

_CLASS = spec.Basic.Publish[0]

_start = Struct(">BHI").pack
#: The start of a header frame up to the properties, and how many of its bytes the frame's length counts.
_header, _COUNTED = Struct(">BHIHHQ").pack, 12


#: Bytes of a body that the broker may find too large.
_LARGE = 1 << 20

_NEXT = "correct that, send it elsewhere with --to-queue, or discard it"

#: Headers and properties that RabbitMQ checks.
_CHECKED = frozenset({"CC", "BCC", "user_id"})


@dataclass
class _Batch:
    """Messages that wait for the broker's answer, by their tags, and the result of the others."""

    sent: Sent = field(default_factory=Sent)
    waiting: dict[int, str] = field(default_factory=dict)


class ConfirmingPublisher:
    """One round of publisher confirms for a batch; unroutable messages come back.

    RabbitMQ refuses a message by closing the channel, and does not say which one. So a message that it may
    refuse is sent alone, before the others of its batch.
    """

    confirms_later = True

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._encoder = FrameEncoder(Producer(channel, auto_declare=False))
        self._open: list[_Batch] = []
        self._error: str | None = None
        self._is_silent = False
        self._tag = 0
        #: Exchanges that have taken a message; the one without a name takes all.
        self._exchanges = {""}
        channel.confirm_select()
        channel.events["basic_ack"].add(self._on_ack)
        channel.events["basic_nack"].add(self._on_nack)
        channel.events["basic_return"].add(self._on_return)

    def send(self, letters: Sequence[DeadLetter]) -> Sent:
        """Publish the original messages; never raises."""
        return self.begin(letters)()

    def begin(self, letters: Sequence[DeadLetter]) -> Callable[[], Sent]:
        """Publish them without waiting for the broker; the returned callable waits for its confirmation."""
        batch = _Batch(Sent(error=self._error))
        self._open.append(batch)
        try:
            if batch.sent.error is None:
                others = [letter for letter in letters if not self._is_sent_alone(batch, letter)]
                for portion in _portions(others):
                    self._write(batch, portion)
        except Exception as error:  # noqa: BLE001 - a connection can fail in any way
            self._error = batch.sent.error = reason(error)
        tried = {*batch.waiting.values(), *batch.sent.confirmed, *batch.sent.refused}
        batch.sent.unsent = [one.task_id for one in letters if one.task_id not in tried]
        return partial(self._finish, batch)

    def _is_sent_alone(self, batch: _Batch, letter: DeadLetter) -> bool:
        """Whether the broker may refuse the message of ``letter``, and so has answered about it."""
        envelope = letter.envelope
        exchange = "" if envelope.queue else envelope.exchange
        if (
            exchange in self._exchanges
            and _CHECKED.isdisjoint(envelope.headers)
            and _CHECKED.isdisjoint(envelope.properties)
            and len(envelope.body) < _LARGE
        ):
            return False
        for known in self._open:
            self._await_confirms(known)
        try:
            self._write(batch, [letter])
            self._await_confirms(batch)
        except ChannelError as error:
            batch.sent.refused[letter.task_id] = f"the broker refuses it ({reason(error)}); {_NEXT}"
            # py-amqp has opened the channel again.
            batch.waiting, self._tag = {}, 0
            self._channel.confirm_select()
        if letter.task_id in batch.sent.confirmed:
            self._exchanges.add(exchange)
        return True

    def _finish(self, batch: _Batch) -> Sent:
        try:
            # If the wait failed for the previous batch, no more answers will come.
            if batch.sent.error is None and not self._is_silent:
                self._await_confirms(batch)
        except Exception as error:  # noqa: BLE001 - a connection can fail in any way
            self._error = batch.sent.error = reason(error)
            self._is_silent = True
        self._open.remove(batch)
        batch.sent.uncertain.extend(batch.waiting.values())
        return batch.sent

    def _frames(self, sent: Sent, letter: DeadLetter) -> bytes | None:
        try:
            return self._encoder.frames(letter)
        except Exception as error:  # noqa: BLE001 - headers may be anything
            sent.refuse(letter.task_id, error)
            return None

    def _write(self, batch: _Batch, letters: Sequence[DeadLetter]) -> None:
        frames = {letter.task_id: self._frames(batch.sent, letter) for letter in letters}
        encoded = {task_id: one for task_id, one in frames.items() if one}
        is_first = not any(known.waiting for known in self._open)
        for task_id in encoded:
            self._tag += 1
            batch.waiting[self._tag] = task_id
        connection = self._channel.connection
        if not is_first:
            # A broker whose answers are not read may stop reading.
            with contextlib.suppress(TimeoutError):
                while True:
                    connection.drain_events(timeout=0)
        connection.transport.write(b"".join(encoded.values()))
        # This counts as a heartbeat, so no other one has to be sent.
        connection.bytes_sent += 1

    def _await_confirms(self, batch: _Batch) -> None:
        left, deadline = len(batch.waiting), time.monotonic() + CONFIRM_TIMEOUT_S
        while batch.waiting:
            self._channel.connection.drain_events(timeout=max(0.01, deadline - time.monotonic()))
            if len(batch.waiting) < left:  # slow, but confirmations still come
                left, deadline = len(batch.waiting), time.monotonic() + CONFIRM_TIMEOUT_S

    def _on_ack(self, delivery_tag: int, multiple: bool) -> None:
        for sent, task_id in self._settle(delivery_tag, multiple):
            if task_id not in sent.refused:
                sent.confirmed.append(task_id)

    def _on_nack(self, delivery_tag: int, multiple: bool) -> None:
        for sent, task_id in self._settle(delivery_tag, multiple):
            sent.refused[task_id] = "the broker refused it"
            sent.nacked.add(task_id)

    def _on_return(self, exc: Exception, exchange: str, routing_key: str, message: Any) -> None:
        # The broker confirms a returned message too, after returning it.
        headers = message.properties["application_headers"]
        release = release_of(headers)
        task_id = release[0] if release else letter_of(headers) or headers["id"]
        where = f"exchange {exchange!r}, routing key {routing_key!r}"
        for batch in self._open:
            if task_id in batch.waiting.values():
                batch.sent.refused[task_id] = (
                    f"no queue takes it any more ({where}); start its worker first"
                )

    def _settle(self, delivery_tag: int, multiple: bool) -> list[tuple[Sent, str]]:
        settled = []
        for batch in self._open:
            waiting = batch.waiting
            tags = [delivery_tag] if delivery_tag in waiting else []
            if multiple:
                tags = list(itertools.takewhile(lambda tag: tag <= delivery_tag, waiting))
            settled += [(batch.sent, waiting.pop(tag)) for tag in tags]
        return settled


def _portions(letters: Sequence[DeadLetter]) -> Iterator[list[DeadLetter]]:
    """``letters`` in parts that are written at once, so that the broker begins while others are encoded."""
    portion: list[DeadLetter] = []
    size = 0
    for letter in letters:
        portion.append(letter)
        size += len(letter.envelope.body)
        if size >= PORTION:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


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
