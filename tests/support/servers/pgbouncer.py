"""PgBouncer in front of a test's database, with few server connections for all its clients."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy.engine import make_url
from support.servers.pooler import find, running
from support.servers.ports import free_port

#: Server connections for each database.
SERVERS = 2

_CONFIG = """
[databases]
* = host={host} port={port} user={user}{password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = {servers}
max_client_conn = 500
"""


@contextlib.contextmanager
def pgbouncer(url: str, servers: int = SERVERS, mode: str = "transaction") -> Iterator[str]:
    """The URL of the same database through a PgBouncer of its own."""
    program = find("pgbouncer", "see tests/services.sh")
    given = make_url(url)
    listen = free_port()
    config = _CONFIG.format(
        host=given.host, port=given.port or 5432, user=given.username, listen=listen, servers=servers,
        mode=mode, password=f" password={given.password}" if given.password else "",
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        path = Path(directory, "pgbouncer.ini")
        path.write_text(config)
        # On SIGTERM, version 1.23 and newer wait until the last client has left.
        with running([program, str(path)], listen, path.parent, signal.SIGKILL):
            yield given.set(host="127.0.0.1", port=listen).render_as_string(hide_password=False)


def connect(url: str) -> psycopg.Connection:
    """The neighbour: a program with settings of its own."""
    at = make_url(url)
    return psycopg.connect(
        host=at.host, port=at.port, dbname=at.database, user=at.username, password=at.password,
        application_name="neighbour", autocommit=True, prepare_threshold=None,
    )  # fmt: skip


def sessions(url: str, servers: int = SERVERS) -> list[Any]:
    """What a neighbour finds in each of PgBouncer's server connections: each setting that is not the
    server's default, and each prepared statement."""
    found = {}
    with contextlib.ExitStack() as stack:
        for _ in range(servers):
            connection = stack.enter_context(connect(url))
            stack.enter_context(connection.transaction())  # holds its server connection
            pid = connection.execute("SELECT pg_backend_pid()").fetchone()[0]
            settings = connection.execute(
                "SELECT name, setting FROM pg_settings WHERE source = 'session' ORDER BY name"
            ).fetchall()
            prepared = connection.execute("SELECT name FROM pg_prepared_statements").fetchall()
            found[pid] = (settings, prepared)
    assert len(found) == servers
    return sorted(found.values())
