"""MySQL and MariaDB through PyMySQL."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from sqlalchemy import event, exc, text
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import URL, Connection, Engine

from celery_dlq.store.database.client import Client
from celery_dlq.store.database.dialects.dialect import (
    Change,
    Fault,
    Server,
    driver_args,
    whole_seconds,
)
from celery_dlq.store.database.servers import hosts_of, try_in_turn, why_read_only

#: For a value of this many bytes or more, the server is asked for its limit; every server accepts smaller
#: ones.
_ASK_FROM = 256 * 1024

#: Bytes left for the rest of the row.
_REST = 512 * 1024


class MySQL(Server):
    """A MySQL or MariaDB database."""

    name = "mysql"
    schemes = frozenset({"mysql", "mysql+pymysql", "mariadb", "mariadb+pymysql"})
    scheme = "mysql+pymysql"
    extra = "mysql"
    port = 3306
    apart = "DATABASE"
    drop_apart = "DROP DATABASE IF EXISTS {name}"
    grant_apart = "GRANT ALL ON `celery\\_dlq\\_%`.* TO {user}"
    # Each change of a table is committed at once.
    undoes_ddl = False
    clock = "SELECT UTC_TIMESTAMP(6)"
    # Held until the connection is closed.
    lock = text("SELECT GET_LOCK('celery_dlq_upgrade', 3600)")
    insert = staticmethod(mysql.insert)
    moment = mysql.DATETIME(fsp=6)
    # TEXT and BLOB end at 64 kB.
    long_text = mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin")
    blob = mysql.LONGBLOB()
    short_text = partial(mysql.VARCHAR, charset="utf8mb4", collation="utf8mb4_bin")
    table_options = {
        "mysql_engine": "InnoDB",
        "mysql_charset": "utf8mb4",
        "mysql_collate": "utf8mb4_bin",
    }
    # By error number, because the SQLSTATEs say too little.
    meanings = {
        1020: Fault.CONFLICT,  # a record changed since it was read
        1213: Fault.CONFLICT,  # deadlock
        1054: Fault.SCHEMA,  # unknown column
        1146: Fault.SCHEMA,  # no such table
        1205: Fault.LATE,  # lock wait timeout
        1969: Fault.LATE,  # a statement's time is up, on MariaDB
        3024: Fault.LATE,  # the same on MySQL
        1290: Fault.READ_ONLY,  # --read-only
        1836: Fault.READ_ONLY,  # the same of a whole server
        1044: Fault.FORBIDDEN,  # no such right in a database
        1142: Fault.FORBIDDEN,  # no such right to a table
        1143: Fault.FORBIDDEN,  # no such right to a column
        1792: Fault.READ_ONLY,  # a read-only transaction
        1040: Fault.AWAY,  # too many connections
        1045: Fault.AWAY,  # access denied
        1047: Fault.AWAY,  # a node that is not, or not yet, part of a Galera cluster
        1049: Fault.AWAY,  # unknown database
        1053: Fault.AWAY,  # shutting down
        1129: Fault.AWAY,  # too many broken connections from this machine
        1130: Fault.AWAY,  # no one is let in from this machine
        1203: Fault.AWAY,  # too many connections of a user
        1927: Fault.AWAY,  # the connection was killed, on MariaDB
        3168: Fault.AWAY,  # the server is not available
        3169: Fault.AWAY,  # the session was killed, on MySQL
        4031: Fault.AWAY,  # closed after it had not been used, on MySQL
        **dict.fromkeys(range(2000, 2100), Fault.AWAY),  # the client's own errors of its connection
    }

    def within(self, url: URL, name: str) -> URL:
        return url.set(database=name)

    def _options(self, url: URL, timeout: float | None, client: Client) -> dict[str, Any]:
        seconds = whole_seconds(timeout)
        patience = None if timeout is None else 2 * seconds
        arguments = {
            "charset": "utf8mb4",
            "connect_timeout": seconds,
            # Later than the server's own limits, whose errors say more.
            "read_timeout": patience,
            "write_timeout": patience,
            "program_name": client.name,
        }
        return {
            **self._pool(timeout, client),
            "connect_args": arguments,
            "isolation_level": "READ COMMITTED",
            "pool_pre_ping": True,
        }

    def _listen(self, engine: Engine, timeout: float | None, client: Client) -> None:
        super()._listen(engine, timeout, client)
        if hosts := hosts_of(engine.url):
            try_in_turn(engine, hosts)
        if timeout is None:
            return

        @event.listens_for(engine, "connect")
        def limit(connection: Any, _record: object) -> None:
            longest = (
                f"max_statement_time = {timeout:f}"
                if "MariaDB" in connection.get_server_info()
                else f"max_execution_time = {math.ceil(timeout * 1000)}"
            )
            wait = f"innodb_lock_wait_timeout = {whole_seconds(timeout)}"
            with connection.cursor() as cursor:
                cursor.execute(f"SET SESSION {wait}, SESSION {longest}")

    def oldest(self, connection: Connection) -> tuple[str, tuple[int, ...]]:
        # SKIP LOCKED
        is_mariadb = getattr(connection.dialect, "is_mariadb", False)
        return ("MariaDB", (10, 6)) if is_mariadb else ("MySQL", (8, 0))

    def why_read_only(self, connection: Connection) -> str:
        return why_read_only(connection.connection.driver_connection)

    def code(self, error: exc.DBAPIError) -> int | None:
        number, *_ = (*driver_args(error), None)
        return number if isinstance(number, int) else None

    def _or_change(self, insert: Any, change: Change) -> Any:
        # A list, because the server reads columns that it has set before with their new values.
        return insert.on_duplicate_key_update([*change(insert.inserted).items()])

    def why_too_large(self, connection: Connection, size: int) -> str:
        # The server closes the connection on a statement that is larger than max_allowed_packet, which looks
        # as if the server were down.
        if size < _ASK_FROM:
            return ""
        # The driver writes bytes as hexadecimal digits.
        needed, allowed = 2 * size + _REST, connection.scalar(text("SELECT @@max_allowed_packet"))
        if needed <= allowed:
            return ""
        return f"its max_allowed_packet is {allowed:,}; set it to {needed:,} or more"
