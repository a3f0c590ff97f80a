"""Probes of SQL databases: SQLAlchemy, the drivers of MySQL, SQLite, Oracle, SQL Server, Snowflake and Trino,
Django, peewee and Tortoise. PostgreSQL has its own module.

SQLAlchemy wraps the exceptions of the drivers. Django, peewee and Tortoise raise their own errors over them.
aiosqlite raises the exceptions of sqlite3.
"""

from __future__ import annotations

import re

from celery_dlq.classify.builtin.codes import numbers, texts, words
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

# -- MySQL and MariaDB ------------------------------------------------------------------------------

_MYSQL_NETWORK = numbers("mysql.network")
MYSQL_NUMBERS = numbers("mysql.network", "mysql.passing")

# Galera answers "unknown command" while a node joins: sql/wsrep_mysqld.cc.
_UNKNOWN_COMMAND, _JOINING = 1047, "WSREP has not yet prepared node"

_MYSQL_WILL_PASS = texts("mysql.texts")


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

ORACLE_NUMBERS = numbers("oracle.numbers")
_TRANSIENT_DRIVER_CODES = words("oracle.driver")
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

MSSQL_NUMBERS = numbers("mssql.numbers")
_ODBC_SQLSTATES = words("mssql.odbc")
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

SNOWFLAKE_NUMBERS = numbers("snowflake.numbers")
# snowflake/connector/auth/_auth.py: an OperationalError if the service was out of reach, but a
# DatabaseError if it refused the login. Both have the SQLSTATE 08001.
_NOT_CONNECTED = 250001
_UNREACHABLE = "snowflake.connector.errors.OperationalError"

TRINO_NAMES = words("trino.names")


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
