"""Places in the list of groups."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from operator import index

from celery_dlq.codec import dump_json
from celery_dlq.errors import FilterError
from celery_dlq.model.group import Group
from celery_dlq.redact import safe_text

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class GroupMark:
    """A place in the order of the list: most open letters first, then the latest, then by name."""

    open_count: int
    last_seen_at: datetime
    fingerprint: str
    task: str
    exception_type: str

    @classmethod
    def of(cls, group: Group) -> GroupMark:
        """The place of ``group``."""
        return cls(
            group.open_count, group.last_seen_at, group.fingerprint, group.task,
            group.exception_type,
        )  # fmt: skip

    @classmethod
    def read(cls, cursor: str) -> GroupMark:
        """The inverse of :attr:`cursor`.

        :raises FilterError: it is not a cursor.
        """
        try:
            count, micros, *names = json.loads(cursor)
            fingerprint, task, exception_type = map(_text, names)
            at = _EPOCH + micros * _MICROSECOND
            # Larger numbers fit into no database.
            count = min(max(0, index(count)), 2**62)
        except (ValueError, TypeError, OverflowError, RecursionError):
            raise FilterError("That is not a cursor of groups; start again without it.") from None
        return cls(count, at, fingerprint, task, exception_type)

    @property
    def cursor(self) -> str:
        """The text with which a caller asks for the next page."""
        micros = (self.last_seen_at - _EPOCH) // _MICROSECOND
        names = self.fingerprint, self.task, self.exception_type
        return dump_json([self.open_count, micros, *names])


def _text(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError
    return safe_text(name)
