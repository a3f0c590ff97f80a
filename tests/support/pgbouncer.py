"""PgBouncer in front of a test's database, with few server connections for all its clients."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url
from support.ports import free_port

#: Server connections for each database.
SERVERS = 2

_PATIENCE_S = 30

_CONFIG = """
[databases]
* = host={host} port={port} user={user}{password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {servers}
max_client_conn = 500
"""


@contextlib.contextmanager
def pgbouncer(url: str, servers: int = SERVERS) -> Iterator[str]:
    """The URL of the same database through a PgBouncer of its own, in transaction mode."""
    program = _program()
    given = make_url(url)
    listen = free_port()
    config = _CONFIG.format(
        host=given.host, port=given.port or 5432, user=given.username, listen=listen, servers=servers,
        password=f" password={given.password}" if given.password else "",
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        path = Path(directory, "pgbouncer.ini")
        path.write_text(config)
        log = Path(directory, "log")
        with log.open("w") as output:
            process = subprocess.Popen(
                [program, str(path)], stdout=output, stderr=output, user=_user()
            )
        try:
            _wait_for(process, listen, log)
            yield given.set(host="127.0.0.1", port=listen).render_as_string(hide_password=False)
        finally:
            process.terminate()
            process.wait(_PATIENCE_S)


def _program() -> str:
    found = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")
    if found is None:
        message = "pgbouncer is not installed; see tests/services.sh"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return found


def _user() -> int | None:
    """PgBouncer refuses to run as root."""
    return None if os.getuid() else pwd.getpwnam("nobody").pw_uid


def _wait_for(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        time.sleep(0.05)
    pytest.fail(f"pgbouncer does not listen: {log.read_text()}")
