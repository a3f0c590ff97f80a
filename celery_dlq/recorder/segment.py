"""One memory-mapped file of a living process."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from weakref import WeakSet

from celery_dlq.private_files import private_opener
from celery_dlq.recorder import layout

SUFFIX = ".rec"


class Entry:
    """An accepted message in a file."""

    __slots__ = ("_segment", "_start", "has_ended")

    def __init__(self, segment: Segment, start: int) -> None:
        self._segment, self._start = segment, start
        self.has_ended = False

    def mark(self, mark: layout.Mark) -> None:
        """Note a fact about the message. After :meth:`end` it does nothing, because another entry may
        have taken the place."""
        if not self.has_ended:
            self._segment.mark(self._start, mark)

    def end(self) -> None:
        """Note that the run of the message has ended, and its outcome is recorded elsewhere. After that it
        does nothing, because another entry may have taken the place."""
        if self.has_ended:
            return
        self.has_ended = True
        self._segment.end(self._start)


class Segment:
    """A new file at ``path`` with room for ``size`` bytes.

    :raises OSError: it cannot be made, or the disk is full.
    """

    def __init__(self, path: Path, size: int) -> None:
        self.path, self.size = path, size
        self._next = layout.FIRST
        #: Where the entries begin that have not ended.
        self.live: set[int] = set()
        with open(path, "x+b", opener=private_opener) as file:
            try:
                # A page that the disk has no room for would end the process when it is written to.
                os.posix_fallocate(file.fileno(), 0, size)
                self._map = mmap.mmap(file.fileno(), size)
            except BaseException:
                path.unlink(missing_ok=True)
                raise
        layout.write_header(self._map)
        _mapped.add(self)

    def put(self, facts: bytes, body: bytes) -> Entry | None:
        """Add an entry; returns None if there is no room."""
        start = self._next
        following = layout.write_entry(self._map, start, facts, body)
        if following is None:
            return None
        self._next = following
        self.live.add(start)
        return Entry(self, start)

    def mark(self, start: int, mark: layout.Mark) -> None:
        """See :meth:`Entry.mark`."""
        layout.mark_entry(self._map, start, mark)

    def end(self, start: int) -> None:
        """See :meth:`Entry.end`. Also called from signal handlers, so it takes no lock."""
        layout.wipe_entry(self._map, start)
        self.live.discard(start)

    def reuse(self) -> None:
        """Remove all entries, which have ended."""
        layout.clear(self._map)
        self._next = layout.FIRST

    def sync(self) -> None:
        """Bring what was written to the disk.

        :raises OSError: the disk failed.
        """
        self._map.flush()

    def remove(self) -> None:
        """Delete the file, whose entries have ended.

        :raises OSError: it cannot be deleted.
        """
        self.path.unlink(missing_ok=True)
        # The map has a file descriptor of its own, and requests that have ended refer to it.
        self._map.close()


_mapped: WeakSet[Segment] = WeakSet()


def _in_child() -> None:
    """Forget the files in a process of the pool: the disk has no room for others while any process has a
    deleted file mapped."""
    for segment in list(_mapped):
        segment._map.close()


os.register_at_fork(after_in_child=_in_child)
