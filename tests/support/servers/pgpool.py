"""PgPool-II in front of a test's database, which keeps connections to the server for later clients."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy.engine import make_url
from support.servers.pooler import find, running
from support.servers.ports import free_port

# A session that a test kills must not make PgPool-II give up its only server.
_CONFIG = """
backend_clustering_mode = 'streaming_replication'
listen_addresses = '127.0.0.1'
port = {listen}
socket_dir = '{directory}'
pcp_listen_addresses = ''
pcp_port = {pcp}
pcp_socket_dir = '{directory}'
wd_ipc_socket_dir = '{directory}'
pid_file_name = '{directory}/pgpool.pid'
logdir = '{directory}'
backend_hostname0 = '{host}'
backend_port0 = {port}
backend_flag0 = 'ALWAYS_PRIMARY|DISALLOW_TO_FAILOVER'
failover_on_backend_error = off
sr_check_period = 0
allow_clear_text_frontend_auth = on
pool_passwd = ''
connection_cache = on
num_init_children = 32
max_pool = 1
reset_query_list = 'ABORT; DISCARD ALL'
load_balance_mode = off
"""


@contextlib.contextmanager
def pgpool(url: str) -> Iterator[str]:
    """The URL of the same database through a PgPool-II of its own."""
    program = find("pgpool", "Debian's package is pgpool2")
    given = make_url(url)
    listen = free_port()
    with tempfile.TemporaryDirectory() as directory:
        # It writes its sockets and files there.
        os.chmod(directory, 0o777)
        path = Path(directory, "pgpool.conf")
        config = _CONFIG.format(
            host=given.host, port=given.port or 5432, listen=listen, pcp=free_port(),
            directory=directory,
        )  # fmt: skip
        path.write_text(config)
        # Without its file of administrators, it would read the machine's.
        command = [program, "-n", "-D", "-f", str(path), "-F", os.devnull]
        # On SIGTERM, it waits until the last client has left.
        with running(command, listen, path.parent, signal.SIGINT):
            yield given.set(host="127.0.0.1", port=listen).render_as_string(hide_password=False)
