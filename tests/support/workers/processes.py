"""Processes: whose child is whose, and how to have them die with the run."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path


def with_parent(command: Sequence[str], user: str | None = None) -> list[str]:
    """``command``, killed when the thread that starts it ends however it may; as ``user`` if given."""
    setpriv = shutil.which("setpriv") or "setpriv"
    as_user = [f"--reuid={user}", f"--regid={user}", "--init-groups"] if user else []
    return [setpriv, *as_user, "--pdeathsig=KILL", *command]


def children(pid: int) -> list[int]:
    """The living processes that ``pid`` has started, oldest first."""
    return sorted(child for child, parent in _parents().items() if parent == pid)


def family(pid: int) -> list[int]:
    """``pid`` and all that came from it; parents before their children."""
    parents, found = _parents(), [pid]
    for member in found:
        found += [child for child, parent in parents.items() if parent == member]
    return found


def kill_with_its_pool(process: subprocess.Popen[bytes]) -> None:
    """Kill a worker, as when its machine goes down. Without the parent, a pool process may still finish its
    task and report the success."""
    if process.poll() is None:
        for pid in family(process.pid):
            with contextlib.suppress(ProcessLookupError):  # the kernel was faster
                os.kill(pid, signal.SIGKILL)
    process.wait()


def _parents() -> dict[int, int]:
    """Each living process's parent."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            # The name in brackets may hold anything; after it come the state and the parent.
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                found[int(path.parent.name)] = int(parent)
    return found
