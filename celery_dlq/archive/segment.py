"""Segments: lines of letters, compressed into one file, and read back."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import orjson

from celery_dlq.errors import ArchiveDamaged
from celery_dlq.store.base import LINE_FORMAT, Facts, LetterKey

#: Limits of a segment: letters, because they are deleted in one transaction, and bytes before compression. A
#: larger letter has a segment of its own.
MAX_LETTERS = 1_000
MAX_SIZE = 64 << 20

#: Level of zstd: higher ones take twice the time or more for a few percent.
_LEVEL = 3

#: The folder of the files.
FOLDER = "segments"

_FILE = re.compile(rf"{FOLDER}/([0-9]{{8}}T[0-9]{{12}}-[0-9a-f]{{8}})\.jsonl\.zst(\.part)?")

Line = Mapping[str, Any]


def segment_key(segment_id: str) -> str:
    """The key of the file of a segment."""
    return f"{FOLDER}/{segment_id}.jsonl.zst"


def segment_of(key: str) -> str | None:
    """The id of the segment whose file ``key`` names, or a part of it; None for other files."""
    match = _FILE.fullmatch(key)
    return match[1] if match else None


def time_of(key: str) -> datetime | None:
    """The time at which the segment whose file ``key`` names was made; None for other files."""
    try:
        return datetime.strptime(f"{(segment_of(key) or '')[:21]}Z", "%Y%m%dT%H%M%S%f%z")
    except ValueError:
        return None


@dataclass(frozen=True)
class Packed:
    """The file of a segment, the facts about it, and the letters in it."""

    data: bytes
    facts: Facts
    keys: tuple[LetterKey, ...]


def pack(lines: Iterable[Line], max_size: int = MAX_SIZE) -> Packed | None:
    """Compress lines into one file, until the next line would exceed the size before compression; None if
    there are no lines."""
    from zstandard import ZstdCompressor

    compressor = ZstdCompressor(level=_LEVEL, write_checksum=True).compressobj()
    keys, parts, size = list[LetterKey](), list[bytes](), 0
    for line in lines:
        text = encode_line(line)
        size += len(text)
        if keys and size > max_size:
            break
        keys.append(letter_key(line))
        parts.append(compressor.compress(text))
    if not keys:
        return None
    data = b"".join([*parts, compressor.flush()])
    return Packed(data, _facts(data, keys), tuple(keys))


def unpack(data: bytes, key: str) -> Iterator[dict[str, Any]]:
    """The lines in the file of a segment, one after the other.

    :param key: names the file in errors.
    :raises ArchiveDamaged: the file cannot be decompressed, or a line cannot be read.
    """
    from zstandard import ZstdDecompressor, ZstdError

    reader = ZstdDecompressor().stream_reader(data, read_across_frames=True)
    number = 0
    try:
        for text in io.BufferedReader(reader, 1 << 17):
            number += 1
            yield _read_line(text, key, number)
    except ZstdError as error:
        raise ArchiveDamaged(
            f"{key} cannot be decompressed after line {number} ({error}); restore the file from a backup."
        ) from error


def facts_of(data: bytes, key: str) -> Facts | None:
    """The facts about a file, from its content; None without lines. Errors as in :func:`unpack`."""
    keys = [letter_key(line) for line in unpack(data, key)]
    return _facts(data, keys) if keys else None


def letter_key(line: Line) -> LetterKey:
    """The key by which the store knows the letter of a line."""
    letter = line["letter"]
    return LetterKey(
        task_id=letter["task_id"],
        last_failed_at=moment(letter["last_failed_at"]),
        closed_at=moment(letter["closed_at"]),
    )


def encode_line(line: Line) -> bytes:
    """A line as bytes."""
    try:
        return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # half of a surrogate, which only ASCII can express
        return json.dumps(line, allow_nan=False, separators=(",", ":")).encode() + b"\n"


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


def _facts(data: bytes, keys: Iterable[LetterKey]) -> Facts:
    failed = [key.last_failed_at for key in keys]
    return Facts(
        letters=len(failed), size=len(data), sha256=sha256(data),
        first_failed_at=min(failed), last_failed_at=max(failed),
    )  # fmt: skip


def _read_line(text: bytes, key: str, number: int) -> dict[str, Any]:
    try:
        line = json.loads(text)
        version = line["format"]
        letter_key(line)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _damaged_line(key, number, f"{type(error).__name__}: {error}") from error
    if version != LINE_FORMAT:
        why = f"its format is {version!r}, and this release reads {LINE_FORMAT}"
        raise _damaged_line(key, number, why)
    return line  # type: ignore[no-any-return]


def _damaged_line(key: str, number: int, why: str) -> ArchiveDamaged:
    return ArchiveDamaged(
        f"Line {number} of {key} cannot be read ({why}); restore the file from a backup."
    )
