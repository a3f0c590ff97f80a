"""A stalled worker: messages wait for it, it could take them, and it receives none."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Stall:
    """A stall, as the stalled worker has seen it."""

    #: The name of the worker, such as ``celery@host``.
    worker: str
    #: When it first saw messages that it did not receive; it has received none after that.
    since: datetime
    #: When it was sure.
    noticed_at: datetime
    #: The queues in which messages wait, in alphabetical order, and the number of messages in all of them.
    queues: tuple[str, ...]
    messages: int
    #: Whether the worker ends itself (``dlq_on_stall``).
    ends_worker: bool = False

    @property
    def seconds(self) -> float:
        """How long it had received nothing when it was sure."""
        return (self.noticed_at - self.since).total_seconds()

    def to_dict(self) -> dict[str, Any]:
        """For ``celery inspect stats``: JSON-able, the times in ISO 8601."""
        return {
            "since": self.since.isoformat(),
            "noticed_at": self.noticed_at.isoformat(),
            "queues": list(self.queues),
            "messages": self.messages,
        }
