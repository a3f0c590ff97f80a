"""Which messages of redrives the broker still holds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from celery_dlq.errors import RedriveError
from celery_dlq.model.headers import REDRIVE_HEADER, letter_of, redrive_of
from celery_dlq.redrive.fast_json import read_json

if TYPE_CHECKING:
    from redis import Redis

#: The most bytes of messages that are read to look for some. More than that are left alone.
LOOK_BYTES = 16 << 20

#: A redrive of a letter: task id and number.
Redrive = tuple[str, int]


@dataclass(frozen=True)
class Look:
    """What a look at a queue has shown."""

    #: The redrives whose messages are there.
    held: frozenset[Redrive] = frozenset()
    #: Whether the messages that workers hold unacknowledged were seen, too.
    sees_workers: bool = False


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
        transport = self._connection.transport
        try:
            # Asking about a queue that does not exist closes the channel.
            with self._connection.channel() as channel:
                if transport.driver_type == "redis":
                    return _look_in_redis(channel, queue)
                return self._look_at_count(channel, queue)
        except (*self._connection.connection_errors, *self._connection.channel_errors) as error:
            raise RedriveError(
                f"The broker does not say which messages {queue} holds ({type(error).__name__}: {error}). "
                "Run: celery -A <app> dlq doctor"
            ) from error

    def _look_at_count(self, channel: Any, queue: str) -> Look | None:
        try:
            count = channel.queue_declare(queue, passive=True).message_count
        except self._connection.channel_errors:
            return None
        return None if count else Look()


@contextlib.contextmanager
def open_presence(app: Any) -> Iterator[Presence]:
    """The messages on the broker of ``app``."""
    with app.connection_for_write() as connection:
        yield Presence(connection)


def _look_in_redis(channel: Any, queue: str) -> Look | None:
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
    waiting = (_redrive_in(item) for items in listed for item in items)
    taken = (_redrive_in(item, with_worker=True) for item in with_workers)
    return Look(frozenset(filter(None, (*waiting, *taken))), sees_workers=True)


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
    try:
        found = read_json(item)
        headers = (found[0] if with_worker else found)["headers"]
        number = redrive_of(headers)
        task_id = letter_of(headers) or headers.get("id")
    except Exception:  # noqa: BLE001 - any program can write to the list
        return None
    return (str(task_id), number) if number and task_id else None
