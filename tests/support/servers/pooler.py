"""A pooler's own process: it starts, listens on a port, and ends with its tests."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

_PATIENCE_S = 30


@contextlib.contextmanager
def running(
    command: Sequence[str], port: int, directory: Path, stop: signal.Signals
) -> Iterator[None]:
    """Run ``command`` as a user without rights, because poolers refuse to run as root.

    :param stop: the signal that ends it although clients are connected.
    """
    log = directory / "log"
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, user=_user())
    try:
        _wait_for(process, port, log)
        yield
    finally:
        process.send_signal(stop)
        process.wait(_PATIENCE_S)


def find(name: str, hint: str) -> str:
    """The path of this program, which Debian puts where a user's PATH does not look."""
    found = shutil.which(name) or shutil.which(f"/usr/sbin/{name}")
    if found is None:
        message = f"{name} is not installed; {hint}"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return found


def _user() -> int | None:
    return None if os.getuid() else pwd.getpwnam("nobody").pw_uid


def _wait_for(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        time.sleep(0.05)
    pytest.fail(f"{process.args[0]} does not listen: {log.read_text()}")
