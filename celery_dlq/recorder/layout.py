"""The layout of a file: a header, then one entry after another.

An entry is a head, the facts about the message as JSON, and the message's body. The state is one byte and is
written last, so a process that is killed at any instruction leaves whole entries. A state of zero ends the
list. Checksums detect what a crash of the machine, or a person, has done to a file.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from mmap import mmap

#: Magic bytes and the version of this layout, and their checksum.
_NAMED = b"celery_dlq recorder\n" + (1).to_bytes(4, "little")
_HEADER = _NAMED + zlib.crc32(_NAMED).to_bytes(4, "little")
#: State, marks, checksum of the two lengths, bytes of the facts, bytes of the body, checksum of both.
_HEAD = struct.Struct("<BBHIII")
#: The head without its first byte, which is written last.
_REST = struct.Struct("<BHIII")
_LENGTHS = struct.Struct("<II")

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
class Found:
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

    entries: tuple[Found, ...]
    #: Whether something in the file is not an entry.
    is_damaged: bool


def size_for(facts: bytes, body: bytes) -> int:
    """Bytes of the smallest file that holds this entry."""
    return _after(FIRST, len(facts) + len(body)) + _HEAD.size


def write_header(file: mmap) -> None:
    """Make ``file`` an empty file of this layout."""
    clear(file)
    file[: len(_HEADER)] = _HEADER


def clear(file: mmap) -> None:
    """Remove all entries."""
    file[FIRST] = EntryState.NONE


def write_entry(file: mmap, start: int, facts: bytes, body: bytes) -> int | None:
    """Write an entry at ``start``; returns where the next one begins, or None if there is no room."""
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


def mark_entry(file: mmap, start: int, mark: Mark) -> None:
    """Add ``mark`` to the entry at ``start``. The state stays as it is, because another thread may end the
    entry at the same time."""
    file[start + 1] |= int(mark)  # a flag's own operator is slow


def wipe_entry(file: mmap, start: int, following: int) -> None:
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


def _entries(data: bytes) -> Iterator[Found | None]:
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


def _whole_entries(data: bytes, start: int) -> Iterator[Found]:
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


def _whole_entry(data: bytes, start: int) -> Found | None:
    state, marks, _check, facts, body, checksum = _HEAD.unpack_from(data, start)
    begin = start + _HEAD.size
    middle, end = begin + facts, begin + facts + body
    if state != EntryState.ACCEPTED or zlib.crc32(data[begin:end]) != checksum:
        return None
    return Found(start, Mark(marks), data[begin:middle], data[middle:end])


def _check(facts: int, body: int) -> int:
    return zlib.crc32(_LENGTHS.pack(facts, body)) & 0xFFFF


def _after(start: int, size: int) -> int:
    end = start + _HEAD.size + size
    return -(-end // _ALIGNMENT) * _ALIGNMENT
