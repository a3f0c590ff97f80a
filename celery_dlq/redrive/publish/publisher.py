"""Sends original messages back to their queues, and waits until the broker confirms them."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from kombu import Producer
from kombu.exceptions import OperationalError

from celery_dlq.errors import RedriveError
from celery_dlq.model.headers import letter_of, release_of
from celery_dlq.model.letter import DeadLetter
from celery_dlq.redrive.publish.amqp import FrameEncoder
from celery_dlq.redrive.publish.message import arguments_of
from celery_dlq.redrive.publish.redis import RedisPipeline, fits, numbered
from celery_dlq.redrive.publish.result import Sent, reason

#: Seconds to wait for the broker's next confirmation.
CONFIRM_TIMEOUT_S = 30.0

#: Bytes of the bodies that are written to a broker at once.
PORTION = 131_072


class Publisher(Protocol):
    """Sends letters back to their queues."""

    #: Whether the broker's confirmation is awaited after :meth:`begin`, so that more can be written.
    confirms_later: bool

    def send(self, letters: Sequence[DeadLetter]) -> Sent:
        """Publish the original messages; never raises."""

    def begin(self, letters: Sequence[DeadLetter]) -> Callable[[], Sent]:
        """Publish them without waiting for the broker; the returned callable waits for its confirmation."""


@contextlib.contextmanager
def open_publisher(app: Any) -> Iterator[Publisher]:
    """A publisher on a connection of its own.

    :raises RedriveError: the broker does not answer; nothing was sent.
    """
    with app.connection_for_write() as connection:
        if connection.transport.driver_type == "amqp":
            # kombu would wait for each confirmation separately. Here, those of a batch are awaited together.
            # This is for AMQP only, because kombu's SQLAlchemy transport passes every option on to
            # create_engine().
            options = {**connection.transport_options, "confirm_publish": False}
            connection.transport_options = options
        _connect(connection)
        with connection.channel() as channel:
            confirms = hasattr(channel, "confirm_select")
            yield _Confirming(channel) if confirms else _Batching(channel)


def _connect(connection: Any) -> None:
    try:
        connection.ensure_connection(max_retries=1, interval_start=0.2, timeout=5)
    except OperationalError as error:
        raise RedriveError(
            f"The broker does not answer ({reason(error)}); nothing was sent. "
            "Check broker_url, then run: celery -A <app> dlq doctor."
        ) from error


@dataclass
class _Batch:
    """Messages that wait for the broker's answer, by their tags, and the result of the others."""

    sent: Sent = field(default_factory=Sent)
    waiting: dict[int, str] = field(default_factory=dict)


class _Confirming:
    """AMQP: one round of publisher confirms for a batch; unroutable messages come back."""

    confirms_later = True

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._encoder = FrameEncoder(Producer(channel, auto_declare=False))
        self._open: list[_Batch] = []
        self._error: str | None = None
        self._is_silent = False
        self._tag = 0
        channel.confirm_select()
        channel.events["basic_ack"].add(self._on_ack)
        channel.events["basic_nack"].add(self._on_nack)
        channel.events["basic_return"].add(self._on_return)

    def send(self, letters: Sequence[DeadLetter]) -> Sent:
        return self.begin(letters)()

    def begin(self, letters: Sequence[DeadLetter]) -> Callable[[], Sent]:
        batch, tried = _Batch(Sent(error=self._error)), 0
        self._open.append(batch)
        try:
            for portion in () if batch.sent.error else _portions(letters):
                tried += len(portion)
                self._write(batch, self._encoded(batch.sent, portion))
        except Exception as error:  # noqa: BLE001 - a connection can fail in any way
            self._error = batch.sent.error = reason(error)
        batch.sent.unsent = [letter.task_id for letter in letters[tried:]]
        return partial(self._finish, batch)

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

    def _encoded(self, sent: Sent, letters: Sequence[DeadLetter]) -> dict[str, bytes]:
        encoded = {letter.task_id: self._frames(sent, letter) for letter in letters}
        return {task_id: frames for task_id, frames in encoded.items() if frames is not None}

    def _frames(self, sent: Sent, letter: DeadLetter) -> bytes | None:
        try:
            return self._encoder.frames(letter)
        except Exception as error:  # noqa: BLE001 - headers may be anything
            sent.refuse(letter.task_id, error)
            return None

    def _write(self, batch: _Batch, encoded: Mapping[str, bytes]) -> None:
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


class _Batching:
    """Other transports, where the write itself is the confirmation. Messages are written in batches if kombu
    can do that (5.7)."""

    confirms_later = False

    def __init__(self, channel: Any) -> None:
        self._producer = Producer(channel, auto_declare=False)
        self._is_batched = getattr(self._producer, "supports_batch_publish", False)
        if hasattr(channel, "_next_delivery_tag"):
            # kombu draws a random number for each message, which takes a third of its publication.
            channel._next_delivery_tag = numbered()
        self._pipeline = (
            RedisPipeline(self._producer) if self._is_batched and fits(channel) else None
        )

    def send(self, letters: Sequence[DeadLetter]) -> Sent:
        if self._pipeline is not None and all(letter.envelope.queue for letter in letters):
            return self._pipeline.send(letters)
        sent = Sent()
        try:
            with self._batch(len(letters)):
                for letter in letters:
                    sent.uncertain.append(letter.task_id)
                    self._producer.publish(**arguments_of(letter))
                    if not self._is_batched:
                        sent.confirmed.append(sent.uncertain.pop())
        except Exception as error:  # noqa: BLE001 - a connection can fail in any way
            sent.error = reason(error)
            tried = {*sent.confirmed, *sent.uncertain}
            sent.unsent = [letter.task_id for letter in letters if letter.task_id not in tried]
            return sent
        sent.confirmed, sent.uncertain = [*sent.confirmed, *sent.uncertain], []
        return sent

    def begin(self, letters: Sequence[DeadLetter]) -> Callable[[], Sent]:
        sent = self.send(letters)
        return lambda: sent

    def _batch(self, size: int) -> contextlib.AbstractContextManager[object]:
        return self._producer.batch(max(1, size)) if self._is_batched else contextlib.nullcontext()
