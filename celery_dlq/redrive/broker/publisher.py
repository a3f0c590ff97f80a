"""Sends original messages back to their queues, and waits until the broker confirms them. Letters enter, and
each leaves as confirmed, refused, unsent or uncertain."""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pybase64
from kombu import Producer
from kombu.exceptions import OperationalError
from kombu.transport.virtual.base import Base64
from kombu.utils.json import dumps

from celery_dlq.base.addresses import reach
from celery_dlq.base.codec import quick_json
from celery_dlq.errors import RedriveError
from celery_dlq.model.letter import DeadLetter
from celery_dlq.redrive.broker.amqp import ConfirmingPublisher
from celery_dlq.redrive.broker.message import (
    UNENCODABLE,
    AtOnce,
    Sent,
    arguments_of,
    prepared,
    reason,
)
from celery_dlq.redrive.broker.queues import broker_errors, is_on_sqs, no_such_queue


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
        try:
            reach(connection, within_s=5)
        except (OperationalError, *broker_errors(connection)) as error:
            raise RedriveError(
                f"The broker does not answer ({reason(error)}); nothing was sent. "
                "Check broker_url, then run: celery dlq doctor."
            ) from error
        channel = connection.channel()
        try:
            if is_on_sqs(channel):
                yield SQSPublisher(channel)
            elif hasattr(channel, "confirm_select"):
                yield ConfirmingPublisher(channel)
            else:
                yield BatchingPublisher(channel)
        finally:
            # RabbitMQ's client would write to a connection that was lost.
            connection.maybe_close_channel(channel)


class BatchingPublisher(AtOnce):
    """For transports other than AMQP, where the write itself is the confirmation. Messages are written in
    batches if kombu can do that (5.7)."""

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
        """Publish the original messages; never raises."""
        if self._pipeline is not None and all(letter.envelope.queue for letter in letters):
            return self._pipeline.send(letters)
        sent = Sent()
        try:
            with self._batch(len(letters)):
                for letter in letters:
                    sent.uncertain.append(letter.task_id)
                    try:
                        self._producer.publish(**arguments_of(letter))
                    except UNENCODABLE as error:
                        sent.refuse(sent.uncertain.pop(), error)
                        continue
                    if not self._is_batched:
                        sent.confirmed.append(sent.uncertain.pop())
        except Exception as error:  # noqa: BLE001 - a connection can fail in any way
            sent.error = reason(error)
            tried = {*sent.confirmed, *sent.uncertain, *sent.refused}
            sent.unsent = [letter.task_id for letter in letters if letter.task_id not in tried]
            return sent
        sent.confirmed, sent.uncertain = [*sent.confirmed, *sent.uncertain], []
        return sent

    def _batch(self, size: int) -> contextlib.AbstractContextManager[object]:
        return self._producer.batch(max(1, size)) if self._is_batched else contextlib.nullcontext()


#: Answers about one message or its queue; SQS may take the next message.
_ABOUT_MESSAGE = frozenset({
    "InvalidParameterValue", "InvalidMessageContents", "InvalidAddress", "QueueDoesNotExist",
    "AWS.SimpleQueueService.NonExistentQueue",
})  # fmt: skip


class SQSPublisher(AtOnce):
    """Sends one message after the other. SQS' answer is the confirmation."""

    def __init__(self, channel: Any) -> None:
        self._producer = Producer(channel, auto_declare=False)

    def send(self, letters: Sequence[DeadLetter]) -> Sent:
        """Publish the original messages; never raises."""
        sent = Sent()
        for place, letter in enumerate(letters):
            try:
                self._producer.publish(**arguments_of(letter))
            except Exception as error:  # noqa: BLE001 - a connection can fail in any way
                if _is_about_message(error):
                    sent.refused[letter.task_id] = reason(error)
                    continue
                sent.error, sent.unsent = reason(error), [one.task_id for one in letters[place:]]
                if not _is_refusal(error):
                    sent.uncertain.append(sent.unsent.pop(0))
                break
            sent.confirmed.append(letter.task_id)
        return sent


def _is_about_message(error: Exception) -> bool:
    if isinstance(error, (*UNENCODABLE, *no_such_queue())):
        return True
    return _answer(error).get("Error", {}).get("Code") in _ABOUT_MESSAGE


def _is_refusal(error: Exception) -> bool:
    """Whether SQS has answered that it does not take the message. If an earlier try of boto3's has reached
    the queue all the same, a worker runs one copy, as after a redrive that was killed."""
    status = int(_answer(error).get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return 400 <= status < 500


def _answer(error: Exception) -> dict[str, Any]:
    return getattr(error, "response", None) or {}


#: Sends letters back to their queues. ``confirms_later`` says whether the broker's confirmation is awaited
#: after ``begin()``, so that more can be written.
Publisher = ConfirmingPublisher | BatchingPublisher | SQSPublisher


class RedisPipeline:
    """Publishes the messages that kombu's ``Producer.batch`` would, in a fraction of the time: one command
    for each list, with all of its messages. A transport that may repeat a write by itself must not use it.

    :param producer: a producer on a channel of kombu's Redis transport.
    """

    def __init__(self, producer: Any) -> None:
        self._producer, self._channel = producer, producer.channel
        self._channel.codecs = {**self._channel.codecs, "base64": _FastBase64()}
        self._keys: dict[tuple[str, int], str] = {}

    def send(self, letters: Sequence[DeadLetter]) -> Sent:
        """Publish the original messages of letters whose queue is known; never raises."""
        sent = Sent()
        lists = defaultdict[str, dict[str, bytes]](dict)
        for letter in letters:
            self._add(lists, letter, sent)
        try:
            with self._channel.conn_or_acquire() as client, client.pipeline(False) as pipe:
                for key, messages in lists.items():
                    pipe.lpush(key, *messages.values())
                sent.unsent, sent.uncertain = [], sent.unsent
                answers = pipe.execute(raise_on_error=False)
        except Exception as error:  # noqa: BLE001 - a connection can fail in any way
            sent.error = reason(error)
            return sent
        if answers and all(isinstance(answer, Exception) for answer in answers):
            sent.error, sent.unsent, sent.uncertain = reason(answers[0]), sent.uncertain, []
            return sent
        sent.uncertain = []
        for messages, answer in zip(lists.values(), answers, strict=True):
            if isinstance(answer, Exception):
                sent.refused |= dict.fromkeys(messages, f"Redis refuses it ({reason(answer)})")
            else:
                sent.confirmed += messages
        return sent

    def _add(self, lists: dict[str, dict[str, bytes]], letter: DeadLetter, sent: Sent) -> None:
        try:
            key, message = self._command(letter)
        except Exception as error:  # noqa: BLE001 - headers may be anything
            sent.refuse(letter.task_id, error)
        else:
            lists[key][letter.task_id] = message
            sent.unsent.append(letter.task_id)

    def _command(self, letter: DeadLetter) -> tuple[str, bytes]:
        """The list that the message belongs to, and the message."""
        message, exchange, queue = prepared(self._producer, letter)
        self._channel._inplace_augment_message(message, exchange, queue)
        priority = self._channel._get_message_priority(message, reverse=False)
        return self._key(queue, priority), write_json(message)

    def _key(self, queue: str, priority: int) -> str:
        place = queue, priority
        key = self._keys.get(place)
        if key is None:
            key = self._keys[place] = self._channel._q_for_pri(*place)
        return key


class _FastBase64(Base64):  # type: ignore[misc]  # kombu has no types
    """kombu's codec of bodies, ten times as fast. kombu's own takes a quarter of the time of a message with a
    body of 2 kB, and most of it with larger ones."""

    def encode(self, s: str | bytes) -> str:
        return pybase64.b64encode_as_string(s.encode("utf-8") if isinstance(s, str) else s)


def numbered(name: str | None = None) -> Callable[[], str]:
    """A function that returns a new, unique delivery tag at each call."""
    name, numbers = name or uuid.uuid4().hex, itertools.count(1)
    return lambda: f"{name}-{next(numbers)}"


def write_json(message: dict[str, Any]) -> bytes:
    """``message`` as JSON that means the same as kombu's. Text may be escaped differently.

    :raises TypeError: kombu cannot write it.
    """
    text = quick_json(message)  # ten times as fast as kombu, which writes what orjson refuses
    return str(dumps(message)).encode("utf-8") if text is None else text


def fits(channel: Any) -> bool:
    """Whether ``channel`` is one that :class:`RedisPipeline` can write to: kombu's own, on Redis, which never
    repeats a write by itself, without queues that expire."""
    is_redis = type(channel).__module__ == "kombu.transport.redis"
    return is_redis and not getattr(channel, "_expires", None) and channel.body_encoding == "base64"
