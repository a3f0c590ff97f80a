"""The spool: appends up to a maximum size, drains, and rewrites files that others remove. A drain moves a
file into the store in steps of bounded size, and sets records aside that cannot be stored."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TypeVar

from celery_dlq.base.process import private_opener
from celery_dlq.base.sealing import Keyring
from celery_dlq.errors import CeleryDLQError, ContentsSealed, RecordRefused
from celery_dlq.spool.segment import (
    Record,
    Segment,
    decode,
    encode,
    fsync_directory,
    locked,
    log_whole,
    new_segment,
    waiting_files,
)

logger: logging.Logger = logging.getLogger(__name__)

#: The most records, and bytes of their lines, that one step reads and hands over.
STEP_RECORDS, STEP_BYTES = 500, 8 << 20

#: Suffixes of the files for lines that are not records, and for records that the store refuses.
TORN_SUFFIX, REFUSED_SUFFIX = ".torn", ".refused"

#: Errors that have another cause than the records. If they counted as refusals, every record would be set
#: aside.
_NOT_ABOUT_RECORDS = (CeleryDLQError, OSError, MemoryError)

R = TypeVar("R", bound=Record)

#: Stores records; idempotent.
Save = Callable[[Sequence[Record]], object]


@dataclass(frozen=True, kw_only=True)
class Drained:
    """The result of one or more steps of a drain."""

    #: Records that are now in the store.
    stored: int = 0
    #: Lines and records that were set aside.
    torn: int = 0
    refused: int = 0
    #: Names of files that stay: their writer lives, another process drains them, or they cannot be read or
    #: removed.
    in_use: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()

    def __add__(self, other: Drained) -> Drained:
        return Drained(**{name: mine + vars(other)[name] for name, mine in vars(self).items()})


def drain_file(path: Path, save: Save, ring: Keyring | None = None) -> Iterator[Drained]:
    """Drain one file, and remove it.

    :param ring: opens lines that are encrypted.
    :raises ContentsSealed: a key is not at hand; the rest of the file stays.
    :raises OSError: the file cannot be read or removed, or its lines cannot be set aside.
    :raises StoreError: ``save`` raised it.
    """
    with locked(path) as file:
        if file is None:
            yield Drained(in_use=(path.name,) if path.exists() else ())
            return
        aside = _Aside(path)
        for step in _steps(file, ring):
            refused = hand_over(step.records, save)
            aside.put(TORN_SUFFIX, step.torn)
            aside.put(REFUSED_SUFFIX, [step.lines[place] for place in refused])
            yield Drained(
                stored=len(step.records) - len(refused), torn=len(step.torn), refused=len(refused)
            )
        aside.log()
        path.unlink(missing_ok=True)


def hand_over(records: Sequence[R], save: Callable[[Sequence[R]], object]) -> list[int]:
    """Give ``records`` to ``save``, one by one if saving them together fails; returns the indexes of those
    that it refuses.

    :raises StoreError: the store failed for a reason other than the records.
    :raises SettingsError: the store cannot be opened.
    :raises OSError, MemoryError: the machine failed.
    """
    try:
        if records:
            save(records)
    except Exception as error:
        if isinstance(error, _NOT_ABOUT_RECORDS) and not isinstance(error, RecordRefused):
            raise
        if len(records) > 1:
            singly = enumerate(hand_over([record], save) for record in records)
            return [place for place, refused in singly if refused]
        kind, name = type(records[0]).__name__, records[0].task_id
        # The store's own refusals need no traceback.
        trace = None if isinstance(error, RecordRefused) else error
        logger.error("dead-letter store refused %s %s: %s", kind, name, error, exc_info=trace)  # noqa: TRY400
        return [0]
    return []


@dataclass
class _Step:
    """The records read in one step."""

    ring: Keyring | None
    records: list[Record] = field(default_factory=list)
    #: The lines of the records.
    lines: list[bytes] = field(default_factory=list)
    torn: list[bytes] = field(default_factory=list)
    size: int = 0

    @property
    def is_full(self) -> bool:
        return len(self.records) >= STEP_RECORDS or self.size >= STEP_BYTES

    def read(self, line: bytes) -> None:
        self.size += len(line)
        try:
            record = decode(line, self.ring)
        except (ValueError, RecursionError):
            self.torn.append(line)
        else:
            self.records.append(record)
            self.lines.append(line)


def _steps(file: IO[bytes], ring: Keyring | None) -> Iterator[_Step]:
    step = _Step(ring)
    for line in file:
        if line.strip():
            step.read(line)
        if step.is_full:
            yield step
            step = _Step(ring)
    if step.size:
        yield step


class _Aside:
    """Files next to a spool file, for its lines that cannot be stored."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: dict[str, int] = {}

    def put(self, suffix: str, lines: Sequence[bytes]) -> None:
        """Keep ``lines``. They replace the lines from an earlier, interrupted drain of the same file,
        because the file still has those."""
        if not lines:
            return
        mode, path = "ab" if suffix in self._written else "wb", self._path.with_suffix(suffix)
        with open(path, mode, opener=private_opener) as file:
            file.writelines(line if line.endswith(b"\n") else line + b"\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())
        fsync_directory(self._path.parent)
        self._written[suffix] = self._written.get(suffix, 0) + len(lines)

    def log(self) -> None:
        """Log what was set aside."""
        for suffix, count in self._written.items():
            logger.warning("%d lines set aside in %s", count, self._path.with_suffix(suffix))


#: The default maximum size of all files of a spool, in bytes.
MAX_SIZE = 1 << 30

#: Size after which a new file is begun, in bytes. A file is drained as a whole, so this is also the
#: most that an interrupted drain repeats.
SEGMENT_SIZE = 16 << 20


class Spool:
    """The spool files of one directory. One thread at a time may use it.

    :param max_size: bytes that all files in the directory may take together.
    :param ring: encrypts each record.
    """

    def __init__(
        self, directory: str | Path, *, max_size: int = MAX_SIZE, ring: Keyring | None = None
    ) -> None:
        self.directory: Path = Path(directory)
        self.max_size, self._ring = max_size, ring
        self._segment: Segment | None = None

    def append(self, records: Sequence[Record]) -> None:
        """Keep ``records``, all or none; they are on disk when this method returns.

        :raises OSError: the directory cannot be written, or the disk or the spool is full.
        """
        lines = b"".join(encode(record, self._ring) for record in records)
        self._check_room(len(lines))
        segment = self._segment_in_place()
        try:
            segment.append(lines)
        except OSError:
            self.close()
            raise
        if segment.size >= SEGMENT_SIZE:
            self.close()

    def keep(self, records: Sequence[Record]) -> None:
        """Append ``records``, or write to the log those that do not fit on the disk. Raises no error."""
        try:
            self.append(records)
        except Exception as error:  # noqa: BLE001 - the letter must survive any error of the disk
            if len(records) == 1:
                self._keep_in_log(records[0], error)
                return
            # The remaining space may be enough for some of them.
            for record in records:
                self.keep([record])

    def _keep_in_log(self, record: Record, error: Exception) -> None:
        try:
            log_whole(encode(record, self._ring), error)
        except Exception:
            # An error here would end the writer's thread, and no further message would be finished.
            logger.critical(
                "dead letter neither stored nor spooled, and it cannot be encoded: %r",
                record if self._ring is None else record.task_id,
                exc_info=True,
            )

    def check(self) -> None:
        """Check whether a letter could be kept now. Leaves no file behind.

        :raises OSError: it could not be kept.
        """
        self._check_room(0)
        new_segment(self.directory).close()

    def files(self) -> list[Path]:
        """The files that wait to be drained, oldest first."""
        return waiting_files(self.directory)

    def size(self) -> int:
        """The size of all files in the directory in bytes, including those that were set aside. The flight
        recorder may have a directory in it."""
        return sum(_size(path) for path in self.directory.glob("*") if not path.is_dir())

    def drain(self, save: Save) -> Generator[Drained, None, None]:
        """Hand every spooled record to ``save``, and remove the files whose records were all saved.

        Each step hands over a bounded number of records, and yields its result. ``save`` must be
        idempotent: after a crash between the save and the removal, the same records are handed over again.

        :raises StoreError: ``save`` raised it; the remaining records stay for the next time.
        """
        own = self._segment.path if self._segment else None
        others = [path for path in self.files() if path != own]
        for path in others:
            yield from self._drain_one(path, save)
        # Last: otherwise each try while the store is still away would leave one more file.
        self.close()
        for path in self.files():
            if path not in others:
                yield from self._drain_one(path, save)

    def close(self) -> None:
        """Stop appending to the current file, so that it can be drained."""
        segment, self._segment = self._segment, None
        if segment is not None:
            try:
                self._restore(segment)
            finally:
                segment.close()

    def _drain_one(self, path: Path, save: Save) -> Generator[Drained, None, None]:
        try:
            yield from drain_file(path, save, self._ring)
        except (OSError, ContentsSealed) as error:
            logger.error("spool file %s cannot be drained and stays: %s", path, error)  # noqa: TRY400 - the line says why
            yield Drained(failed=(path.name,))

    def _segment_in_place(self) -> Segment:
        if self._segment is not None and not self._segment.is_in_place:
            self.close()
        if self._segment is None:
            self._segment = new_segment(self.directory)
        return self._segment

    def _restore(self, lost: Segment) -> None:
        """Write the lines of a file that another process removed into a new file."""
        if lost.is_in_place:
            return
        lines = lost.lost_lines()
        if not lines:
            return
        try:
            with contextlib.closing(new_segment(self.directory)) as copy:
                copy.append(lines)
        except OSError as error:
            for line in lines.splitlines():
                log_whole(line, error)
        else:
            logger.warning("spool file %s was removed; its letters are in %s", lost.path, copy.path)

    def _check_room(self, wanted: int) -> None:
        if self.size() + wanted > self.max_size:
            raise OSError(
                errno.EDQUOT,
                f"the spool would exceed dlq_spool_max_size ({self.max_size:,} bytes); "
                "bring the store back, or raise the limit",
                str(self.directory),
            )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
