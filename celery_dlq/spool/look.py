"""The files of a spool's directory, and their states. Reading them changes nothing."""

from __future__ import annotations

import fcntl
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path

from celery_dlq.spool.drain import REFUSED_SUFFIX, TORN_SUFFIX
from celery_dlq.spool.lines import NewerRecord, decode
from celery_dlq.spool.segment import SUFFIX


class FileState(str, Enum):
    """The state of a file."""

    #: A living process is appending to it or draining it.
    IN_USE = "in use"
    #: The next drain takes it.
    WAITING = "waiting"
    #: A newer release wrote it, and only such a release can read it.
    NEWER = "newer"
    #: It holds incomplete lines.
    TORN = "torn"
    #: It holds records that the store does not accept.
    REFUSED = "refused"


@dataclass(frozen=True, kw_only=True)
class SpoolFile:
    """A file of the spool."""

    name: str
    state: FileState
    #: Lines that this release can read.
    records: int
    #: Bytes.
    size: int
    written_at: datetime


_ASIDE = {TORN_SUFFIX: FileState.TORN, REFUSED_SUFFIX: FileState.REFUSED}


def look(directory: Path) -> Iterator[SpoolFile]:
    """The files of the spool in ``directory``, by name; none if it does not exist.

    :raises OSError: no permission to read them, or it is not a directory.
    """
    # Not glob(), which returns nothing for a directory without read permission.
    paths = directory.iterdir() if directory.exists() else iter(())
    for path in sorted(paths):
        if path.suffix in (SUFFIX, *_ASIDE):
            try:
                yield _look_at(path)
            except FileNotFoundError:  # just drained
                continue


def _look_at(path: Path) -> SpoolFile:
    status = path.stat()
    records, newer = _count(path)
    return SpoolFile(
        name=path.name,
        state=_ASIDE.get(path.suffix) or _state(path, newer=newer),
        records=records,
        size=status.st_size,
        written_at=datetime.fromtimestamp(status.st_mtime, timezone.utc),
    )


def _state(path: Path, *, newer: bool) -> FileState:
    if _is_locked(path):
        return FileState.IN_USE
    return FileState.NEWER if newer else FileState.WAITING


def _is_locked(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _count(path: Path) -> tuple[int, bool]:
    """The number of readable lines, and whether a newer release wrote one."""
    with path.open("rb") as file:
        found = Counter(map(_readable, file))
    return found[True], bool(found[None])


def _readable(line: bytes) -> bool | None:
    """Whether ``line`` is a record; None if a newer release wrote it."""
    try:
        decode(line)
    except NewerRecord:
        return None
    except (ValueError, RecursionError):
        return False
    return True
