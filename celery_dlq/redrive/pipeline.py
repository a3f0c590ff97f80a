"""Redis: the messages of a batch in one write, each put together from parts that are encoded already."""

from __future__ import annotations

import itertools
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from kombu.utils.json import dumps

from celery_dlq.letter import DeadLetter
from celery_dlq.redrive.message import prepared
from celery_dlq.redrive.sent import Sent, reason
from celery_dlq.redrive.spliced import spliced


class Pipelined:
    """Publishes what kombu's ``Producer.batch`` does, in a small part of its time: one command a list, which
    takes its messages all together. A transport that may repeat a write by itself is not for this.

    :param producer: of a channel of kombu's Redis transport.
    """

    def __init__(self, producer: Any) -> None:
        self._producer, self._channel = producer, producer.channel
        _, self._delivery_mode = producer._delivery_details("")
        self._keys: dict[tuple[str, int], str] = {}

    def send(self, letters: Sequence[DeadLetter]) -> Sent:
        """Publish the original messages of letters whose queue is known; never raises."""
        sent = Sent()
        lists = defaultdict[str, list[str]](list)
        for letter in letters:
            self._add(lists, letter, sent)
        try:
            with self._channel.conn_or_acquire() as client, client.pipeline(False) as pipe:
                for key, texts in lists.items():
                    pipe.lpush(key, *texts)
                sent.unsent, sent.uncertain = [], sent.unsent
                pipe.execute()
        except Exception as error:  # noqa: BLE001 - a connection can fail in any way
            sent.error = reason(error)
            return sent
        sent.confirmed, sent.uncertain = sent.uncertain, []
        return sent

    def _add(self, lists: dict[str, list[str]], letter: DeadLetter, sent: Sent) -> None:
        try:
            key, text = self._command(letter)
        except Exception as error:  # noqa: BLE001 - headers may be anything
            sent.refuse(letter.task_id, error)
        else:
            lists[key].append(text)
            sent.unsent.append(letter.task_id)

    def _command(self, letter: DeadLetter) -> tuple[str, str]:
        """The list that the message belongs on, and the message."""
        made = spliced(letter, self._delivery_mode, self._channel._next_delivery_tag)
        if made is not None:
            return self._key(letter.envelope.queue, made.priority), made.text
        message, exchange, queue = prepared(self._producer, letter)
        self._channel._inplace_augment_message(message, exchange, queue)
        priority = self._channel._get_message_priority(message, reverse=False)
        return self._key(queue, priority), str(dumps(message))

    def _key(self, queue: str, priority: int) -> str:
        place = queue, priority
        key = self._keys.get(place)
        if key is None:
            key = self._keys[place] = self._channel._q_for_pri(*place)
        return key


def numbered(name: str | None = None) -> Callable[[], str]:
    """Gives names that nobody else gives."""
    name, numbers = name or uuid.uuid4().hex, itertools.count(1)
    return lambda: f"{name}-{next(numbers)}"


def fits(channel: Any) -> bool:
    """Whether ``channel`` is one that this can write to: kombu's own, on Redis, which says that nothing
    repeats a write behind it, and has no queue that ends by itself."""
    is_redis = type(channel).__module__ == "kombu.transport.redis"
    return is_redis and not getattr(channel, "_expires", None) and channel.body_encoding == "base64"
