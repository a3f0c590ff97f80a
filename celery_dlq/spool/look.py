"""The files of a spool's directory, their states, and who may read them. Looking at them changes nothing.

They hold whole messages, so only their owner may read them."""

from __future__ import annotations

import fcntl
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path

from celery_dlq.base.process import try_lock
from celery_dlq.errors import ContentsSealed
from celery_dlq.spool.directory import REFUSED_SUFFIX, TORN_SUFFIX
from celery_dlq.spool.segment import SUFFIX, decode


class FileState(str, Enum):
    """The state of a file."""

    #: A living process is appending to it or draining it.
    IN_USE = "in use"
    #: The next drain takes it.
    WAITING = "waiting"
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


#: Bits that a directory does not have by default. If one is set, a person shares the directory on purpose,
#: like /tmp.
_SHARED = stat.S_ISVTX | stat.S_ISGID

#: The names of files of :mod:`~celery_dlq.spool.segment`, and of lines that were set aside.
_OURS = re.compile(r"\d+-[\w.-]+-\d+-[0-9a-f]{8}\.(?:jsonl|torn|refused)")

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
    return SpoolFile(
        name=path.name,
        state=_ASIDE.get(path.suffix)
        or (FileState.IN_USE if _is_locked(path) else FileState.WAITING),
        records=_count(path),
        size=status.st_size,
        written_at=datetime.fromtimestamp(status.st_mtime, timezone.utc),
    )


def _is_locked(path: Path) -> bool:
    with path.open("rb") as file:
        return not try_lock(file, fcntl.LOCK_SH)


def _count(path: Path) -> int:
    """The number of lines that are records."""
    with path.open("rb") as file:
        return sum(map(_is_record, file))


def _is_record(line: bytes) -> bool:
    try:
        decode(line)
    except ContentsSealed:
        return True
    except (ValueError, RecursionError):
        return False
    return True


def exposed_files(directory: Path) -> list[Path]:
    """The files of a spool whose modes let other users than the owner open them."""
    try:
        paths = [*directory.iterdir()]
    except OSError:
        return []
    return [path for path in paths if _OURS.fullmatch(path.name) and is_exposed(path)]


def is_exposed(path: Path) -> bool:
    """Whether users other than the owner of ``path`` have any permission on it."""
    try:
        mode = path.lstat().st_mode
    except OSError:  # it was just removed, or this process may not see it
        return False
    return bool(mode & (stat.S_IRWXG | stat.S_IRWXO)) and not stat.S_ISLNK(mode)


def is_shared(directory: Path) -> bool:
    """Whether ``directory`` was prepared for several users."""
    try:
        return bool(directory.stat().st_mode & _SHARED)
    except OSError:
        return False
