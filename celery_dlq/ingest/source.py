"""Reads messages of a broker's queue, which keeps them until they are removed explicitly."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from queue import Empty
from typing import Any, Protocol

from amqp.exceptions import NotFound
from kombu import Consumer, Queue
from kombu.exceptions import OperationalError
from kombu.utils.json import dumps, loads

from celery_dlq.base.addresses import broker_of, reach
from celery_dlq.errors import IngestError
from celery_dlq.model.letter import Envelope
from celery_dlq.redrive.broker.queues import broker_errors, depth_of, is_on_sqs
from celery_dlq.worker.celery_quirks.brokers import as_message, is_readable
from celery_dlq.worker.message import envelope

#: Seconds in which the broker must answer, and deliver the messages that it said it has.
BROKER_TIMEOUT_S = 10.0

#: A batch is full once its bodies have this many bytes together, even if it has few messages.
BATCH_BYTES = 32_000_000

#: Messages in the first batch from RabbitMQ, before it is known how large they are.
_FIRST_BATCH = 10

#: Items of a Redis list that are read in one step: few, because their sizes are unknown.
_STEP = 10


@dataclass(frozen=True, kw_only=True)
class BrokerMessage:
    """A message that the broker still has."""

    #: As delivered. Its exchange and queue are those to which its publisher sent it, or empty if unknown.
    envelope: Envelope
    #: The broker's identifier of the message, if it has one.
    tag: str
    #: The object by which the source removes the message.
    handle: Any = field(repr=False)


def size_of(taken: BrokerMessage) -> int:
    """The size of the body in bytes."""
    return len(taken.envelope.body)


def as_delivered(message: Any, app: Any) -> Envelope:
    """The envelope of ``message``; only its body if its other fields cannot be read."""
    try:
        return envelope(message, app)
    except Exception:  # noqa: BLE001 - a stranger may have sent anything
        body = message.body
        return body_alone(body if isinstance(body, bytes) else str(body).encode())


def body_alone(body: bytes) -> Envelope:
    """The envelope of a message whose other fields cannot be read."""
    return Envelope(
        body=body, content_type="", content_encoding="", headers={}, properties={},
        exchange="", routing_key="", queue="",
    )  # fmt: skip


class Source(Protocol):
    """A queue to be emptied."""

    def count(self) -> int:
        """How many messages wait; SQS counts roughly."""

    def take(self, limit: int) -> Sequence[BrokerMessage]:
        """Up to ``limit`` further messages, oldest first; empty if no more wait."""

    def remove(self, taken: Sequence[BrokerMessage]) -> None:
        """Delete them from the broker. When the source is closed, messages that were taken and not removed
        are back in the queue, or have never left it."""


@contextlib.contextmanager
def open_source(app: Any, queue: str) -> Iterator[Source]:
    """The queue of that name, on a connection of its own. Declares nothing.

    :raises IngestError: the broker does not answer, fails later, or has no such queue.
    """
    with app.connection_for_read() as connection:
        shown = broker_of(connection)
        try:
            reach(connection, BROKER_TIMEOUT_S)
            with connection.channel() as channel:
                yield _source(app, connection, channel, queue)
        except NotFound as error:
            raise IngestError(
                f"There is no queue {queue!r} at {shown}; see: rabbitmqctl list_queues"
            ) from error
        except (OperationalError, *broker_errors(connection)) as error:
            why = f"{type(error).__name__}: {error}".strip().splitlines()[0]
            raise IngestError(
                f"Queue {queue!r} at {shown} cannot be read ({why}); "
                "messages that were not stored yet are still there. Run: celery -A <app> dlq doctor"
            ) from error


def _source(app: Any, connection: Any, channel: Any, queue: str) -> Source:
    driver = connection.transport.driver_type
    if driver == "redis":
        return RedisList(app, channel, queue)
    if driver == "amqp":
        return AMQPQueue(app, connection, channel, queue)
    return PolledQueue(app, channel, queue)


class AMQPQueue:
    """Reads from RabbitMQ: consumes with the requested number of messages in flight; an acknowledgement
    removes them."""

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

    def take(self, limit: int) -> Sequence[BrokerMessage]:
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
        """Wait a limited time for the messages, because another consumer may take them."""
        deadline = self._monotonic() + BROKER_TIMEOUT_S
        while len(messages) < expected and self._monotonic() < deadline:
            # Wait longer for the first messages than for later ones, which another consumer may have
            # taken.
            with contextlib.suppress(socket.timeout):
                self._connection.drain_events(timeout=1.0)
                deadline = self._monotonic() + 1.0

    def _taken(self, message: Any) -> BrokerMessage:
        came = as_delivered(message, self._app)
        # Its delivery into the dead-letter queue does not say where the message was before.
        came = replace(came, exchange="", routing_key="", queue="")
        return BrokerMessage(envelope=came, tag="", handle=message)

    def remove(self, taken: Sequence[BrokerMessage]) -> None:
        for item in taken:
            item.handle.ack()


class PolledQueue:
    """Reads from kombu's other transports, among them Amazon SQS: one message after the other."""

    def __init__(self, app: Any, channel: Any, queue: str) -> None:
        self._app, self._channel, self._queue = app, channel, queue
        if is_on_sqs(channel):
            # On SQS, kombu "restores" a message by sending a copy, and the original comes back by itself.
            channel.do_restore = False
            channel.fetch_message_attributes = {
                "MessageSystemAttributeNames": ["MessageGroupId"],
                "MessageAttributeNames": [".*"],
            }

    def count(self) -> int:
        if not is_on_sqs(self._channel):
            return int(self._channel._size(self._queue))
        depth = depth_of(self._channel, self._queue)
        if depth is None:
            raise IngestError(
                f"There is no queue {self._queue!r} for this app on Amazon SQS; see: aws sqs list-queues. "
                "If the app has predefined_queues, add it there."
            )
        return depth.waiting

    def take(self, limit: int) -> Sequence[BrokerMessage]:
        taken: list[BrokerMessage] = []
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
            if is_on_sqs(self._channel):
                raise IngestError(
                    f"A message of queue {self._queue!r} cannot be read ({type(error).__name__}: {error}) "
                    "and was left there; move it away by hand"
                ) from error
            payload = as_message(dumps(payload).encode(), self._queue)
            message = self._channel.Message(payload, channel=self._channel)
        self._channel.qos.append(message, message.delivery_tag)
        return message

    def _taken(self, message: Any) -> BrokerMessage:
        came = as_delivered(message, self._app)
        info = message.delivery_info if isinstance(message.delivery_info, Mapping) else {}
        # kombu reads this to return a message that is not removed: it goes back to this queue, not to the
        # queue where the task would run.
        message.delivery_info = {**info, "exchange": "", "routing_key": self._queue}
        # SQS gives each receipt another delivery tag.
        tag = (info.get("sqs_message") or {}).get("MessageId") or message.delivery_tag
        return BrokerMessage(envelope=came, tag=str(tag), handle=message)

    def remove(self, taken: Sequence[BrokerMessage]) -> None:
        for item in taken:
            item.handle.ack()


@dataclass(frozen=True)
class _Place:
    key: str
    item: bytes = field(repr=False)


class RedisList:
    """Reads a Redis list in place, and the lists that kombu keeps for the other priorities. An item stays
    in its list until its letter is stored.

    kombu would pop each message. An item that is not JSON would be lost at once, and a message that was taken
    when the process was killed would come back only after the visibility timeout, and to the queue where its
    task runs.
    """

    def __init__(self, app: Any, channel: Any, queue: str) -> None:
        # Redis' client is installed only in this case.
        from redis import Redis

        self._app, self._channel, self._queue = app, channel, queue
        # kombu's own client adds the global prefix, but only to the commands it uses itself.
        self._client = Redis(connection_pool=channel.pool)
        prefix = getattr(channel, "global_keyprefix", "")
        keys = [prefix + channel._q_for_pri(queue, step) for step in channel.priority_steps]
        #: How many items at the old end of each list were taken and not removed.
        self._passed = dict.fromkeys(keys, 0)

    def count(self) -> int:
        return sum(int(self._client.llen(key)) for key in self._passed)

    def take(self, limit: int) -> Sequence[BrokerMessage]:
        taken: list[BrokerMessage] = []
        size = 0
        for key, item in self._items(limit):
            self._passed[key] += 1
            taken.append(self._taken(key, item))
            size += size_of(taken[-1])
            if size >= BATCH_BYTES:
                break
        return taken

    def _items(self, limit: int) -> Iterator[tuple[str, bytes]]:
        for key in self._passed:
            while limit > 0:
                # New items enter at the left, so the old ones keep their distance from the right.
                end = -1 - self._passed[key]
                step = min(_STEP, limit)
                items: list[Any] = self._client.lrange(key, end - step + 1, end)
                for item in reversed(items):
                    yield key, item
                limit -= len(items)
                if len(items) < step:
                    break

    def _taken(self, key: str, item: bytes) -> BrokerMessage:
        readable = is_readable(item)
        payload = loads(item) if readable else as_message(item, self._queue)
        message = self._channel.Message(payload, channel=self._channel)
        # An item that is not a message of kombu has no tag.
        tag = str(message.delivery_tag) if readable else ""
        return BrokerMessage(
            envelope=as_delivered(message, self._app), tag=tag, handle=_Place(key, item)
        )

    def remove(self, taken: Sequence[BrokerMessage]) -> None:
        with self._client.pipeline(transaction=False) as pipe:
            for item in taken:
                # By value and from the old end, because another reader may already have removed it.
                pipe.lrem(item.handle.key, -1, item.handle.item)
            pipe.execute()
        for item in taken:
            self._passed[item.handle.key] -= 1
