"""SQL Server through pymssql and pyodbc; pyodbc also stands for any other database."""

from __future__ import annotations

import re

from celery_dlq.classify.builtin.behind import lasting_text
from celery_dlq.classify.evidence import arguments, message, number, read, text_of
from celery_dlq.classify.table import Finding, probed
from celery_dlq.model.states import Verdict

# EF Core's SqlServerTransientExceptionDetector: deadlock, limits of Azure SQL, in-memory conflicts,
# lost connections. Then a lock timeout, a snapshot conflict, and waits for memory.
TRANSIENT_NUMBERS = frozenset(
    {
        20, 64, 121, 233, 1205, 10053, 10054, 10060, 10928, 10929, 40197, 40501, 40613,
        41301, 41302, 41305, 41325, 41839, 49918, 49919, 49920,
        -2, 1222, 3960, 8645, 8651, 10061, 10936, 17142, 17197, 40143, 40540,
        # FreeTDS, sybdb.h: no connection, timeout, read, write, unable to connect, EOF, dead.
        20002, 20003, 20004, 20006, 20009, 20017, 20047,
    }
)  # fmt: skip

# "ODBC Error Codes" of Microsoft's reference: connection, timeouts; class 40 is a rollback.
_TRANSIENT_SQLSTATES = frozenset({"08001", "08003", "08004", "08007", "08S01", "HYT00", "HYT01"})
_ROLLBACK = "40"
_SQLSTATE = re.compile(r"[0-9A-Z]{5}\Z")

# "[SQL Server]Transaction … (1205) (SQLExecDirectW)": the native number precedes ODBC's function.
_NATIVE = re.compile(r"\((-?[0-9]{1,6})\) \(SQL[A-Za-z]+\)")


def odbc_error(exc: BaseException) -> Finding | None:
    """The server's number in the text if it is known to pass, else the SQLSTATE in ``args[0]``."""
    args = arguments(exc)
    sqlstate = text_of(args[0]) if args else None
    if sqlstate is None or not _SQLSTATE.match(sqlstate):
        return None
    text = (text_of(args[1]) or "") if len(args) > 1 else ""
    native = _NATIVE.search(text)
    if native is not None and int(native[1]) in TRANSIENT_NUMBERS and sqlstate != "28000":
        return lasting_text(text) or _found(Verdict.TRANSIENT, f"number={native[1]} in args[1]")
    passes = sqlstate in _TRANSIENT_SQLSTATES or sqlstate.startswith(_ROLLBACK)
    verdict = Verdict.TRANSIENT if passes else Verdict.TERMINAL
    return lasting_text(text) or _found(verdict, f"sqlstate={sqlstate} from args[0]")


def mssql_error(exc: BaseException) -> Finding | None:
    """The server's or DB-Lib's number: in ``number``, in ``args[0]``, or in a tuple in there."""
    first = next(iter(arguments(exc)), None)
    if type(first) is tuple and first:
        first = first[0]
    code = first if type(first) is int else number(read(exc, "number"))
    if code is None:
        return _without_number(exc)
    verdict = Verdict.TRANSIENT if code in TRANSIENT_NUMBERS else Verdict.TERMINAL
    return _found(verdict, f"number={code}")


def _without_number(exc: BaseException) -> Finding | None:
    # pymssql/_pymssql.pyx: what it says of a connection that was closed or lost.
    text = message(exc)
    if text.startswith(("Not connected to any MS SQL server", "Connection is closed")):
        return _found(Verdict.TRANSIENT, f"message {text[:40]!r}")
    return None


def _found(verdict: Verdict, evidence: str) -> Finding:
    return Finding(verdict, "mssql.number", evidence)


ROWS = (
    probed(
        "mssql.number",
        mssql_error,
        "the number in args[0]",
        "pymssql.exceptions.Error",
        "pymssql._pymssql.Error",
        "pymssql._mssql.MSSQLException",
        "_mssql.MSSQLException",
    ),
    probed(
        "mssql.number",
        odbc_error,
        "the SQLSTATE in args[0] and the number in args[1]",
        "pyodbc.Error",
    ),
)
