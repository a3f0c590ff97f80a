"""A Redis of a test's own, which may be spoiled, filled up, and asked about all that is in it."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.servers.ports import free_port
from support.workers.processes import with_parent


@contextlib.contextmanager
def own_redis(directory: Path) -> Iterator[str]:
    """Its URL; it keeps nothing on disk."""
    import redis

    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not installed")
    port = free_port()
    command = [
        program, "--bind", "127.0.0.1", "--port", str(port), "--dir", str(directory), "--save", "",
    ]  # fmt: skip
    with subprocess.Popen(with_parent(command), stdout=subprocess.DEVNULL) as process:
        try:
            with redis.Redis(port=port) as client:
                _wait_for(client)
            yield f"redis://127.0.0.1:{port}"
        finally:
            process.terminate()


def _wait_for(client: object) -> None:
    from redis import ConnectionError as Refused

    deadline = time.monotonic() + 30
    while True:
        try:
            client.ping()  # type: ignore[attr-defined]
        except Refused:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return
