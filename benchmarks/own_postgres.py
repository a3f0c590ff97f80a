"""A PostgreSQL server of a benchmark's own, which counts statements; and a PgBouncer in front of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

#: Server connections that PgBouncer has for each database.
POOLED = 10

#: What neither program does as root.
_USER = "postgres" if os.getuid() == 0 else None

_POSTGRESQL = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 300
fsync = off
shared_preload_libraries = 'pg_stat_statements'
pg_stat_statements.track_utility = on
"""

_PGBOUNCER = """
[databases]
* = host=127.0.0.1 port={port} user=bench
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {pooled}
max_client_conn = 1000
"""


@contextlib.contextmanager
def postgresql() -> Iterator[int]:
    """The port of a new server, with the user ``bench``."""
    with _directory() as directory:
        data, port = directory / "data", _free_port()
        initdb = [_program("initdb"), "-D", str(data), "-U", "bench", "-A", "trust", "-N"]
        subprocess.run(initdb, user=_USER, stdout=subprocess.DEVNULL, check=True)
        with (data / "postgresql.conf").open("a") as file:
            file.write(f"port = {port}\n{_POSTGRESQL}")
        with _served([_program("postgres"), "-D", str(data)], port):
            yield port


@contextlib.contextmanager
def pgbouncer(port: int) -> Iterator[int]:
    """The port of a PgBouncer in transaction mode, before the server on ``port``."""
    with _directory() as directory:
        path, listen = directory / "pgbouncer.ini", _free_port()
        path.write_text(_PGBOUNCER.format(port=port, listen=listen, pooled=POOLED))
        with _served([_program("pgbouncer"), str(path)], listen):
            yield listen


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        if _USER is not None:
            shutil.chown(name, _USER)
        yield Path(name)


@contextlib.contextmanager
def _served(command: list[str], port: int) -> Iterator[None]:
    process = subprocess.Popen(
        command, user=_USER, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while not _listens(port):
            if process.poll() is not None:
                raise RuntimeError(f"{command[0]} has ended")
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait()


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    return False


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _program(name: str) -> str:
    """Debian keeps the server's programs apart."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    if found is None and not versions:
        raise RuntimeError(f"{name} is not installed; install postgresql and pgbouncer")
    return found or str(versions[-1])
