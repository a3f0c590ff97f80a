"""Letters that the store did not take: append-only files, fsynced line by line, drained later.

One JSON record a line. A writer holds a lock on the file it appends to, so that another process can
tell a living writer's file from one that may be drained.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from celery_dlq.letter import DeadLetter, Outcome

#: What a spool holds.
Record = DeadLetter | Outcome

_KINDS: dict[str, type[DeadLetter] | type[Outcome]] = {"letter": DeadLetter, "outcome": Outcome}
_SUFFIX, _TORN_SUFFIX = ".jsonl", ".torn"


class Spool:
    """The spool files of one directory."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        self._file: IO[bytes] | None = None

    def append(self, records: Sequence[Record]) -> None:
        """Keep ``records``; they are on disk when this returns.

        :raises OSError: the directory cannot be written, or the disk is full.
        """
        lines = b"".join(encode(record) for record in records)
        file = self._file or self._open()
        start = file.tell()
        try:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            # A part of a line would be read as torn, and its letter set aside.
            self._cut(file, start)
            raise

    def files(self) -> list[Path]:
        """The spool files, oldest first."""
        return sorted(self.directory.glob("*" + _SUFFIX))

    def drain(self, save: Callable[[Sequence[Record]], object]) -> int:
        """Hand every spooled record to ``save`` and remove the files that it took whole.

        ``save`` must be idempotent: a crash between it and the removal hands the same records over
        again. What is no record (a torn last line) is set aside beside the file.

        :returns: how many records were handed over.
        """
        self.close()
        return sum(self._drain_file(path, save) for path in self.files())

    def close(self) -> None:
        """Stop appending to the present file, so that it can be drained."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> IO[bytes]:
        self.directory.mkdir(parents=True, exist_ok=True)
        name = f"{time.time_ns()}-{socket.gethostname()}-{os.getpid()}{_SUFFIX}"
        # Unbuffered: a failed write must not linger in a buffer and surface at close.
        file = open(self.directory / name, "xb", buffering=0)  # noqa: SIM115 - kept open on purpose
        fcntl.flock(file, fcntl.LOCK_EX)
        _fsync_directory(self.directory)
        self._file = file
        return file

    def _cut(self, file: IO[bytes], size: int) -> None:
        try:
            file.truncate(size)
        finally:
            self.close()

    def _drain_file(self, path: Path, save: Callable[[Sequence[Record]], object]) -> int:
        try:
            file = path.open("rb")
        except FileNotFoundError:
            return 0
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return 0
            records, torn = _read(file)
            for start in range(0, len(records), 500):
                save(records[start : start + 500])
            if torn:
                _set_aside(path, torn)
            path.unlink(missing_ok=True)
        return len(records)


def encode(record: Record) -> bytes:
    """One spool line."""
    kind = "letter" if isinstance(record, DeadLetter) else "outcome"
    text = json.dumps({"kind": kind, **record.to_dict()}, default=str)
    return text.encode("ascii") + b"\n"


def decode(line: bytes) -> Record:
    """The record of one spool line.

    :raises ValueError: the line is torn, or was written by a newer release.
    """
    data: dict[str, Any] = json.loads(line)
    try:
        return _KINDS[data.pop("kind")].from_dict(data)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a spool record: {error!r}") from error


def _read(file: IO[bytes]) -> tuple[list[Record], list[bytes]]:
    records, torn = list[Record](), list[bytes]()
    for line in _lines(file):
        record = _decoded(line)
        if record is None:
            torn.append(line)
        else:
            records.append(record)
    return records, torn


def _decoded(line: bytes) -> Record | None:
    try:
        return decode(line)
    except ValueError:
        return None


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    return (line for line in file if line.strip())


def _set_aside(path: Path, torn: Sequence[bytes]) -> None:
    with path.with_suffix(_TORN_SUFFIX).open("ab") as file:
        file.writelines(torn)
        file.flush()
        os.fsync(file.fileno())


def _fsync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
