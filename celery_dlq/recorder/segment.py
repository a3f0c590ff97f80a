"""One memory-mapped file of a living process, and the form in which a message is an entry in it."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from weakref import WeakSet

from celery_dlq.base.codec import decode_table, encode_table, quick_json
from celery_dlq.base.process import private_opener
from celery_dlq.recorder import layout
from celery_dlq.recorder.layout import Mark

SUFFIX = ".rec"

#: The fields that name a message and its run.
_FIELDS = ("id", "task", "retries", "root_id", "parent_id", "group")


class Entry:
    """An accepted message in a file."""

    __slots__ = ("_following", "_segment", "_start", "has_ended")

    def __init__(self, segment: Segment, start: int, following: int) -> None:
        self._segment, self._start, self._following = segment, start, following
        self.has_ended: bool = False

    def mark(self, mark: Mark) -> None:
        """Note a fact about the message. After :meth:`end` it does nothing, because another entry may
        have taken the place."""
        if not self.has_ended:
            layout.mark_entry(self._segment.map, self._start, mark)

    def end(self) -> None:
        """Note that the run of the message has ended, and its outcome is recorded elsewhere. After that it
        does nothing, because another entry may have taken the place. Also called from signal handlers, so it
        takes no lock."""
        if self.has_ended:
            return
        self.has_ended = True
        layout.wipe_entry(self._segment.map, self._start, self._following)
        self._segment.live.discard(self._start)


class Segment:
    """A new file at ``path`` with room for ``size`` bytes.

    :raises OSError: it cannot be made, or the disk is full.
    """

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self.size = size
        self._next = layout.FIRST
        #: The positions of the entries that have not ended.
        self.live: set[int] = set()
        with open(path, "x+b", opener=private_opener) as file:
            try:
                # A page that the disk has no room for would end the process when it is written to.
                os.posix_fallocate(file.fileno(), 0, size)
                self.map: mmap.mmap = mmap.mmap(file.fileno(), size)
            except BaseException:
                path.unlink(missing_ok=True)
                raise
        layout.write_header(self.map)
        _mapped.add(self)

    def put(self, facts: bytes, body: bytes) -> Entry | None:
        """Add an entry; returns None if there is no room."""
        start = self._next
        following = layout.write_entry(self.map, start, facts, body)
        if following is None:
            return None
        self._next = following
        self.live.add(start)
        return Entry(self, start, following)

    def reuse(self) -> None:
        """Remove all entries, which have ended."""
        layout.clear(self.map)
        self._next = layout.FIRST

    def remove(self) -> None:
        """Delete the file, whose entries have ended.

        :raises OSError: it cannot be deleted.
        """
        self.path.unlink(missing_ok=True)
        # The map has a file descriptor of its own, and requests that have ended refer to it.
        self.map.close()


_mapped: WeakSet[Segment] = WeakSet()


def _in_child() -> None:
    """Forget the files in a process of the pool: the disk has no room for others while any process has a
    deleted file mapped."""
    for segment in list(_mapped):
        segment.map.close()


os.register_at_fork(after_in_child=_in_child)


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """A message that a worker had accepted and not ended. It has the attributes of kombu's messages that
    make the envelope of a letter."""

    task: str
    accepted_at: datetime
    #: The worker, and the process or thread of its pool that got the message.
    worker: str
    pid: int | None
    #: The identity of the worker's parent process: see :func:`celery_dlq.base.process.identity`.
    process: str
    #: Whether the broker has certainly forgotten it. If not, the broker may deliver it again.
    is_acknowledged: bool
    #: Whether its body has returned, which the store may not know.
    has_succeeded: bool
    headers: Mapping[str, Any]
    #: Stands for Celery's headers, if the message's own headers do not name its task.
    fields: Mapping[str, Any]
    properties: Mapping[str, Any]
    delivery_info: Mapping[str, Any]
    content_type: str
    content_encoding: str
    body: bytes
    #: Errors of kombu when it undid the compression.
    errors: tuple[str, ...]


def facts_of(
    message: Any, task: str, pid: int | None, now: float, fields: Mapping[str, Any] | None = None
) -> bytes:
    """Everything about a kombu message except its body."""
    facts = {
        "task": task,
        "at": now,
        "pid": pid,
        "headers": message.headers,
        "properties": message.properties,
        "delivery": message.delivery_info,
        "type": message.content_type,
        "encoding": message.content_encoding,
    }
    if fields is not None:
        facts["fields"] = {name: fields.get(name) for name in _FIELDS}
    if message.errors:
        facts["errors"] = [str(error) for error in message.errors]
    text = quick_json(facts)
    return encode_table(facts).encode("ascii") if text is None else text


def accepted_from(facts: bytes, body: bytes, *, worker: str, process: str, marks: Mark) -> Accepted:
    """The inverse of :func:`facts_of`.

    :raises ValueError: the facts are not of this form.
    """
    try:
        table = decode_table(facts.decode("utf-8"))
        return Accepted(
            task=str(table["task"]),
            accepted_at=datetime.fromtimestamp(float(table["at"]), timezone.utc),
            worker=worker,
            process=process,
            pid=table["pid"],
            is_acknowledged=Mark.ACKNOWLEDGED in marks,
            has_succeeded=Mark.SUCCEEDED in marks,
            headers=dict(table["headers"] or {}),
            fields=dict(table.get("fields", ())),
            properties=dict(table["properties"] or {}),
            delivery_info=dict(table["delivery"] or {}),
            content_type=str(table["type"] or ""),
            content_encoding=str(table["encoding"] or ""),
            body=body,
            errors=tuple(table.get("errors", ())),
        )
    except (KeyError, TypeError, OverflowError, OSError) as error:
        raise ValueError(f"not the facts of a message: {error!r}") from error
