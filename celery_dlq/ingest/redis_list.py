"""Reads a Redis list in place: an item stays in it until its letter is stored.

kombu would pop each message. An item that is not JSON would be lost at once, and a message that was taken
when the process was killed would come back only after the visibility timeout, and to the queue where its
task runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kombu.utils.json import loads
from redis import Redis

from celery_dlq.ingest.taken import BATCH_BYTES, Taken, as_delivered, size_of
from celery_dlq.worker.celery_quirks.redis_items import as_message, is_readable

#: Items read in one step: few, because their sizes are unknown.
_STEP = 10


@dataclass(frozen=True)
class _Place:
    key: str
    item: bytes = field(repr=False)


class RedisList:
    """The list, and the lists that kombu keeps for the other priorities."""

    def __init__(self, app: Any, channel: Any, queue: str) -> None:
        self._app, self._channel, self._queue = app, channel, queue
        # kombu's own client adds the global prefix, but only to the commands it uses itself.
        self._client = Redis(connection_pool=channel.pool)
        prefix = getattr(channel, "global_keyprefix", "")
        keys = [prefix + channel._q_for_pri(queue, step) for step in channel.priority_steps]
        #: How many items at the old end of each list were taken and not removed.
        self._passed = dict.fromkeys(keys, 0)

    def count(self) -> int:
        return sum(int(self._client.llen(key)) for key in self._passed)

    def take(self, limit: int) -> Sequence[Taken]:
        taken: list[Taken] = []
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

    def _taken(self, key: str, item: bytes) -> Taken:
        readable = is_readable(item)
        payload = loads(item) if readable else as_message(item, self._queue)
        message = self._channel.Message(payload, channel=self._channel)
        # An item that is not a message of kombu has no tag.
        tag = str(message.delivery_tag) if readable else ""
        return Taken(envelope=as_delivered(message, self._app), tag=tag, handle=_Place(key, item))

    def remove(self, taken: Sequence[Taken]) -> None:
        with self._client.pipeline(transaction=False) as pipe:
            for item in taken:
                # By value and from the old end, because another reader may already have removed it.
                pipe.lrem(item.handle.key, -1, item.handle.item)
            pipe.execute()
        for item in taken:
            self._passed[item.handle.key] -= 1
