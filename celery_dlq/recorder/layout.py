"""The layout of a file: a header, then one entry after another.

An entry is a head, the facts about the message as JSON, and the message's body. Its head is written last and
its state is one byte, so a process that is killed at any instruction leaves whole entries. A head of zeros
ends the list. The checksum detects what a crash of the machine, or a person, has done to a file.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from mmap import mmap

#: The version of this layout.
FORMAT = 1

_MAGIC = b"celery_dlq recorder\n"
_HEADER = struct.Struct(f"<{len(_MAGIC)}sI")
#: State, bytes of the facts, bytes of the body, checksum of both.
_HEAD = struct.Struct("<B3xIII")
_END = bytes(_HEAD.size)

#: Where the first entry begins. Entries begin at multiples of 16 bytes.
FIRST = 64
_ALIGNMENT = 16


class EntryState(IntEnum):
    """How far a message has come."""

    #: It will be acknowledged, or was a moment ago; the broker may still have it.
    ACCEPTED = 1
    #: The broker has forgotten it.
    ACKNOWLEDGED = 2
    #: Its run has ended, and its outcome is recorded elsewhere.
    ENDED = 3


class NewerFile(ValueError):
    """A newer release wrote the file."""


@dataclass(frozen=True)
class Found:
    """An entry that had not ended."""

    start: int
    state: EntryState
    facts: bytes
    body: bytes


@dataclass(frozen=True)
class Contents:
    """The entries of a file that had not ended."""

    entries: tuple[Found, ...]
    #: Whether something in the file is not an entry. Entries after that place are not found.
    is_damaged: bool


def size_for(facts: bytes, body: bytes) -> int:
    """Bytes of the smallest file that holds this entry."""
    return _after(FIRST, len(facts) + len(body)) + _HEAD.size


def write_header(file: mmap) -> None:
    """Make ``file`` an empty file of this layout."""
    clear(file)
    _HEADER.pack_into(file, 0, _MAGIC, FORMAT)


def clear(file: mmap) -> None:
    """Remove all entries."""
    file[FIRST : FIRST + _HEAD.size] = _END


def write_entry(file: mmap, start: int, facts: bytes, body: bytes) -> int | None:
    """Write an entry at ``start``; returns where the next one begins, or None if there is no room."""
    middle = start + _HEAD.size + len(facts)
    end = middle + len(body)
    following = _after(start, len(facts) + len(body))
    if following + _HEAD.size > len(file):
        return None
    file[following : following + _HEAD.size] = _END
    file[start + _HEAD.size : middle] = facts
    file[middle:end] = body
    checksum = zlib.crc32(body, zlib.crc32(facts))
    # Only now is it an entry.
    _HEAD.pack_into(file, start, EntryState.ACCEPTED, len(facts), len(body), checksum)
    return following


def wipe_entry(file: mmap, start: int) -> None:
    """Mark the entry at ``start`` as ended, and remove its message, which no one needs any more."""
    file[start] = EntryState.ENDED
    _, facts, body, _ = _HEAD.unpack_from(file, start)
    begin = start + _HEAD.size
    file[begin : begin + facts + body] = bytes(facts + body)


def read(data: bytes) -> Contents:
    """The entries of a file that had not ended.

    :raises NewerFile: a newer release wrote it.
    """
    if len(data) < FIRST:
        return Contents((), is_damaged=bool(data.strip(b"\0")))
    magic, version = _HEADER.unpack_from(data)
    if magic == _MAGIC and version > FORMAT:
        raise NewerFile(f"format {version} is newer than {FORMAT}; upgrade celery-dlq")
    if magic != _MAGIC or version < 1:
        return Contents((), is_damaged=bool(data.strip(b"\0")))
    found = list(_entries(data))
    return Contents(
        tuple(item for item in found if item is not None), is_damaged=any(i is None for i in found)
    )


def _entries(data: bytes) -> Iterator[Found | None]:
    """The entries that had not ended; None for each one that is damaged."""
    start = FIRST
    while start + _HEAD.size <= len(data):
        state, facts, body, checksum = _HEAD.unpack_from(data, start)
        if data[start : start + _HEAD.size] == _END:
            return
        begin = start + _HEAD.size
        end = begin + facts + body
        if end > len(data) or state not in _STATES:
            yield None
            return  # it is unknown where the next one begins
        if state != EntryState.ENDED:
            is_whole = zlib.crc32(data[begin:end]) == checksum
            middle = begin + facts
            yield (
                Found(start, EntryState(state), data[begin:middle], data[middle:end])
                if is_whole
                else None
            )
        start = _after(start, facts + body)
    yield None  # every list has an end


_STATES = frozenset(EntryState)


def _after(start: int, size: int) -> int:
    end = start + _HEAD.size + size
    return -(-end // _ALIGNMENT) * _ALIGNMENT
