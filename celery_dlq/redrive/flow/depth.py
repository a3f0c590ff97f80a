"""Back-pressure: a queue that holds enough messages gets no more, if the broker can count them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from kombu.transport.virtual import Channel as VirtualChannel

from celery_dlq.errors import RedriveError
from celery_dlq.model.letter import DeadLetter


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
        """Split ``letters`` into those that their queues have room for, and the others.

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
        depth = self._depth(queue)
        return float("inf") if depth is None or self._most is None else self._most - depth

    def _depth(self, queue: str) -> int | None:
        try:
            return self._ask(queue)
        except self._connection.connection_errors as error:
            raise RedriveError(
                f"The broker does not say how many messages {queue} holds ({type(error).__name__}: {error})."
            ) from error

    def _ask(self, queue: str) -> int | None:
        with self._connection.channel() as channel:
            return messages_in(channel, queue, self._connection.channel_errors)


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
    try:
        return int(channel.queue_declare(queue, passive=True).message_count)
    except channel_errors:
        return 0


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
