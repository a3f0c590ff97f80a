"""Messages that a worker has received from Redis or Amazon SQS and not acknowledged come back too late,
or too early: both keep them until a visibility timeout is over, whether the worker lives or not.

Here a worker notes these messages where its death can be read, and renews their time while it lives. If it is
killed, another worker on the machine gives them back at once.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any, ClassVar

from celery_dlq.recorder.tags import Noted, Tags


class Whereabouts(IntEnum):
    """Where a message of a killed worker is. A script on Redis answers with these numbers."""

    #: The broker has forgotten it: it was acknowledged.
    ACKNOWLEDGED = 0
    #: In its queue, because this worker, or an earlier one, gave it back.
    GIVEN_BACK = 1
    #: Another worker has it, or the visibility timeout decides about it.
    ELSEWHERE = 2


class Unacknowledged(ABC):
    """The messages that a channel has received and not acknowledged.

    :param channel: one of kombu's.
    :param tags: notes them; None if they cannot be noted.
    :param acknowledged: called with a noted message's tag when the broker has forgotten the message.
    :param now: seconds since 1970.
    """

    #: Bytes of the longest note.
    longest: ClassVar[int]
    #: Whether a message may be given back again if it is not known whether it was.
    is_repeatable: ClassVar[bool] = True

    def __init__(
        self,
        channel: Any,
        tags: Tags | None,
        acknowledged: Callable[[str], object] = lambda _tag: None,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.channel: Any = channel
        self.qos: Any = channel.qos
        self.tags = tags
        self.now = now
        self.acknowledged = acknowledged
        if tags is not None:
            self.note(tags)

    @property
    def renews_every_s(self) -> float:
        """Seconds from one renewal to the next."""
        return float(self.channel.visibility_timeout) / 4

    def unacknowledged(self) -> list[tuple[str, Any]]:
        """The messages, by their tags."""
        # In one step, because other threads add to it.
        return list(self.qos._delivered.items())

    @staticmethod
    @abstractmethod
    def is_on(channel: Any) -> bool:
        """Whether ``channel`` is of this kind."""

    @staticmethod
    @abstractmethod
    def broker_of(channel: Any) -> str:
        """A name of the place where ``channel`` keeps such messages, for names of files."""

    @abstractmethod
    def note(self, tags: Tags) -> None:
        """Note each message from before it may be lost until it is not with this worker any more."""

    def acking(self, ack: Callable[[str], object], tags: Tags) -> Callable[[str], None]:
        """``ack``, the channel's, which also ends the note."""

        def ack_noted(delivery_tag: str) -> None:
            ack(delivery_tag)
            # In this order: without both, nothing would tell that the broker has forgotten it.
            self.acknowledged(delivery_tag)
            tags.discard(delivery_tag)

        return ack_noted

    @abstractmethod
    def renew(self) -> None:
        """Let the visibility timeout of all messages begin again. Called in a thread of its own."""

    @staticmethod
    @abstractmethod
    def give_back(channel: Any, noted: Iterable[Noted], process: str) -> Mapping[str, Whereabouts]:
        """Give messages of a killed worker back to their queues; returns where each one is now, by its
        delivery tag. Messages that another worker has stay there. Repeating it does no harm.

        :param process: a name of the killed worker's process, which no other has.
        """
