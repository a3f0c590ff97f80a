"""Probes of SQL databases: SQLAlchemy, the drivers of MySQL, SQLite, Oracle, SQL Server, Snowflake and Trino,
Django, peewee and Tortoise. PostgreSQL has its own module.

SQLAlchemy wraps the exceptions of the drivers. Django, peewee and Tortoise raise their own errors over them.
aiosqlite raises the exceptions of sqlite3.
"""

from __future__ import annotations

import re

from celery_dlq.classify.builtin.http import status_in_text
from celery_dlq.classify.builtin.postgres import postgres_text, sqlstate_of
from celery_dlq.classify.builtin.stdlib import lasting_text, unless_lasting
from celery_dlq.classify.chain import causes
from celery_dlq.classify.evidence import (
    arguments,
    bases,
    dotted_name,
    message,
    number,
    read,
    text_of,
    vendor_code,
)
from celery_dlq.classify.table import Finding, Probe, transient_if
from celery_dlq.model.states import Verdict


def disconnected(exc: BaseException) -> Finding | None:
    """SQLAlchemy sets ``connection_invalidated`` to the result of the dialect's ``is_disconnect()``."""
    if read(exc, "connection_invalidated") is not True:
        return None
    return Finding(Verdict.TRANSIENT, "sqlalchemy.disconnect", "connection_invalidated=True")


# -- MySQL and MariaDB ------------------------------------------------------------------------------

# MySQL reference, "Client Error Message Reference": a connection that was never made, or is lost.
# A certificate or an unknown host behind it is terminal.
_MYSQL_NETWORK = frozenset({2001, 2002, 2003, 2004, 2006, 2013, 2014, 2045, 2055})

# MySQL and MariaDB reference, "Server Error Message Reference"; the first line is MySqlConnector's
# IsErrorTransient, the second SQLAlchemy's is_disconnect.
MYSQL_NUMBERS = _MYSQL_NETWORK | frozenset(
    {
        1040, 1042, 1205, 1213, 1614,  # connections, host, lock wait, deadlock, XA deadlock
        1927, 4031,  # connection killed, idle for too long
        1020, 1203, 1226,  # row changed since read, connections or quota of one user
        1053, 1079, 1152, 1154, 1158, 1159, 1160, 1161, 1184,  # shutdown, aborted, packet errors
        1037, 1041, 1135,  # the server is short of memory or threads
        1297, 1412, 1613, 1615,  # "temporary", table changed, XA timeout, prepare again
        1637, 1689, 3101, 3572,  # too many transactions, lock given up, group replication rollback, NOWAIT
        1969, 3024,  # statement timeout: MariaDB, MySQL
        3032, 3058, 3132, 3133, 3168,  # offline mode, deadlock and timeout of user locks, not available
    }
)  # fmt: skip

# Galera answers "unknown command" while a node joins: sql/wsrep_mysqld.cc.
_UNKNOWN_COMMAND, _JOINING = 1047, "WSREP has not yet prepared node"

# mysql/connector/connection.py and pooling.py; pymysql/connections.py ping() on a stale connection;
# aiomysql/connection.py _ensure_alive().
_MYSQL_WILL_PASS = re.compile(
    r"MySQL Connection not available|Connection to MySQL is not available|pool exhausted"
    r"|Already closed|Not connected"
)


def mysql_error(exc: BaseException) -> Finding | None:
    """The error number; without one, the texts of a stale connection and a used-up pool.

    The SQLSTATE would mislead: too many connections of one user (1226) has 42000, the class of syntax errors,
    and a packet that is too large (1153) has 08S01, the class of lost connections.
    """
    found = vendor_code(exc)
    if found is None or found[0] <= 0:
        return _mysql_without_number(exc)
    code, source = found
    evidence = f"errno={code} from {source}"
    if code in _MYSQL_NETWORK:
        return unless_lasting(exc, "mysql.errno", evidence)
    joining = code == _UNKNOWN_COMMAND and _JOINING in message(exc)
    passes = joining or code in MYSQL_NUMBERS
    return transient_if(passes, "mysql.errno", evidence)


def _mysql_without_number(exc: BaseException) -> Finding | None:
    # PyMySQL and mysqlclient raise (0, '') on a connection that is already closed.
    args = arguments(exc)
    if len(args) == 2 and type(args[0]) is int and type(args[1]) is str and not args[1]:
        return Finding(Verdict.TRANSIENT, "mysql.message", "the connection was already closed")
    text = _MYSQL_WILL_PASS.search(message(exc))
    if text is not None:
        return Finding(Verdict.TRANSIENT, "mysql.message", f"message has {text[0]!r}")
    return None


# -- SQLite -----------------------------------------------------------------------------------------

# sqlite.org/rescode.html: the low byte of an extended code is the primary one.
_BUSY_CODES = {5: "SQLITE_BUSY", 6: "SQLITE_LOCKED"}
#: Python 3.10 has no sqlite_errorcode; the texts are sqlite3.c's sqlite3ErrStr().
_BUSY_TEXTS = ("database is locked", "database table is locked", "database schema is locked")


def sqlite_error(exc: BaseException) -> Finding:
    """Decides by the primary result code; before Python 3.11, by the text."""
    code = number(read(exc, "sqlite_errorcode"))
    if code is not None:
        name = _BUSY_CODES.get(code & 0xFF)
        evidence = f"code={name or code} from sqlite_errorcode"
        return transient_if(name is not None, "sqlite.code", evidence)
    busy = message(exc).startswith(_BUSY_TEXTS)
    return transient_if(busy, "sqlite.code", "no sqlite_errorcode; the message decides")


# -- Oracle -----------------------------------------------------------------------------------------

# Oracle Database Error Messages. The second half is the network layer (TNS).
ORACLE_NUMBERS = frozenset(
    {
        18, 20, 28, 51, 54, 60,  # sessions, processes, killed, resource wait, busy, deadlock
        376, 1012, 1033, 1034, 1089, 1090, 1092, 1115,  # file, not logged on, start, shutdown
        2391, 2396, 2399, 3113, 3114, 3135, 3136,  # limits of a session, connection lost
        4020, 4021, 4061, 4068, 8177, 30006,  # locks on objects, package state, serialization
        12152, 12153, 12157, 12161, 12170, 12224, 12500, 12514, 12516, 12518, 12519, 12520, 12525,
        12526, 12527, 12528, 12530, 12535, 12537, 12540, 12541, 12543, 12547, 12560, 12564, 12570,
        12571, 12606, 12607, 12608, 12609, 12757, 25401, 25402, 25403, 25405, 25408, 25409,
    }
)  # fmt: skip

# oracledb/errors.py (DPY; 6005 is its ORA-12541, 6001 its ORA-12514) and ODPI-C's
# dpiErrorMessages.h (DPI): not connected, pool, closed, call timeout, idle for too long.
_TRANSIENT_DRIVER_CODES = frozenset(
    {
        "DPY-1001", "DPY-4005", "DPY-4011", "DPY-4024", "DPY-4033", "DPY-6001", "DPY-6005",
        "DPI-1010", "DPI-1067", "DPI-1080",
    }
)  # fmt: skip
_DRIVER_CODE = re.compile(r"(?:DPY|DPI)-[0-9]{4}")


def oracle_error(exc: BaseException) -> Finding | None:
    """python-oracledb and cx_Oracle: the error object in ``args[0]``.

    It decides by ``isrecoverable``, the driver's own code, or the database's number.
    """
    error = next(iter(arguments(exc)), None)
    if read(error, "isrecoverable") is True:
        return Finding(Verdict.TRANSIENT, "oracle.code", "isrecoverable=True from args[0]")
    driver_code = _DRIVER_CODE.match(text_of(read(error, "full_code")) or text_of(error) or "")
    if driver_code is None and text_of(read(error, "message")) is not None:
        driver_code = _DRIVER_CODE.match(text_of(read(error, "message")) or "")
    if driver_code is not None:
        evidence = f"code={driver_code[0]} from args[0]"
        if driver_code[0] in _TRANSIENT_DRIVER_CODES:
            return unless_lasting(exc, "oracle.code", evidence)
        return Finding(Verdict.TERMINAL, "oracle.code", evidence)
    code = number(read(error, "code"))
    if not code:
        return None
    evidence = f"code=ORA-{code:05} from args[0].code"
    return transient_if(code in ORACLE_NUMBERS, "oracle.code", evidence)


# -- SQL Server and ODBC ----------------------------------------------------------------------------

# EF Core's SqlServerTransientExceptionDetector: deadlock, limits of Azure SQL, in-memory conflicts,
# lost connections. Then a lock timeout, a snapshot conflict, and waits for memory.
MSSQL_NUMBERS = frozenset(
    {
        20, 64, 121, 233, 1205, 10053, 10054, 10060, 10928, 10929, 40197, 40501, 40613,
        41301, 41302, 41305, 41325, 41839, 49918, 49919, 49920,
        -2, 1222, 3960, 8645, 8651, 10061, 10936, 17142, 17197, 40143, 40540,
        # FreeTDS, sybdb.h: no connection, timeout, read, write, unable to connect, EOF, dead.
        20002, 20003, 20004, 20006, 20009, 20017, 20047,
    }
)  # fmt: skip

# "ODBC Error Codes" of Microsoft's reference: connection, timeouts; class 40 is a rollback.
_ODBC_SQLSTATES = frozenset({"08001", "08003", "08004", "08007", "08S01", "HYT00", "HYT01"})
_ROLLBACK = "40"
_SQLSTATE = re.compile(r"[0-9A-Z]{5}\Z")

# "[SQL Server]Transaction … (1205) (SQLExecDirectW)": the native number precedes ODBC's function.
_NATIVE = re.compile(r"\((-?[0-9]{1,6})\) \(SQL[A-Za-z]+\)")

# pymssql/_pymssql.pyx: a connection that was closed or lost.
_MSSQL_CLOSED = ("Not connected to any MS SQL server", "Connection is closed")


def odbc_error(exc: BaseException) -> Finding | None:
    """The server's number in the text if it is known to pass, else the SQLSTATE in ``args[0]``."""
    args = arguments(exc)
    sqlstate = text_of(args[0]) if args else None
    if sqlstate is None or not _SQLSTATE.match(sqlstate):
        return None
    text = (text_of(args[1]) or "") if len(args) > 1 else ""
    native = _NATIVE.search(text)
    if native is not None and int(native[1]) in MSSQL_NUMBERS and sqlstate != "28000":
        passes, evidence = True, f"number={native[1]} in args[1]"
    else:
        passes = sqlstate in _ODBC_SQLSTATES or sqlstate.startswith(_ROLLBACK)
        evidence = f"sqlstate={sqlstate} from args[0]"
    return lasting_text(text) or transient_if(passes, "mssql.number", evidence)


def mssql_error(exc: BaseException) -> Finding | None:
    """The server's or DB-Lib's number: in ``number``, in ``args[0]``, or in a tuple in there."""
    first = next(iter(arguments(exc)), None)
    if type(first) is tuple and first:
        first = first[0]
    code = first if type(first) is int else number(read(exc, "number"))
    if code is not None:
        return transient_if(code in MSSQL_NUMBERS, "mssql.number", f"number={code}")
    text = message(exc)
    if text.startswith(_MSSQL_CLOSED):
        return Finding(Verdict.TRANSIENT, "mssql.number", f"message {text[:40]!r}")
    return None


# -- Snowflake and Trino ----------------------------------------------------------------------------

# snowflake/connector/errorcode.py: closed, no answer, timed out, an answer to try again, a chunk or a
# file that did not come. Then the server's: 625 a lock that is held, 630 a statement timeout.
SNOWFLAKE_NUMBERS = frozenset(
    {250002, 250003, 250005, 251011, 251012, 252010, 253002, 253003, 625, 630}
)
# snowflake/connector/auth/_auth.py: an OperationalError if the service was out of reach, but a
# DatabaseError if it refused the login. Both have the SQLSTATE 08001.
_NOT_CONNECTED = 250001
_UNREACHABLE = "snowflake.connector.errors.OperationalError"

# Trino, core/trino-spi StandardErrorCode: nodes that are gone, starting, or short of room for all.
TRINO_NAMES = frozenset(
    {
        "ABANDONED_TASK", "ADMINISTRATIVELY_PREEMPTED", "CLUSTER_OUT_OF_MEMORY", "NO_NODES_AVAILABLE",
        "PAGE_TRANSPORT_ERROR", "PAGE_TRANSPORT_TIMEOUT", "QUERY_QUEUE_FULL", "REMOTE_HOST_GONE",
        "REMOTE_TASK_ERROR", "REMOTE_TASK_MISMATCH", "SERVER_SHUTTING_DOWN", "SERVER_STARTING_UP",
        "TOO_MANY_REQUESTS_FAILED", "TRANSACTION_CONFLICT",
    }
)  # fmt: skip


def snowflake_error(exc: BaseException) -> Finding | None:
    """``errno``; -1 means none, and a refused login has the SQLSTATE of a lost connection."""
    found = vendor_code(exc)
    if found is None or found[0] <= 0:
        return None
    code, source = found
    evidence = f"errno={code} from {source}"
    names = [dotted_name(base) for base in bases(type(exc))]
    if code in SNOWFLAKE_NUMBERS or (code == _NOT_CONNECTED and _UNREACHABLE in names):
        return unless_lasting(exc, "snowflake.errno", evidence)
    return Finding(Verdict.TERMINAL, "snowflake.errno", evidence)


def trino_name(exc: BaseException) -> Finding:
    """``error_name``; a mistake of the query, or of a catalog behind it, stays."""
    name = text_of(read(exc, "error_name"))
    return transient_if(name in TRINO_NAMES, "trino.name", f"error_name={name}")


# trino/client.py, raise_response_error().
trino_answer: Probe = status_in_text(r"error ([0-9]{3})\b")

# -- Django, peewee and Tortoise --------------------------------------------------------------------


def driver_error(exc: BaseException) -> Finding | None:
    """The finding by the driver's number or text; None if the driver's own exception is there to decide."""
    if causes(exc):
        return None
    first = next(iter(arguments(exc)), None)
    if type(first) is int:
        return mysql_error(exc)
    text = message(exc)
    if text.startswith(_BUSY_TEXTS):
        return Finding(
            Verdict.TRANSIENT, "sqlite.code", "no driver's exception; the message decides"
        )
    return postgres_text(text)


def tortoise_connection(exc: BaseException) -> Finding:
    """Tortoise raises it for a refused connection, and also for a missing database (tortoise/backends)."""
    for cause in causes(exc):
        finding = mysql_error(cause) or sqlstate_of(cause)
        if finding is not None:
            return finding
    return unless_lasting(exc, "tortoise.connection", "type=tortoise.exceptions.DBConnectionError")
