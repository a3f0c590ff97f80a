"""What hooks are told."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, TypeAlias

from celery_dlq.group import Group
from celery_dlq.letter import DeadLetter
from celery_dlq.store.base import Operation

#: What an event is about.
Told: TypeAlias = DeadLetter | Group | Operation


class EventKind(str, Enum):
    """What has happened. ``dlq_on_…`` is the setting of each."""

    #: A message became a dead letter, or one again. With the letter.
    DEAD_LETTER = "dead_letter"
    #: The first letter of a group came. With the group.
    NEW_GROUP = "new_group"
    #: A letter came of a group that was resolved, or ignored until now. With the group.
    REGRESSION = "regression"
    #: An operation was ended by its guard. With the operation.
    OPERATION_ABORTED = "operation_aborted"
    #: The broker has a letter's message again. With the letter as it is in the store by then.
    REDRIVEN = "redriven"
    #: A letter's message succeeded. With the letter as it is in the store by then.
    RESOLVED = "resolved"

    @property
    def setting(self) -> str:
        """The setting's name, without its prefix."""
        return f"on_{self.value}"


@dataclass(frozen=True, kw_only=True)
class Event:
    """One thing that happened."""

    kind: EventKind
    #: When it was written to the store; in the moment of the failure that may have been a while ago.
    at: datetime
    value: Told

    @property
    def id(self) -> str:
        """The same each time that it is told: 32 hexadecimal digits."""
        parts = (self.kind.value, *map(str, _identity(self.value)))
        return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:32]


class EventHook(ABC):
    """A hook that is told the whole event, and so may serve for any kind. Plain callables are given its
    value alone."""

    @abstractmethod
    def __call__(self, event: Event) -> object:
        """Tell somebody. Runs in a thread of its own, and may take its time and raise."""


#: What may be set or registered.
Hook: TypeAlias = EventHook | Callable[[Any], object]


def _identity(value: Told) -> tuple[object, ...]:
    if isinstance(value, DeadLetter):
        return value.task_id, value.redrive_count, value.last_failed_at, value.closed_at
    if isinstance(value, Group):
        return value.fingerprint, value.task, value.exception_type, value.last_seen_at
    return (value.id,)
