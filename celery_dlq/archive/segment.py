"""Segments: lines of letters, compressed into one file, and read back."""

from __future__ import annotations

import hashlib
import io
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from celery_dlq.errors import ArchiveDamaged, ArchiveNewer
from celery_dlq.store.base import LetterKey

#: The format of lines, as far as this release knows it.
LINE_FORMAT = 1

#: Limits of a segment: bytes before compression, and letters. A larger letter has a segment of its own.
MAX_SIZE = 64 << 20
MAX_LETTERS = 10_000

#: Level of zstd: higher ones take twice the time or more for a few percent.
_LEVEL = 9

Line = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Ids:
    """The task ids of a segment: the first and last in the order of their characters, and the SHA-256 of all
    of them, sorted and joined by line feeds."""

    first: str
    last: str
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Span:
    """The earliest and the latest of some moments, in ISO 8601; both are empty for no moments."""

    from_: str
    until: str


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The facts about the content of a segment. A manifest repeats them, and a check compares them."""

    letters: int
    #: Bytes of the file, and before compression.
    size: int
    raw_size: int
    #: The hash of the file.
    sha256: str
    ids: Ids
    #: When the letters were closed, and when they last failed.
    closed: Span
    failed: Span
    #: Number of letters by task.
    tasks: Mapping[str, int]
    #: The newest version of the store's schema among the lines.
    schema: str


@dataclass
class _Tally:
    """Counts lines while they are written or read."""

    ids: list[str] = field(default_factory=list)
    raw_size: int = 0
    tasks: Counter[str] = field(default_factory=Counter)
    closed: list[datetime] = field(default_factory=list)
    failed: list[datetime] = field(default_factory=list)
    schema: str = ""

    def add(self, line: Line, raw_size: int) -> None:
        """Count one line.

        :raises KeyError, TypeError, ValueError: the line does not have the fields of a letter.
        """
        letter = line["letter"]
        failed, closed = moment(letter["last_failed_at"]), moment(letter["closed_at"])
        self.ids.append(letter["task_id"])
        self.tasks[letter["task"]] += 1
        self.failed = _outermost([*self.failed, failed])
        self.closed = _outermost([*self.closed, closed])
        self.schema = max(self.schema, str(line["schema"]))
        self.raw_size += raw_size

    def facts(self, data: bytes) -> Facts:
        return Facts(
            letters=len(self.ids), size=len(data), raw_size=self.raw_size, sha256=sha256(data),
            ids=_ids(self.ids), closed=_span(self.closed), failed=_span(self.failed),
            tasks=dict(sorted(self.tasks.items())), schema=self.schema,
        )  # fmt: skip


class SegmentWriter:
    """Compresses lines until a limit is reached."""

    def __init__(self, max_size: int = MAX_SIZE, max_letters: int = MAX_LETTERS) -> None:
        from zstandard import ZstdCompressor

        self._max_size, self._max_letters = max_size, max_letters
        self._compressor = ZstdCompressor(level=_LEVEL, write_checksum=True).compressobj()
        self._parts: list[bytes] = []
        self._tally = _Tally()

    @property
    def letters(self) -> int:
        """Number of lines so far."""
        return len(self._tally.ids)

    def add(self, line: Line) -> bool:
        """Add a line; False if it does not fit any more, and was not added."""
        data, tally = encode_line(line), self._tally
        is_full = self.letters >= self._max_letters or tally.raw_size + len(data) > self._max_size
        if self.letters and is_full:
            return False
        tally.add(line, len(data))
        self._parts.append(self._compressor.compress(data))
        return True

    def finish(self) -> tuple[bytes, Facts]:
        """The file, and the facts about it. The writer cannot be used afterwards."""
        data = b"".join([*self._parts, self._compressor.flush()])
        return data, self._tally.facts(data)


def write_segment(lines: Iterable[Line]) -> tuple[bytes, Facts]:
    """A segment of all ``lines``, without a limit of its size."""
    writer = SegmentWriter(sys.maxsize, sys.maxsize)
    for line in lines:
        writer.add(line)
    return writer.finish()


def read_lines(data: bytes, key: str) -> Iterator[dict[str, Any]]:
    """The lines of a segment, one after the other.

    :param key: names the file in errors.
    :raises ArchiveDamaged: the file cannot be decompressed, or a line cannot be read.
    :raises ArchiveNewer: a newer release wrote a line.
    """
    for line, _size in _sized_lines(data, key):
        yield line


def facts_of(data: bytes, key: str) -> Facts:
    """The facts about a segment, from its content; errors as in :func:`read_lines`."""
    tally, number = _Tally(), 0
    try:
        for line, size in _sized_lines(data, key):
            number += 1
            tally.add(line, size)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged_line(key, number, error) from error
    return tally.facts(data)


def letter_key(line: Line) -> LetterKey:
    """The key by which the store knows the letter of a line."""
    letter = line["letter"]
    return LetterKey(
        task_id=letter["task_id"],
        last_failed_at=moment(letter["last_failed_at"]),
        closed_at=moment(letter["closed_at"]),
    )


def encode_line(line: Line) -> bytes:
    """A line as bytes. Only ASCII, so that any reader can read any text."""
    text = json.dumps(line, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.encode("ascii") + b"\n"


def sha256(data: bytes) -> str:
    """The SHA-256 of ``data`` in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def moment(text: str) -> datetime:
    """The moment that ``text`` names in ISO 8601; UTC unless it says otherwise.

    :raises ValueError: it names none.
    """
    read = datetime.fromisoformat(text)
    return (
        read.replace(tzinfo=timezone.utc) if read.tzinfo is None else read.astimezone(timezone.utc)
    )


def _sized_lines(data: bytes, key: str) -> Iterator[tuple[dict[str, Any], int]]:
    from zstandard import ZstdDecompressor, ZstdError

    reader = ZstdDecompressor().stream_reader(data, read_across_frames=True)
    lines = io.BufferedReader(reader, 1 << 17)
    number = 0
    try:
        for raw in lines:
            number += 1
            yield _read_line(raw, key, number), len(raw)
    except ZstdError as error:
        raise ArchiveDamaged(
            f"{key} cannot be decompressed after line {number} ({error}); restore the file from a backup."
        ) from error


def _read_line(raw: bytes, key: str, number: int) -> dict[str, Any]:
    try:
        line = json.loads(raw)
        is_newer = line["format"] > LINE_FORMAT
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _damaged_line(key, number, error) from error
    if is_newer:
        raise ArchiveNewer(
            f"A newer release wrote line {number} of {key}; run: pip install --upgrade celery-dlq"
        )
    return line  # type: ignore[no-any-return]


def _damaged_line(key: str, number: int, error: Exception) -> ArchiveDamaged:
    return ArchiveDamaged(
        f"Line {number} of {key} cannot be read ({type(error).__name__}: {error}); restore the file from a "
        "backup."
    )


def _outermost(moments: list[datetime]) -> list[datetime]:
    return [min(moments), max(moments)]


def _span(moments: list[datetime]) -> Span:
    if not moments:
        return Span(from_="", until="")
    return Span(from_=min(moments).isoformat(), until=max(moments).isoformat())


def _ids(found: list[str]) -> Ids:
    ordered = sorted(found)
    # Ids of foreign messages may have any characters; this encoding loses none of them.
    joined = "\n".join(ordered).encode("utf-8", "surrogatepass")
    return Ids(
        first=ordered[0] if ordered else "",
        last=ordered[-1] if ordered else "",
        sha256=sha256(joined),
    )
