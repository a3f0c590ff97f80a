"""From a spool file to the store, in steps of bounded size; what cannot be stored is set aside."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from celery_dlq.errors import CeleryDLQError, RecordRefused
from celery_dlq.spool.lines import NewerRecord, Record, decode
from celery_dlq.spool.segment import fsync_directory, locked

logger = logging.getLogger(__name__)

#: Records, and bytes of their lines, that one step reads and hands over.
STEP_RECORDS, STEP_BYTES = 500, 8 << 20

#: What lines that are no record, and records that the store refuses, are set aside in.
TORN_SUFFIX, REFUSED_SUFFIX = ".torn", ".refused"

#: What fails with any records, and would set aside all that wait.
_NO_RECORDS_FAULT = (CeleryDLQError, OSError, MemoryError)

#: Stores records; idempotent.
Save = Callable[[Sequence[Record]], object]


@dataclass(frozen=True, kw_only=True)
class Drained:
    """What one step of a drain did, or several."""

    #: Records that the store has now.
    stored: int = 0
    #: Lines and records that were set aside.
    torn: int = 0
    refused: int = 0
    #: Names of files that stay: a newer release wrote them; their writer lives, or another process
    #: drains them; they cannot be read or removed.
    newer: tuple[str, ...] = ()
    in_use: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()

    def __add__(self, other: Drained) -> Drained:
        return Drained(
            stored=self.stored + other.stored,
            torn=self.torn + other.torn,
            refused=self.refused + other.refused,
            newer=self.newer + other.newer,
            in_use=self.in_use + other.in_use,
            failed=self.failed + other.failed,
        )


def drain_file(path: Path, save: Save) -> Iterator[Drained]:
    """Drain one file, and remove it unless a newer release wrote a part of it.

    :raises OSError: the file cannot be read or removed, or nothing can be set aside.
    :raises StoreError: ``save`` did.
    """
    with locked(path) as file:
        if file is None:
            yield Drained(in_use=(path.name,) if path.exists() else ())
            return
        aside, newer = _Aside(path), ""
        for step in _steps(file):
            newer = newer or step.newer
            refused = hand_over(step.records, save)
            aside.put(TORN_SUFFIX, step.torn)
            aside.put(REFUSED_SUFFIX, [step.lines[place] for place in refused])
            yield Drained(
                stored=len(step.records) - len(refused), torn=len(step.torn), refused=len(refused)
            )
        if newer:
            logger.error(
                "spool file %s is left where it is: it holds %s; %s", path, newer, _UPGRADE
            )
            yield Drained(newer=(path.name,))
            return
        aside.tell()
        path.unlink(missing_ok=True)


_UPGRADE = "run: pip install --upgrade celery-dlq"


def hand_over(records: Sequence[Record], save: Save) -> list[int]:
    """Give ``records`` to ``save``, one by one if it does not take them together; returns the places
    of those that it refuses.

    :raises StoreError: the store failed, whatever the records.
    :raises SettingsError: the store is not one that could be opened.
    :raises OSError: the machine failed, or :class:`MemoryError`.
    """
    try:
        if records:
            save(records)
    except Exception as error:
        if isinstance(error, _NO_RECORDS_FAULT) and not isinstance(error, RecordRefused):
            raise
        if len(records) > 1:
            singly = enumerate(hand_over([record], save) for record in records)
            return [place for place, refused in singly if refused]
        kind, name = type(records[0]).__name__, records[0].task_id
        # The store's own refusals say all in one line.
        trace = None if isinstance(error, RecordRefused) else error
        logger.error("dead-letter store refused %s %s: %s", kind, name, error, exc_info=trace)  # noqa: TRY400
        return [0]
    return []


@dataclass
class _Step:
    """What was read at a time."""

    records: list[Record] = field(default_factory=list)
    #: The lines of the records.
    lines: list[bytes] = field(default_factory=list)
    torn: list[bytes] = field(default_factory=list)
    #: What a line that a newer release wrote is; empty when there is none.
    newer: str = ""
    size: int = 0

    @property
    def is_full(self) -> bool:
        return len(self.records) >= STEP_RECORDS or self.size >= STEP_BYTES

    def read(self, line: bytes) -> None:
        self.size += len(line)
        try:
            record = decode(line)
        except NewerRecord as error:
            self.newer = self.newer or str(error)
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
    """Files beside a spool file, for those of its lines that cannot be stored."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: dict[str, int] = {}

    def put(self, suffix: str, lines: Sequence[bytes]) -> None:
        """Keep ``lines``. What an earlier drain of the same file put there, which was cut off, is
        replaced: the file still has it."""
        if not lines:
            return
        with self._path.with_suffix(suffix).open("ab" if suffix in self._written else "wb") as file:
            file.writelines(line if line.endswith(b"\n") else line + b"\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())
        fsync_directory(self._path.parent)
        self._written[suffix] = self._written.get(suffix, 0) + len(lines)

    def tell(self) -> None:
        """Say what was set aside."""
        for suffix, count in self._written.items():
            logger.warning("%d lines set aside in %s", count, self._path.with_suffix(suffix))
