"""One memory-mapped file of a living process, and the form in which a message is an entry in it. A file is a
header, then one entry after another.

An entry is a head, the facts about the message as JSON, and the message's body. The state is one byte and is
written last, so a process that is killed at any instruction leaves whole entries. A state of zero ends the
list. Checksums detect what a crash of the machine, or a person, has done to a file.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import Any
from weakref import WeakSet

from celery_dlq.base.codec import decode_table, encode_table, quick_json
from celery_dlq.base.process import mapped
from celery_dlq.base.sealing import Keyring, is_sealed, needed
from celery_dlq.errors import SealBroken

#: Magic bytes and the version of this layout, and their checksum.
_NAMED = b"celery_dlq recorder\n" + (1).to_bytes(4, "little")
_HEADER = _NAMED + zlib.crc32(_NAMED).to_bytes(4, "little")
#: State, marks, checksum of the two lengths, bytes of the facts, bytes of the body, checksum of both.
_HEAD = struct.Struct("<BBHIII")
#: The head without its first byte, which is written last.
_REST = struct.Struct("<BHIII")
_LENGTHS = struct.Struct("<II")

#: Bytes of the facts, in an encrypted entry; and the place to which its contents are bound.
_FACTS, _PLACE = struct.Struct("<I"), "recorder"

#: Where the first entry begins. Entries begin at multiples of 16 bytes.
FIRST = 64
_ALIGNMENT = 16


class EntryState(IntEnum):
    """How far a message has come. The values differ in many bits, so that damage to one bit is noticed."""

    #: The list of entries ends here.
    NONE = 0
    #: It has not ended.
    ACCEPTED = 0x55
    #: Its run has ended, and its outcome is recorded elsewhere.
    ENDED = 0xAA


# Each message writes them, and a member of an enum is slow to read.
_NONE, _ACCEPTED, _ENDED = map(int, EntryState)


class Mark(IntFlag):
    """Facts about an entry that has not ended."""

    #: The broker has certainly forgotten the message.
    ACKNOWLEDGED = 1
    #: The body has returned, and the store does not know that yet.
    SUCCEEDED = 2


@dataclass(frozen=True)
class ListedEntry:
    """An entry that had not ended."""

    start: int
    marks: Mark
    facts: bytes
    body: bytes

    @property
    def is_acknowledged(self) -> bool:
        """Whether the broker has certainly forgotten the message."""
        return Mark.ACKNOWLEDGED in self.marks


@dataclass(frozen=True)
class Contents:
    """The entries of a file that had not ended."""

    entries: tuple[ListedEntry, ...]
    #: Whether something in the file is not an entry.
    is_damaged: bool


def size_for(facts: bytes, body: bytes) -> int:
    """Bytes of the smallest file that holds this entry."""
    return _after(FIRST, len(facts) + len(body)) + _HEAD.size


def write_header(file: mmap.mmap) -> None:
    """Make ``file`` an empty file of this layout."""
    clear(file)
    file[: len(_HEADER)] = _HEADER


def clear(file: mmap.mmap) -> None:
    """Remove all entries."""
    file[FIRST] = EntryState.NONE


def write_entry(file: mmap.mmap, start: int, facts: bytes, body: bytes) -> int | None:
    """Write an entry at ``start``. Returns the start of the next one, or None if the entry does not fit."""
    size = len(facts) + len(body)
    following = _after(start, size)
    if following + _HEAD.size > len(file):
        return None
    file[following] = _NONE
    check, checksum = _check(len(facts), len(body)), zlib.crc32(body, zlib.crc32(facts))
    rest = _REST.pack(0, check, len(facts), len(body), checksum)
    # In one piece, because each write to the file is a call.
    file[start + 1 : start + _HEAD.size + size] = b"".join((rest, facts, body))
    # Only now is it an entry.
    file[start] = _ACCEPTED
    return following


def mark_entry(file: mmap.mmap, start: int, mark: Mark) -> None:
    """Add ``mark`` to the entry at ``start``. The state stays as it is, because another thread may end the
    entry at the same time."""
    file[start + 1] |= int(mark)  # a flag's own operator is slow


def wipe_entry(file: mmap.mmap, start: int, following: int) -> None:
    """Mark the entry at ``start`` as ended, and remove its message, which is not needed any more.

    :param following: where the next entry begins, as :func:`write_entry` returned it.
    """
    file[start] = _ENDED
    begin = start + _HEAD.size
    file[begin:following] = bytes(following - begin)


def read(data: bytes) -> Contents:
    """The entries of a file that had not ended. If the file is damaged, those that are whole."""
    if not data.strip(b"\0"):  # its process was killed while it made the file
        return Contents((), is_damaged=False)
    has_header = data.startswith(_HEADER) and len(data) >= FIRST
    found = list(_entries(data) if has_header else _whole_entries(data, FIRST))
    entries = tuple(item for item in found if item is not None)
    return Contents(entries, is_damaged=not has_header or len(entries) < len(found))


def _entries(data: bytes) -> Iterator[ListedEntry | None]:
    """The entries that had not ended; None for each damage."""
    start = FIRST
    while start + _HEAD.size <= len(data):
        if data[start] == EntryState.NONE:
            return
        following = _following(data, start)
        if following is None:
            break
        if data[start] != EntryState.ENDED:
            yield _whole_entry(data, start)
        start = following
    yield None  # every list has an end
    yield from _whole_entries(data, start)


def _whole_entries(data: bytes, start: int) -> Iterator[ListedEntry]:
    """The entries at or after ``start`` that had not ended, if it is unknown where one begins."""
    while start + _HEAD.size <= len(data):
        following = _following(data, start)
        entry = None if following is None else _whole_entry(data, start)
        if entry is not None and following is not None:
            yield entry
            start = following
        else:
            start += _ALIGNMENT


def _following(data: bytes, start: int) -> int | None:
    """The position of the entry after the one at ``start``; None if no entry begins at ``start``."""
    if data[start] not in (EntryState.ACCEPTED, EntryState.ENDED):
        return None
    _state, _marks, check, facts, body, _checksum = _HEAD.unpack_from(data, start)
    is_whole = check == _check(facts, body) and start + _HEAD.size + facts + body <= len(data)
    return _after(start, facts + body) if is_whole else None


def _whole_entry(data: bytes, start: int) -> ListedEntry | None:
    state, marks, _check, facts, body, checksum = _HEAD.unpack_from(data, start)
    begin = start + _HEAD.size
    middle, end = begin + facts, begin + facts + body
    if state != EntryState.ACCEPTED or zlib.crc32(data[begin:end]) != checksum:
        return None
    return ListedEntry(start, Mark(marks), data[begin:middle], data[middle:end])


def _check(facts: int, body: int) -> int:
    return zlib.crc32(_LENGTHS.pack(facts, body)) & 0xFFFF


def _after(start: int, size: int) -> int:
    end = start + _HEAD.size + size
    return -(-end // _ALIGNMENT) * _ALIGNMENT


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
            mark_entry(self._segment.map, self._start, mark)

    def end(self) -> None:
        """Note that the run of the message has ended, and its outcome is recorded elsewhere. After that it
        does nothing, because another entry may have taken the place. Also called from signal handlers, so it
        takes no lock."""
        if self.has_ended:
            return
        self.has_ended = True
        wipe_entry(self._segment.map, self._start, self._following)
        self._segment.live.discard(self._start)


class Segment:
    """A new file at ``path`` with room for ``size`` bytes.

    :raises OSError: it cannot be made, or the disk is full.
    """

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self.size = size
        self._next = FIRST
        #: The positions of the entries that have not ended.
        self.live: set[int] = set()
        try:
            self.map: mmap.mmap = mapped(path, size)
        except FileExistsError:
            raise
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        write_header(self.map)
        _mapped.add(self)

    def put(self, facts: bytes, body: bytes) -> Entry | None:
        """Add an entry; returns None if there is no room."""
        start = self._next
        following = write_entry(self.map, start, facts, body)
        if following is None:
            return None
        self._next = following
        self.live.add(start)
        return Entry(self, start, following)

    def reuse(self) -> None:
        """Remove all entries, which have ended."""
        clear(self.map)
        self._next = FIRST

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
class CopiedMessage:
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


def sealed(facts: bytes, body: bytes, ring: Keyring) -> tuple[bytes, bytes]:
    """The facts and the body of an entry, encrypted together as the facts of an entry without a body."""
    return ring.seal(_FACTS.pack(len(facts)) + facts + body, _PLACE), b""


def opened(facts: bytes, body: bytes, ring: Keyring | None) -> tuple[bytes, bytes]:
    """The inverse of :func:`sealed`. An entry that is not encrypted stays as it is.

    :raises ValueError: it was changed.
    :raises ContentsSealed: it is encrypted with a key that is not in the ring.
    """
    if not is_sealed(facts):
        return facts, body
    try:
        both = needed(ring).open(facts, _PLACE)
    except SealBroken as error:
        raise ValueError(str(error)) from error
    end = _FACTS.size + _FACTS.unpack_from(both)[0]
    return both[_FACTS.size : end], both[end:]


def message_from(
    facts: bytes, body: bytes, *, worker: str, process: str, marks: Mark
) -> CopiedMessage:
    """The inverse of :func:`facts_of`.

    :raises ValueError: the facts are not of this form.
    """
    try:
        table = decode_table(facts.decode("utf-8"))
        return CopiedMessage(
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
