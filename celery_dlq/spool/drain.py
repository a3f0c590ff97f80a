"""Moves a spool file into the store, in steps of bounded size; records that cannot be stored are set
aside."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TypeVar

from celery_dlq.base.process import private_opener
from celery_dlq.errors import CeleryDLQError, RecordRefused
from celery_dlq.spool.segment import Record, decode, fsync_directory, locked

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


def drain_file(path: Path, save: Save) -> Iterator[Drained]:
    """Drain one file, and remove it.

    :raises OSError: the file cannot be read or removed, or its lines cannot be set aside.
    :raises StoreError: ``save`` raised it.
    """
    with locked(path) as file:
        if file is None:
            yield Drained(in_use=(path.name,) if path.exists() else ())
            return
        aside = _Aside(path)
        for step in _steps(file):
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
            record = decode(line)
        except (ValueError, RecursionError):
            self.torn.append(line)
        else:
            self.records.append(record)
            self.lines.append(line)


def _steps(file: IO[bytes]) -> Iterator[_Step]:
    step = _Step()
    for line in file:
        if line.strip():
            step.read(line)
        if step.is_full:
            yield step
            step = _Step()
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
