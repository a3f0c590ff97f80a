"""Finds letters in the archive, says which files have problems, and writes letters as one Parquet file for
DuckDB, Trino or Spark."""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from celery_dlq.archive.bucket import Bucket
from celery_dlq.archive.segment import Line, encode_line, moment, segment_key, sha256, unpack
from celery_dlq.base.redact import safe_text
from celery_dlq.errors import (
    ArchiveDamaged,
    ArchiveError,
    ArchiveFileMissing,
    ContentsSealed,
    MissingExtra,
)
from celery_dlq.store.base import Segment

if TYPE_CHECKING:
    import pyarrow

#: Limits of one transaction: letters, and bytes of their lines. A letter that is larger has one of its own.
_TOGETHER = 200
_SIZE_TOGETHER = 8 << 20

#: The errors of files that cannot be read; others mean that the place failed.
UNREADABLE = (ArchiveDamaged, ArchiveFileMissing)


class Problem(str, Enum):
    """The kind of a problem."""

    #: The content of a file is not what was written.
    DAMAGED = "damaged"
    #: The store has a row for a file that does not exist.
    MISSING = "missing"
    #: The store has no row for the file.
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A problem of one file, and what it means."""

    #: The key of the file.
    key: str
    problem: Problem
    #: A sentence or more, with the next step.
    reason: str

    @property
    def is_harmless(self) -> bool:
        """Whether all letters of the archive can still be read."""
        return self.problem is Problem.UNKNOWN

    @classmethod
    def of(cls, segment: Segment, error: Exception) -> Finding:
        """The problem of a segment, which could not be read because of one of :data:`UNREADABLE`."""
        is_damaged = isinstance(error, ArchiveDamaged)
        problem = Problem.DAMAGED if is_damaged else Problem.MISSING
        return cls(key=segment_key(segment.id), problem=problem, reason=str(error))

    @classmethod
    def unknown(cls, key: str) -> Finding:
        """The problem of a file that no row names."""
        reason = (
            f"The store has no row for {key}. If it holds letters of another store, or the database was "
            "restored from a backup, run: celery -A <app> dlq archive adopt. Otherwise move it elsewhere."
        )
        return cls(key=key, problem=Problem.UNKNOWN, reason=reason)


def read_segment(bucket: Bucket, segment: Segment) -> Iterator[dict[str, Any]]:
    """The lines of a segment.

    :raises ArchiveFileMissing: the archive does not have its file.
    :raises ArchiveDamaged: it is not the file that was put.
    :raises ArchiveError: the place failed.
    """
    return unpack(_checked(bucket, segment), segment_key(segment.id))


def _checked(bucket: Bucket, segment: Segment) -> bytes:
    key = segment_key(segment.id)
    data = bucket.read(key)
    if sha256(data) != segment.sha256:
        raise ArchiveDamaged(
            f"{key} is not the file that was written: its SHA-256 is {sha256(data)} and not "
            f"{segment.sha256}. Restore it from a backup."
        )
    return data


def problem_of(bucket: Bucket, segment: Segment) -> Finding | None:
    """The problem of a segment; None if its file exists and is the one that was put.

    :raises ArchiveError: the place failed.
    """
    try:
        _checked(bucket, segment)
    except UNREADABLE as error:
        return Finding.of(segment, error)
    return None


@dataclass(frozen=True, kw_only=True)
class Verified:
    """The result of a check."""

    #: Whole segments, and their letters and bytes.
    segments: int
    letters: int
    size: int
    findings: tuple[Finding, ...]

    @property
    def damaged(self) -> int:
        """The number of findings that mean that letters cannot be read."""
        return sum(not finding.is_harmless for finding in self.findings)

    @property
    def is_whole(self) -> bool:
        """Whether all letters of the archive can be read."""
        return not self.damaged


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which letters to find: those for which all of this holds."""

    #: Task ids; empty for all.
    ids: frozenset[str] = frozenset()
    #: The last failure was at or after the first, and before the second.
    failed_since: datetime | None = None
    failed_until: datetime | None = None
    #: Is given the line of a letter.
    where: Callable[[Line], bool] = lambda _line: True

    def may_be_in(self, segment: Segment) -> bool:
        """Whether a segment can hold such a letter, by what its row says."""
        since, until = self.failed_since, self.failed_until
        return (since is None or segment.last_failed_at >= since) and (
            until is None or segment.first_failed_at < until
        )

    def matches(self, line: Line) -> bool:
        """Whether the letter of ``line`` is wanted."""
        letter = line["letter"]
        if self.ids and letter["task_id"] not in self.ids:
            return False
        failed_at = moment(letter["last_failed_at"])
        since, until = self.failed_since, self.failed_until
        return (
            (since is None or failed_at >= since)
            and (until is None or failed_at < until)
            and self.where(line)
        )


@dataclass(frozen=True)
class ArchivedLetter:
    """A letter in the archive."""

    segment: Segment
    line: dict[str, Any]

    @property
    def task_id(self) -> str:
        """The task id of the letter."""
        return str(self.line["letter"]["task_id"])


class Search:
    """Finds the wanted letters of an archive, those that were archived last first. A letter that was archived
    twice is found once: the later copy.

    :param segments: those of the archive, oldest first.
    """

    def __init__(self, bucket: Bucket, segments: Sequence[Segment], wanted: Wanted) -> None:
        self._bucket = bucket
        self.wanted: Wanted = wanted
        self._segments = [one for one in reversed(segments) if wanted.may_be_in(one)]
        #: Segments that should have been searched, and cannot be read.
        self.findings: list[Finding] = []

    def __iter__(self) -> Iterator[ArchivedLetter]:
        """The letters. One segment at a time is in memory.

        :raises ArchiveError: the place failed.
        """
        seen = set[str]()
        for found in self.copies():
            if found.task_id not in seen:
                seen.add(found.task_id)
                yield found
            if self.wanted.ids and seen >= self.wanted.ids:
                return

    def copies(self) -> Iterator[ArchivedLetter]:
        """The letters, also the earlier copies; errors as in :meth:`__iter__`."""
        self.findings = []
        for segment in self._segments:
            yield from self._found_in(segment)

    def _found_in(self, segment: Segment) -> Iterator[ArchivedLetter]:
        try:
            for line in read_segment(self._bucket, segment):
                if self.wanted.matches(line):
                    yield ArchivedLetter(segment, line)
        except UNREADABLE as error:
            self.findings.append(Finding.of(segment, error))

    def at_most(self) -> int:
        """The number of letters in the segments that are searched."""
        return sum(segment.letters for segment in self._segments)


@dataclass(frozen=True, kw_only=True)
class Holders:
    """The segments that hold wanted letters."""

    #: The task ids of such letters by the id of the segment.
    ids: Mapping[str, tuple[str, ...]]
    #: Files that cannot be read, and may hold such letters.
    unread: tuple[Finding, ...]


def holders(search: Search, unknown: Iterable[str]) -> Holders:
    """The segments that hold the letters of ``search``.

    :param unknown: the keys of files that no row names.
    :raises ArchiveError: the place failed.
    """
    by_segment = groupby(search.copies(), key=lambda found: found.segment.id)
    ids = {name: tuple(found.task_id for found in some) for name, some in by_segment}
    return Holders(ids=ids, unread=(*search.findings, *map(Finding.unknown, unknown)))


@dataclass(frozen=True, kw_only=True)
class Restoration:
    """The result of a restore."""

    #: Task ids of the letters that came back.
    restored: tuple[str, ...] = ()
    #: Task ids of letters that were found, and that the store has already. They stay as they are.
    living: tuple[str, ...] = ()
    #: Wanted task ids that the archive does not have, as far as it could be read.
    missing: tuple[str, ...] = ()
    #: Segments that could not be read.
    findings: tuple[Finding, ...] = ()


def portions(found: Iterable[ArchivedLetter]) -> Iterator[list[ArchivedLetter]]:
    """``found`` in lists that are small enough for one transaction."""
    portion, size = list[ArchivedLetter](), 0
    for one in found:
        more = len(encode_line(one.line))
        if portion and (len(portion) >= _TOGETHER or size + more > _SIZE_TOGETHER):
            yield portion
            portion, size = [], 0
        portion.append(one)
        size += more
    if portion:
        yield portion


#: Columns of the letter, by their type. The message of the exception is among the contents: it may repeat
#: arguments.
_TEXTS = (
    "task_id", "task", "state", "reason", "exception_type", "fingerprint", "queue", "route", "release",
    "worker", "closed_by", "closed_reason",
)  # fmt: skip
_TIMES = ("first_failed_at", "last_failed_at", "closed_at")
_NUMBERS = ("redrive_count", "attempt_count")
_CONTENTS = ("message", "headers", "properties", "args", "kwargs", "traceback", "log")


@dataclass(frozen=True, kw_only=True)
class Exported:
    """The result of an export."""

    letters: int
    #: Segments that could not be read.
    findings: tuple[Finding, ...]
    #: Letters whose contents are left out, because they could not be decrypted.
    sealed: int = 0


def export(
    search: Search, target: Path, *, opened: Callable[[Line], Line] | None = None
) -> Exported:
    """Write the letters that ``search`` finds to the file ``target``, which appears as a whole. One segment
    at a time is in memory.

    :param opened: decrypts a line, to include messages, arguments, tracebacks, log lines and the messages of
        exceptions, with the secrets in them; None to leave them out.
    :raises MissingExtra: ``pyarrow`` is not installed.
    :raises ArchiveError: the archive failed, or the file cannot be written.
    """
    need_pyarrow()
    part = target.with_name(f"{target.name}.{secrets.token_hex(4)}.part")
    try:
        letters, sealed = _write(search, part, opened)
        part.replace(target)
    except OSError as error:
        raise ArchiveError(
            f"{target} cannot be written ({error.strerror or error}); choose another file."
        ) from error
    finally:
        part.unlink(missing_ok=True)
    return Exported(letters=letters, findings=tuple(search.findings), sealed=sealed)


def need_pyarrow() -> None:
    """Check that Parquet files can be written here.

    :raises MissingExtra: ``pyarrow`` is not installed.
    """
    if find_spec("pyarrow") is None:
        raise MissingExtra(
            "Parquet files need the package pyarrow; run: pip install 'celery-dlq[parquet]'"
        )


def _write(search: Search, path: Path, opened: Callable[[Line], Line] | None) -> tuple[int, int]:
    import pyarrow
    from pyarrow import parquet

    schema, letters, sealed = _schema(contents=opened is not None), 0, 0
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for _segment, found in groupby(search, key=lambda one: one.segment.id):
            rows = [_row(one) | (_contents(one.line, opened) if opened else {}) for one in found]
            writer.write_table(pyarrow.Table.from_pylist(rows, schema=schema))
            letters += len(rows)
            sealed += sum(opened is not None and "body" not in row for row in rows)
    return letters, sealed


def _schema(*, contents: bool) -> pyarrow.Schema:
    import pyarrow

    return pyarrow.schema(
        [
            *((name, pyarrow.string()) for name in _TEXTS),
            *((name, pyarrow.timestamp("us", tz="UTC")) for name in _TIMES),
            *((name, pyarrow.int32()) for name in _NUMBERS),
            ("segment", pyarrow.string()),
            *((name, pyarrow.string()) for name in (_CONTENTS if contents else ())),
            *([("body", pyarrow.binary())] if contents else ()),
        ]
    )


def _row(found: ArchivedLetter) -> dict[str, Any]:
    letter = found.line["letter"]
    return {
        **_converted(letter, _TEXTS, safe_text),
        **_converted(letter, _TIMES, moment),
        **_converted(letter, _NUMBERS, int),
        "segment": found.segment.id,
    }


def _contents(line: Line, opened: Callable[[Line], Line]) -> dict[str, Any]:
    """The contents of a letter; none if they cannot be decrypted."""
    try:
        line = opened(line)
    except ContentsSealed:
        return {}
    content = {**line["content"], "message": line["letter"].get("message")}
    return _converted(content, _CONTENTS, safe_text) | _converted(content, ("body",), _body)


def _converted(line: Line, names: tuple[str, ...], convert: Callable[[Any], Any]) -> dict[str, Any]:
    """These fields; None for those that the release that wrote the line did not have."""
    given = {name: line.get(name) for name in names}
    return {name: None if value is None else convert(value) for name, value in given.items()}


def _body(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return None
