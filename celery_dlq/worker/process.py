"""Which process this is, so that another one on the machine can tell whether it still lives."""

from __future__ import annotations

import os
from pathlib import Path


def identity() -> str:
    """What names this process among all that ran on this machine; empty where ``/proc`` is not."""
    pid = os.getpid()
    place, started = _place(), _started(pid)
    return f"{place}:{pid}:{started}" if place and started else ""


def lives(named: str) -> bool:
    """Whether the process with this identity is known to run: on this machine, in the same namespace
    of process ids. Of any other process nothing is known, and the answer is False."""
    before, _, started = named.rpartition(":")
    pid = pid_of(named)
    return pid is not None and before == f"{_place()}:{pid}" and _started(pid) == started


def pid_of(named: str) -> int | None:
    """The process id in an identity; None when it is empty."""
    pid = named.rpartition(":")[0].rpartition(":")[2]
    return int(pid) if pid.isdigit() else None


def pid_of_run(worker_pid: int | None) -> int:
    """The process that a run was in, by what its pool said: the gevent pool names a greenlet by its
    address instead. No system gives a process so high a number."""
    return worker_pid if worker_pid and worker_pid < 1 << 31 else os.getpid()


def _place() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    """When the process started, in ticks since the machine did; empty when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    # The name of the program comes second, in parentheses, and may hold anything.
    state, *fields = stat.rpartition(")")[2].split()
    return "" if state in "ZX" else fields[18]
