"""The identity of a process, by which another process on the machine can tell whether it still runs; and
files that only the user of the process may read, because they hold whole messages."""

from __future__ import annotations

import fcntl
import mmap
import os
from pathlib import Path
from typing import IO, Any

#: The modes of private directories and files. A umask can only remove bits.
DIRECTORY_MODE, FILE_MODE = 0o700, 0o600


def identity() -> str:
    """A name of this process that no other process of this machine has, or had; empty without ``/proc``."""
    pid = os.getpid()
    place, started = _place(), _started(pid)
    return f"{place}:{pid}:{started}" if place and started else ""


def lives(named: str) -> bool:
    """Whether the process with this identity runs on this machine, in the same namespace of process ids.
    False for any other process: nothing is known about it."""
    before, _, started = named.rpartition(":")
    pid = pid_of(named)
    return pid is not None and before == f"{_place()}:{pid}" and _started(pid) == started


def boot_of(named: str) -> str:
    """The id that the machine got when it last started, in an identity; empty if the identity is."""
    return named.partition("/")[0]


def pid_of(named: str) -> int | None:
    """The process id in an identity; None if the identity is empty."""
    pid = named.rpartition(":")[0].rpartition(":")[2]
    return int(pid) if pid.isdigit() else None


def pid_of_run(worker_pid: int | None) -> int:
    """The id of the process that ran a task, from the id that its pool gave. The gevent pool gives the
    address of the greenlet instead; no system gives a process a number this high."""
    return worker_pid if worker_pid and worker_pid < 1 << 31 else os.getpid()


def private_opener(path: str, flags: int) -> int:
    """An ``opener`` for :func:`open` that makes files that only their owner may read."""
    return os.open(path, flags, FILE_MODE)


def try_lock(file: IO[Any], kind: int = fcntl.LOCK_EX) -> bool:
    """Lock ``file``, unless another process has it locked; returns whether it is locked now.

    :raises OSError: its file system has no locks.
    """
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def mapped(path: Path, size: int, mode: str = "x+b") -> mmap.mmap:
    """A new private file of this size, mapped into memory.

    :raises OSError: it cannot be made, or the disk is full. The file may exist then.
    """
    with open(path, mode, opener=private_opener) as file:
        # A page that the disk has no room for would end the process when it is written to.
        os.posix_fallocate(file.fileno(), 0, size)
        return mmap.mmap(file.fileno(), size)


def _place() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    """When the process started, in ticks since the machine did; empty if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    # The name of the program comes second, in parentheses, and may hold anything.
    state, *fields = stat.rpartition(")")[2].split()
    return "" if state in "ZX" else fields[18]
