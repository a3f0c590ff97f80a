"""Reads messages of a broker's queue, which keeps them until they are removed explicitly."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from queue import Empty
from typing import Any, Protocol

from amqp.exceptions import NotFound
from kombu import Consumer, Queue
from kombu.exceptions import OperationalError

from celery_dlq.errors import IngestError
from celery_dlq.ingest.taken import BATCH_BYTES, Taken, as_delivered, size_of

#: Seconds in which the broker must answer, and deliver the messages that it said it has.
BROKER_TIMEOUT_S = 10.0

#: Messages in the first batch from RabbitMQ, before it is known how large they are.
_FIRST_BATCH = 10


class Source(Protocol):
    """A queue to be emptied."""

    def count(self) -> int:
        """How many messages wait; SQS counts roughly."""

    def take(self, limit: int) -> Sequence[Taken]:
        """Up to ``limit`` further messages, oldest first; empty if no more wait."""

    def remove(self, taken: Sequence[Taken]) -> None:
        """Delete them from the broker. When the source is closed, messages that were taken and not removed
        are back in the queue, or have never left it."""


@contextlib.contextmanager
def open_source(app: Any, queue: str) -> Iterator[Source]:
    """The queue of that name, on a connection of its own. Declares nothing.

    :raises IngestError: the broker does not answer, fails later, or has no such queue.
    """
    with app.connection_for_read() as connection:
        shown = connection.as_uri()
        try:
            connection.ensure_connection(
                max_retries=1, interval_start=0.2, timeout=BROKER_TIMEOUT_S
            )
            with connection.channel() as channel:
                yield _source(app, connection, channel, queue)
        except NotFound as error:
            raise IngestError(
                f"There is no queue {queue!r} at {shown}; see: rabbitmqctl list_queues"
            ) from error
        except (
            OperationalError,
            *connection.connection_errors,
            *connection.channel_errors,
        ) as error:
            why = f"{type(error).__name__}: {error}".strip().splitlines()[0]
            raise IngestError(
                f"Queue {queue!r} at {shown} cannot be read ({why}); "
                "messages that were not stored yet are still there. Run: celery -A <app> dlq doctor"
            ) from error


def _source(app: Any, connection: Any, channel: Any, queue: str) -> Source:
    driver = connection.transport.driver_type
    if driver == "redis":
        # Redis' client is installed only in this case.
        from celery_dlq.ingest.redis_list import RedisList

        return RedisList(app, channel, queue)
    if driver == "amqp":
        return AMQPQueue(app, connection, channel, queue)
    return PolledQueue(app, channel, queue)


class AMQPQueue:
    """RabbitMQ: consumes with the requested number of messages in flight, and acknowledges to remove
    them."""

    def __init__(
        self,
        app: Any,
        connection: Any,
        channel: Any,
        queue: str,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app, self._connection, self._channel = app, connection, channel
        self._queue, self._monotonic = queue, monotonic
        #: A safe number of messages in flight, because the broker cannot limit bytes.
        self._most = _FIRST_BATCH

    def count(self) -> int:
        # Passive: a queue of another type must not be declared again.
        declared = self._channel.queue_declare(self._queue, passive=True)
        return int(declared.message_count)

    def take(self, limit: int) -> Sequence[Taken]:
        expected = min(limit, self._most, self.count())
        messages: list[Any] = []
        if expected:
            self._channel.basic_qos(0, expected, False)
            with self._consumer(messages):
                self._drain(messages, expected)
        taken = [self._taken(message) for message in messages]
        if taken:
            average = sum(map(size_of, taken)) // len(taken)
            self._most = max(1, BATCH_BYTES // max(1, average))
        return taken

    def _consumer(self, messages: list[Any]) -> Any:
        queue = Queue(self._queue, channel=self._channel, no_declare=True)
        return Consumer(
            self._channel, [queue], on_message=messages.append, auto_declare=False,
            on_decode_error=lambda message, _error: messages.append(message),
        )  # fmt: skip

    def _drain(self, messages: list[Any], expected: int) -> None:
        """Wait for the messages, but not for ever, because another consumer may take them."""
        deadline = self._monotonic() + BROKER_TIMEOUT_S
        while len(messages) < expected and self._monotonic() < deadline:
            # Wait longer for the first messages than for later ones, which another consumer may have
            # taken.
            with contextlib.suppress(socket.timeout):
                self._connection.drain_events(timeout=1.0)
                deadline = self._monotonic() + 1.0

    def _taken(self, message: Any) -> Taken:
        came = as_delivered(message, self._app)
        # Its delivery into the dead-letter queue does not say where the message was before.
        came = replace(came, exchange="", routing_key="", queue="")
        return Taken(envelope=came, tag="", handle=message)

    def remove(self, taken: Sequence[Taken]) -> None:
        for item in taken:
            item.handle.ack()


class PolledQueue:
    """kombu's other transports, among them Amazon SQS: one message after the other."""

    def __init__(self, app: Any, channel: Any, queue: str) -> None:
        self._app, self._channel, self._queue = app, channel, queue
        if hasattr(channel, "sqs"):
            # On SQS, kombu "restores" a message by sending a copy, and the original comes back by itself.
            channel.do_restore = False

    def count(self) -> int:
        # A passive declaration would create the queue in SQS.
        return int(self._channel._size(self._queue))

    def take(self, limit: int) -> Sequence[Taken]:
        taken: list[Taken] = []
        size = 0
        while len(taken) < limit and size < BATCH_BYTES:
            message = self._next()
            if message is None:
                break
            taken.append(self._taken(message))
            size += size_of(taken[-1])
        return taken

    def _next(self) -> Any:
        """The next message; kombu's ``basic_get`` would lose one that it cannot parse."""
        try:
            payload = self._channel._get(self._queue)
        except Empty:
            return None
        try:
            message = self._channel.Message(payload, channel=self._channel)
        except Exception as error:
            if self._channel.do_restore:
                self._channel._put(self._queue, payload)
            raise IngestError(
                f"A message of queue {self._queue!r} cannot be read ({type(error).__name__}: {error}) "
                "and was left there; move it away by hand"
            ) from error
        self._channel.qos.append(message, message.delivery_tag)
        return message

    def _taken(self, message: Any) -> Taken:
        came = as_delivered(message, self._app)
        info = message.delivery_info if isinstance(message.delivery_info, Mapping) else {}
        # kombu reads this to return a message that is not removed: it goes back to this queue, not to the
        # queue where the task would run.
        message.delivery_info = {**info, "exchange": "", "routing_key": self._queue}
        # SQS gives each receipt another delivery tag.
        tag = (info.get("sqs_message") or {}).get("MessageId") or message.delivery_tag
        return Taken(envelope=came, tag=str(tag), handle=message)

    def remove(self, taken: Sequence[Taken]) -> None:
        for item in taken:
            item.handle.ack()
