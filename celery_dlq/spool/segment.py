"""A file of the spool: the format of its lines, and the one process that appends to it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import re
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from celery_dlq.base.process import DIRECTORY_MODE, private_opener, try_lock
from celery_dlq.base.sealing import Keyring, needed
from celery_dlq.errors import SealBroken
from celery_dlq.model.letter import DeadLetter, Outcome

logger: logging.Logger = logging.getLogger(__name__)

#: The records of a spool.
Record = DeadLetter | Outcome

_KINDS: dict[str, type[DeadLetter] | type[Outcome]] = {"letter": DeadLetter, "outcome": Outcome}

#: The beginning of every record, whichever release wrote it.
_HEAD = '{"kind"'

_JSON = json.JSONDecoder()


def encode(record: Record, ring: Keyring | None = None) -> bytes:
    """One spool line. With a ring, only the kind of the record and the id stay clear."""
    kind = "letter" if isinstance(record, DeadLetter) else "outcome"
    data = record.to_dict()
    if ring is not None:
        sealed = ring.seal(json.dumps(data, default=str), _place(kind))
        data = {"format": data["format"], "task_id": record.task_id, "sealed": sealed}
    return json.dumps({"kind": kind, **data}, default=str).encode("ascii") + b"\n"


def decode(line: bytes, ring: Keyring | None = None) -> Record:
    """The record of one spool line.

    :raises ValueError: the line is torn or changed, or is not a record that this release can read.
    :raises ContentsSealed: the line is encrypted with a key that is not in the ring.
    """
    return _record_of(json.loads(line), ring)


def find_record(line: str, ring: Keyring | None = None) -> Record | None:
    """The record in a line of a log, which is plain text or a JSON object; None if the line has no record.

    :raises ValueError: a record begins in this line, but is cut off, or this release cannot read it.
    :raises ContentsSealed: it is encrypted with a key that is not in the ring.
    """
    start = line.find(_HEAD)
    if start >= 0:
        data, _end = _JSON.raw_decode(line, start)
        return _record_of(data, ring)
    if _HEAD.replace('"', '\\"') not in line:
        return None
    # The formatter of the log puts each message into a JSON object.
    found = (find_record(text, ring) for text in _texts(json.loads(line)))
    return next((record for record in found if record is not None), None)


def log_whole(line: bytes, error: Exception) -> None:
    """Write one line to the log, where :func:`find_record` finds it: the last resort when neither the store
    nor the disk accepts a letter."""
    logger.critical(
        "dead letter neither stored nor spooled (%s); once the store is back, give this log to "
        "celery -A <app> dlq recover FILE: %s", error, line.decode("ascii", "replace").strip(),
    )  # fmt: skip


def _record_of(data: Any, ring: Keyring | None) -> Record:
    if not isinstance(data, dict) or not {"kind", "format"} <= data.keys():
        raise ValueError("not a spool record")
    kind = data.pop("kind")
    try:
        if "sealed" in data:
            data = _opened(kind, data["sealed"], ring)
        return _KINDS[kind].from_dict(data)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a {kind} that this release cannot read ({error!r})") from error


def _opened(kind: str, sealed: str, ring: Keyring | None) -> Any:
    try:
        return json.loads(needed(ring).open(sealed, _place(kind)))
    except SealBroken as error:
        raise ValueError(str(error)) from error


def _place(kind: str) -> str:
    return f"spool/{kind}"


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


SUFFIX = ".jsonl"


#: How often to try a new file when other processes lock it first.
_TRIES = 10


class Segment:
    """A new file in ``directory``, locked by this process until it is closed.

    :raises BlockingIOError: another process locked it first.
    :raises OSError: the directory cannot be written, or its file system has no locks.
    """

    def __init__(self, directory: Path, now_ns: Callable[[], int] = time.time_ns) -> None:
        self.path: Path = directory / _new_name(directory, now_ns())
        # Unbuffered, so that a failed write does not stay in a buffer and raise at close.
        self._file = open(self.path, "x+b", buffering=0, opener=private_opener)  # noqa: SIM115 - kept open
        self.size: int = 0
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fsync_directory(directory)
        except OSError:
            self.close()
            raise

    def append(self, data: bytes) -> None:
        """Write ``data`` to the disk, as a whole or not at all.

        :raises OSError: the write failed. Close the segment then: after a failed fsync the kernel may treat
            unwritten pages as written.
        """
        try:
            self._write(data)
            os.fsync(self._file.fileno())
        except OSError:
            # A partial line would be read as torn, and its letter set aside.
            with contextlib.suppress(OSError):
                self._file.truncate(self.size)
            raise
        self.size += len(data)

    @property
    def is_in_place(self) -> bool:
        """Whether the file still exists under its name."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._file.fileno()))
        except OSError:
            return False

    def lost_lines(self) -> bytes:
        """The content of the file, if another process has removed it; empty if the file was moved."""
        try:
            if os.fstat(self._file.fileno()).st_nlink:
                return b""
            self._file.seek(0)
            return self._file.readall()
        except OSError:  # a network file system that forgot the file
            return b""

    def close(self) -> None:
        """Unlock the file, so that it can be drained; an empty file is removed."""
        if not self.size and self.is_in_place:
            with contextlib.suppress(OSError):
                self.path.unlink()
        unlock(self._file)

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            # On a nearly full disk, a write may be partial, and only its return value says so.
            rest = rest[self._file.write(rest) or 0 :]


def new_segment(directory: Path) -> Segment:
    """A new segment that exists under its name, so that no other process has it.

    :raises OSError: the directory cannot be made or written, or its file system has no locks.
    """
    directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    for _ in range(_TRIES):
        # Between creating and locking the file, a drain may find it empty and remove it.
        with contextlib.suppress(BlockingIOError):
            segment = Segment(directory)
            if segment.is_in_place:
                return segment
            segment.close()
    raise BlockingIOError(f"every new file in {directory} is locked or removed at once")


@contextlib.contextmanager
def locked(path: Path) -> Iterator[IO[bytes] | None]:
    """The file at ``path``, open and locked; None while its writer lives, or another process drains it.

    :raises OSError: no permission to read and write it.
    """
    try:
        # For writing, because network file systems lock only such files exclusively.
        file = path.open("r+b")
    except FileNotFoundError:
        yield None
        return
    try:
        # The previous holder of the lock may have drained and removed the file.
        is_taken = try_lock(file) and os.fstat(file.fileno()).st_nlink > 0
        yield file if is_taken else None
    finally:
        unlock(file)


def unlock(file: IO[bytes]) -> None:
    """Close ``file``, and let others lock it at once. A lock lasts while any copy of the file is open,
    and each pool process that was forked in the meantime has a copy."""
    with file, contextlib.suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_UN)


def waiting_files(directory: Path) -> list[Path]:
    """The spool files, oldest first."""
    return sorted(directory.glob("*" + SUFFIX), key=lambda path: (_number(path), path.name))


def fsync_directory(directory: Path) -> None:
    """Make the names in ``directory`` durable."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _new_name(directory: Path, now_ns: int) -> str:
    # Files are drained in the order of their names, also after the clock was set back. Containers may share
    # host names and process ids, so the name has a random part.
    newest = max((_number(path) for path in waiting_files(directory)), default=0)
    host = re.sub(r"[^\w.-]", "_", socket.gethostname())
    number = max(now_ns, newest + 1)
    return f"{number}-{host}-{os.getpid()}-{uuid.uuid4().hex[:8]}{SUFFIX}"


def _number(path: Path) -> int:
    digits, _, _ = path.name.partition("-")
    return int(digits) if digits.isdecimal() else 0
