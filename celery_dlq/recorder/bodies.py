"""Which bodies have returned in the processes of a pool.

The result of a body is on its way to the parent when the body has returned. If the worker is ended in
that moment, its parent, or another worker, reads here that the task has succeeded: each process of the
pool has a slot in a file that it shares with its parent.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from billiard.process import current_process

from celery_dlq.base.process import mapped

_NAME = "returned"

#: Whether the slot holds the id of a task, the length of the id, the process, and the id.
_SLOT = struct.Struct("<BB2xI120s")
_LONGEST = 120
#: More processes than this are not seen.
_SLOTS = 512

#: The file of this process and its pool, and its directory; None if it has none.
_shared: mmap.mmap | None = None
_directory: Path | None = None


def share(directory: Path) -> None:
    """Make the file, before the processes of the pool are made.

    :raises OSError: it cannot be made, or the disk is full.
    """
    global _shared, _directory
    _shared, _directory = mapped(directory / _NAME, _SLOTS * _SLOT.size), directory


def unshare(directory: Path) -> None:
    """Delete the file, because the pool has ended."""
    global _shared, _directory
    remove_returned(directory)
    if _shared is not None and _directory == directory:
        _shared.close()
        _shared = _directory = None


def begin() -> None:
    """Note in a process of the pool that a body begins."""
    if _shared is not None and (start := _own_start()) is not None:
        _shared[start] = 0


def note(task_id: str) -> None:
    """Note in a process of the pool that the body of a task has returned, and its result is stored."""
    raw = str(task_id).encode(errors="replace")  # a hostile message may have a number
    if _shared is None or len(raw) > _LONGEST or (start := _own_start()) is None:
        return
    _shared[start + 1 : start + _SLOT.size] = _SLOT.pack(0, len(raw), os.getpid(), raw)[1:]
    # Only now is it noted.
    _shared[start] = 1


def has_returned(pid: int | None, task_id: str) -> bool:
    """Whether the body of a task has returned that the process ``pid`` of this worker's pool ran last."""
    return _shared is not None and any(pair == (pid, str(task_id)) for pair in _pairs(_shared[:]))


def returned_in(directory: Path) -> frozenset[tuple[int, str]]:
    """The processes of a pool whose worker is gone, each with the id of its last task, if that has returned.

    :raises OSError: no permission.
    """
    try:
        return frozenset(_pairs((directory / _NAME).read_bytes()))
    except FileNotFoundError:  # of another pool
        return frozenset()


def remove_returned(directory: Path) -> None:
    """Delete the file."""
    (directory / _NAME).unlink(missing_ok=True)


def _own_start() -> int | None:
    """The beginning of this process's slot; None if it is not one of a pool."""
    place = getattr(current_process(), "index", None)
    return place * _SLOT.size if type(place) is int and place < _SLOTS else None


def _pairs(data: bytes) -> Iterator[tuple[int, str]]:
    for used, length, pid, raw in _SLOT.iter_unpack(data[: len(data) // _SLOT.size * _SLOT.size]):
        if used == 1 and length <= _LONGEST:
            yield pid, raw[:length].decode(errors="replace")
