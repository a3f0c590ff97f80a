"""The tags of the messages that a process has received and not acknowledged.

The broker keeps such a message until the visibility timeout is over. If the process is killed, another one
gives its messages back by these tags, without waiting. A tag has a slot of fixed size in a memory-mapped
file, so that noting it takes about a microsecond. The name of the file says which broker has the messages,
and the size of the slots.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakSet

from celery_dlq.base.process import mapped

logger: logging.Logger = logging.getLogger(__name__)

SUFFIX = ".tags"

#: Takes the place of the tag of a message for which the process has asked, and which may be on its way; when
#: it asked follows in the note.
ASKED = "?"

#: Bytes of a file, unless one slot is larger.
_SIZE = 65_536

_NOT_NOTED = "if this worker is killed, they come back only after the visibility timeout"


def _slot(longest: int) -> struct.Struct:
    """Whether a slot holds a tag, the length of the tag, when it was noted and last renewed, and the tag."""
    return struct.Struct(f"<BxH4xdd{longest}s")


class Noted(NamedTuple):
    """A message that a process had received and not acknowledged."""

    tag: str
    #: When it was received, and when its visibility timeout was last renewed; seconds since 1970.
    received_at: float
    renewed_at: float


class Tags:
    """Notes tags in files of ``directory``.

    :param broker: a name of the broker, as it is in the names of files.
    :param longest: bytes of the longest tag that is noted.
    :param now: seconds since 1970.
    """

    def __init__(
        self,
        directory: Path,
        broker: str,
        longest: int = 40,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._directory, self._broker, self._now = directory, broker, now
        #: A name of the process, which no other has.
        self.process: str = directory.name
        self._longest, self._slot = longest, _slot(longest)
        self._maps: list[mmap.mmap] = []
        self._free: list[tuple[mmap.mmap, int]] = []
        self._places: dict[str, tuple[mmap.mmap, int]] = {}
        self._growing = threading.Lock()
        self._has_warned = False
        _open.add(self)

    def __len__(self) -> int:
        """How many messages are noted that were received."""
        return len(self._places) - (ASKED in self._places)

    def add(self, tag: str, written: str = "") -> None:
        """Note that a message was received. Never raises an error, because the message would be lost; if the
        disk is full, it is not noted.

        :param written: is noted instead of the tag.
        """
        raw, now = (written or tag).encode(), self._now()
        if len(raw) > self._longest or tag in self._places:
            return
        try:
            file, start = self._places[tag] = self._place()
        except OSError as error:
            if not self._has_warned:
                self._has_warned = True
                logger.warning(
                    "the flight recorder cannot note messages: %s; %s", error, _NOT_NOTED
                )
            return
        file[start + 1 : start + self._slot.size] = self._slot.pack(0, len(raw), now, now, raw)[1:]
        # Only now is it noted.
        file[start] = 1

    def discard(self, tag: str) -> None:
        """Note that a message is not with this process any more. Threads of the pool call this, too."""
        place = self._places.pop(tag, None)
        if place is not None:
            file, start = place
            file[start] = 0
            self._free.append(place)

    def renewed(self, tags: Iterable[str], moment: float) -> None:
        """Note when the visibility timeout of messages began again."""
        for tag in tags:
            place = self._places.get(tag)
            if place is not None:
                file, start = place
                struct.pack_into("<d", file, start + 16, moment)

    def remove(self) -> None:
        """Delete the files, if the file system allows it."""
        with contextlib.suppress(OSError):
            for path in self._directory.glob("*" + SUFFIX):
                path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Note nothing any more."""
        self._places, self._free, self._longest = {}, [], 0

    def _place(self) -> tuple[mmap.mmap, int]:
        with self._growing:
            if not self._free:
                self._free.extend(self._new_file())
            return self._free.pop()

    def _new_file(self) -> Iterator[tuple[mmap.mmap, int]]:
        slots = max(1, _SIZE // self._slot.size)
        size = slots * self._slot.size
        path = self._directory / f"{self._broker}.{self._longest}.{len(self._maps)}{SUFFIX}"
        found = mapped(path, size, "w+b")
        self._maps.append(found)
        return ((found, place * self._slot.size) for place in reversed(range(slots)))


def noted_in(directory: Path, broker: str) -> list[Noted]:
    """The messages of ``broker`` that the process of ``directory``, which is gone, had not acknowledged;
    in the order in which they came.

    :raises OSError: no permission.
    """
    found = [
        Noted(raw[:length].decode(errors="replace"), received_at, renewed_at)
        for path in directory.glob(f"{broker}.*{SUFFIX}")
        for used, length, received_at, renewed_at, raw in _slots_of(path)
        if used == 1
    ]
    return sorted(found, key=lambda noted: noted.received_at)


def _slots_of(path: Path) -> Iterator[tuple[Any, ...]]:
    slot, data = _slot(int(path.name.split(".")[1])), path.read_bytes()
    return slot.iter_unpack(data[: len(data) // slot.size * slot.size])


def has_noted(directory: Path) -> bool:
    """Whether the process of ``directory`` had messages that it had not acknowledged."""
    return bool(noted_in(directory, "*"))


def forget_noted(directory: Path, broker: str) -> None:
    """Delete the notes of a process that is gone, about one broker, or about all by ``*``."""
    for path in directory.glob(f"{broker}.*{SUFFIX}"):
        path.unlink(missing_ok=True)


_open: WeakSet[Tags] = WeakSet()


def _in_child() -> None:
    """Do not touch the parent's notes in a process of the pool."""
    for tags in list(_open):
        tags.close()


os.register_at_fork(after_in_child=_in_child)
