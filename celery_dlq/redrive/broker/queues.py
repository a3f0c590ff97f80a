"""Asks the broker about queues: whether they exist, how many messages they hold, and which messages of
redrives are among these."""

from __future__ import annotations

import contextlib
import json
import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from celery.utils.log import get_logger
from kombu.exceptions import KombuError
from kombu.transport.virtual import Channel as VirtualChannel

from celery_dlq.base.addresses import reach
from celery_dlq.base.codec import read_json
from celery_dlq.errors import RedriveError
from celery_dlq.model.headers import REDRIVE_HEADER, letter_of, redrive_of
from celery_dlq.model.letter import DeadLetter

if TYPE_CHECKING:
    from redis import Redis

logger: logging.Logger = get_logger(__name__)

#: The most bytes of messages that are read to look for some. More than that are left alone.
LOOK_BYTES = 16 << 20

#: A redrive of a letter: task id and number.
Redrive = tuple[str, int]


#: The counts of a queue in SQS. kombu creates a queue when it is asked about one that does not exist, and its
#: errors of connections and channels do not include SQS' own answers.
_COUNTS = (
    "ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)  # fmt: skip


def is_on_sqs(channel: Any) -> bool:
    """Whether ``channel`` is one of kombu's SQS transport."""
    return hasattr(channel, "sqs")


def broker_errors(connection: Any) -> tuple[type[Exception], ...]:
    """The errors by which the broker of ``connection`` refuses something, or does not answer."""
    known = (*connection.connection_errors, *connection.channel_errors)
    if connection.transport.driver_type != "sqs":
        return known
    # Installed only in this case.
    from botocore.exceptions import ClientError

    return (*known, ClientError, *no_such_queue())


def no_such_queue() -> tuple[type[Exception], ...]:
    """kombu's errors about a queue that SQS does not have."""
    # Before kombu 5.7, they are not derived from KombuError.
    from kombu.transport.SQS import DoesNotExistQueueException, UndefinedQueueException

    return (KombuError, DoesNotExistQueueException, UndefinedQueueException)


def attributes_of(channel: Any, queue: str, *names: str) -> dict[str, str] | None:
    """The attributes of ``queue`` that it has; None if there is no such queue.

    :raises Exception: one of :func:`broker_errors`.
    """
    try:
        url = channel._resolve_queue_url(queue)
    except no_such_queue():
        return None
    client = channel.sqs(queue=channel.canonical_queue_name(queue))
    found = client.get_queue_attributes(QueueUrl=url, AttributeNames=list(names))
    return dict(found.get("Attributes", {}))


class Depth(NamedTuple):
    """About how many messages a queue has."""

    waiting: int
    #: Those that workers hold, and those that are not due yet.
    held: int


def depth_of(channel: Any, queue: str) -> Depth | None:
    """The messages in ``queue``; None if there is no such queue.

    :raises Exception: one of :func:`broker_errors`.
    """
    found = attributes_of(channel, queue, *_COUNTS)
    if found is None:
        return None
    waiting, *held = (int(found[name]) for name in _COUNTS)
    return Depth(waiting, sum(held))


class Targets:
    """The queues of one redrive. The broker is asked once about each.

    :param elsewhere: the queue that the orders send letters to, instead of their own.
    """

    def __init__(self, app: Any, *, elsewhere: str | None = None) -> None:
        self._app, self._elsewhere = app, elsewhere
        self._known: dict[str, str | None] = {}

    def why_not(self, queue: str) -> str | None:
        """Why nothing can be sent to ``queue``; None when it can, or when that is unknown."""
        if not queue:
            return None  # it goes through its exchange, which returns what no queue takes
        if queue not in self._known:
            missing = (
                f"queue {queue} does not exist on the broker; start a worker that reads it first"
            )
            self._known[queue] = None if self._exists(queue) else missing
        return self._known[queue]

    def _exists(self, queue: str) -> bool:
        try:
            with self._app.connection_for_write() as connection:
                # Redis deletes empty queues, so queues that letters came from, or that the app declares, are
                # assumed to exist.
                is_new = queue == self._elsewhere and queue not in self._app.amqp.queues
                if connection.transport.driver_type == "amqp" or is_new:
                    reach(connection, within_s=5)
                    return _ask(connection, queue)
        except Exception as error:  # noqa: BLE001 - sending will fail with it, and explain it
            logger.warning("the broker could not be asked about queue %s: %r", queue, error)
        return True


def _ask(connection: Any, queue: str) -> bool:
    try:
        with connection.channel() as channel:
            if is_on_sqs(channel):
                return depth_of(channel, queue) is not None
            channel.queue_declare(queue, passive=True)
    except connection.channel_errors as error:
        # For any other refusal (say, the queue is exclusive to another connection), the queue exists.
        return str(getattr(error, "reply_code", "")) != "404"
    return True


class Depths:
    """How many more messages queues may get.

    :param most: messages that a queue may hold at most; None for any number.
    """

    def __init__(self, connection: Any, most: int | None) -> None:
        self._connection, self._most = connection, most
        self._full: set[str] = set()

    @property
    def are_limited(self) -> bool:
        """Whether there is a limit."""
        return self._most is not None

    def part(self, letters: Sequence[DeadLetter]) -> tuple[list[DeadLetter], list[DeadLetter]]:
        """The letters for which their queues have room, and the remaining ones.

        :raises RedriveError: the broker does not answer.
        """
        if self._most is None:
            return list(letters), []
        room = {queue: self._room(queue) for queue in {letter.queue for letter in letters}}
        fit: list[DeadLetter] = []
        rest: list[DeadLetter] = []
        for letter in letters:
            room[letter.queue] -= 1
            (fit if room[letter.queue] >= 0 else rest).append(letter)
        self._full |= {letter.queue for letter in rest}
        return fit, rest

    def full(self) -> list[str]:
        """Queues that had no room and still have none.

        :raises RedriveError: the broker does not answer.
        """
        self._full = {queue for queue in self._full if self._room(queue) <= 0}
        return sorted(self._full)

    def _room(self, queue: str) -> float:
        with _asking(self._connection, f"how many messages {queue} holds") as channel:
            depth = messages_in(channel, queue, self._connection.channel_errors)
        return math.inf if depth is None or self._most is None else self._most - depth


@contextlib.contextmanager
def _asking(connection: Any, what: str) -> Iterator[Any]:
    """A channel for one question, because asking about a queue that does not exist closes the channel.

    :raises RedriveError: the broker does not answer.
    """
    try:
        with connection.channel() as channel:
            yield channel
    except broker_errors(connection) as error:
        raise RedriveError(
            f"The broker does not say {what} ({type(error).__name__}: {error}). Run: celery dlq doctor"
        ) from error


def messages_in(
    channel: Any, queue: str, channel_errors: tuple[type[Exception], ...]
) -> int | None:
    """How many messages wait in ``queue``, without those that consumers hold; 0 if there is no such queue,
    None if the transport cannot count. On RabbitMQ, a question about a queue that does not exist closes the
    channel.

    :param channel_errors: those of the channel's connection.
    """
    if not queue or not _counts(channel):
        return None
    depth = _depth_in(channel, queue, channel_errors)
    return depth.waiting if depth else 0


def _depth_in(
    channel: Any, queue: str, channel_errors: tuple[type[Exception], ...]
) -> Depth | None:
    """The messages in ``queue``; None if there is no such queue. Only SQS counts those that workers hold."""
    if is_on_sqs(channel):
        return depth_of(channel, queue)
    try:
        return Depth(int(channel.queue_declare(queue, passive=True).message_count), 0)
    except channel_errors:
        return None


def _counts(channel: Any) -> bool:
    """Whether the transport can say how many messages a queue holds."""
    return (
        not isinstance(channel, VirtualChannel) or type(channel)._size is not VirtualChannel._size
    )


@contextlib.contextmanager
def open_depths(app: Any, most: int | None) -> Iterator[Depths]:
    """Depths of the queues on the broker of ``app``."""
    with app.connection_for_write() as connection:
        yield Depths(connection, most)


@dataclass(frozen=True)
class Look:
    """What a look at a queue has shown."""

    #: The redrives whose messages are there.
    held: frozenset[Redrive] = frozenset()
    #: Whether the messages that workers hold unacknowledged were seen, too.
    sees_workers: bool = False


class InRedis(Enum):
    """Where a message is in Redis."""

    #: In the list of its queue.
    QUEUED = "queued"
    #: Received by a worker, and not acknowledged.
    TAKEN = "taken"
    #: Neither of these.
    ABSENT = "absent"


class Presence:
    """Looks for messages on a connection to the broker."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def look(self, queue: str) -> Look | None:
        """The messages of redrives that are in ``queue``, or that workers hold. None if that is unknown,
        because the queue is not known or holds too much, or because the broker only counts messages and there
        are some.

        :raises RedriveError: the broker does not answer.
        """
        if not queue:
            return None
        with _asking(self._connection, f"which messages {queue} holds") as channel:
            if self._connection.transport.driver_type == "redis":
                return _look_in_redis(channel, queue)
            depth = _depth_in(channel, queue, self._connection.channel_errors)
            if depth is None:  # another broker than SQS may be unable to say
                return Look() if is_on_sqs(channel) else None
            return None if any(depth) else Look()

    def find(self, queue: str, task_id: str) -> InRedis | None:
        """Where the message of ``task_id`` is in ``queue``. None if that is unknown: the broker cannot be
        asked for a message, or the queue holds too much.

        :raises RedriveError: the broker does not answer.
        """
        if self._connection.transport.driver_type != "redis":
            return None
        with _asking(self._connection, f"which messages {queue} holds") as channel:
            found = _items_in_redis(channel, queue)
        if found is None:
            return None
        waiting, taken = found
        if any(_is_of(item, task_id) for item in waiting):
            return InRedis.QUEUED
        is_taken = any(_is_of(item, task_id, with_worker=True) for item in taken)
        return InRedis.TAKEN if is_taken else InRedis.ABSENT


@contextlib.contextmanager
def open_presence(app: Any) -> Iterator[Presence]:
    """The messages on the broker of ``app``."""
    with app.connection_for_write() as connection:
        yield Presence(connection)


def _look_in_redis(channel: Any, queue: str) -> Look | None:
    items = _items_in_redis(channel, queue)
    if items is None:
        return None
    listed, with_workers = items
    waiting = map(_redrive_in, listed)
    taken = (_redrive_in(item, with_worker=True) for item in with_workers)
    return Look(frozenset(filter(None, (*waiting, *taken))), sees_workers=True)


def _items_in_redis(channel: Any, queue: str) -> tuple[Sequence[bytes], Sequence[bytes]] | None:
    """The messages that wait in ``queue``, and those that workers hold; None if that is too much to read."""
    # Redis' client is installed only in this case.
    from redis import Redis

    # kombu's own client adds the global prefix, but only to the commands it uses itself.
    prefix, client = getattr(channel, "global_keyprefix", ""), Redis(connection_pool=channel.pool)
    lists = [prefix + channel._q_for_pri(queue, step) for step in channel.priority_steps]
    unacked = prefix + channel.unacked_key
    if _size(client, [*lists, unacked]) > LOOK_BYTES:
        return None
    # In one step, because a message may pass from a list to a worker, or back, between two.
    with client.pipeline(transaction=True) as pipe:
        for key in lists:
            pipe.lrange(key, 0, -1)
        pipe.hvals(unacked)
        *listed, with_workers = pipe.execute()
    return [item for items in listed for item in items], with_workers


def _size(client: Redis, keys: Iterable[str]) -> int:
    """Bytes of the values of ``keys``, as Redis estimates them."""
    with client.pipeline(transaction=False) as pipe:
        for key in keys:
            pipe.memory_usage(key)
        return sum(size or 0 for size in pipe.execute())


def _redrive_in(item: bytes, *, with_worker: bool = False) -> Redrive | None:
    """The redrive whose message is in an item of Redis; None if it is any other message."""
    if REDRIVE_HEADER.encode() not in item:
        return None
    headers = _headers_in(item, with_worker)
    number, task_id = redrive_of(headers), letter_of(headers) or headers.get("id")
    return (str(task_id), number) if number and task_id else None


def _is_of(item: bytes, task_id: str, *, with_worker: bool = False) -> bool:
    """Whether an item of Redis is the message of ``task_id``."""
    if json.dumps(task_id)[1:-1].encode() not in item:
        return False
    headers = _headers_in(item, with_worker)
    return task_id in (headers.get("id"), letter_of(headers))


def _headers_in(item: bytes, with_worker: bool) -> dict[str, Any]:
    try:
        found = read_json(item)
        return dict((found[0] if with_worker else found)["headers"])
    except Exception:  # noqa: BLE001 - any program can write to the list
        return {}
