"""MySQL and MariaDB through PyMySQL, mysqlclient and mysql-connector: the error number decides.

The SQLSTATE would mislead: too many connections of one user (1226) has 42000, the class of syntax
errors, and a packet that is too large (1153) has 08S01, the class of lost connections.
"""

from __future__ import annotations

import re

from celery_dlq.classify.evidence import arguments, message, vendor_code
from celery_dlq.classify.table import Finding, probed, transient, within
from celery_dlq.states import Verdict

# MySQL reference, "Server Error Message Reference" and "Client Error Message Reference"; the first
# two lines are MySqlConnector's IsErrorTransient and SQLAlchemy's is_disconnect.
TRANSIENT_NUMBERS = frozenset(
    {
        1040, 1042, 1205, 1213, 1614,  # connections, host, lock wait, deadlock, XA deadlock
        1927, 2002, 2003, 2006, 2013, 2014, 2045, 2055, 4031,  # connection lost or never made
        1020, 1203, 1226,  # row changed since read, connections or quota of one user
        1053, 1158, 1159, 1160, 1161,  # shutdown, packet errors
        1637, 3101, 3572,  # too many transactions, group replication rollback, NOWAIT
        1969, 3024,  # statement timeout: MariaDB, MySQL
    }
)  # fmt: skip

# mysql/connector/connection.py and pooling.py; pymysql/connections.py ping() on a stale connection.
_WILL_PASS = re.compile(
    r"MySQL Connection not available|Connection to MySQL is not available|pool exhausted"
    r"|Already closed"
)


def mysql_error(exc: BaseException) -> Finding | None:
    """The error number; without one, the texts of a stale connection and a used-up pool."""
    found = vendor_code(exc)
    if found is None or found[0] <= 0:
        return _without_number(exc)
    code, source = found
    verdict = Verdict.TRANSIENT if code in TRANSIENT_NUMBERS else Verdict.TERMINAL
    return Finding(verdict, "mysql.errno", f"errno={code} from {source}")


def _without_number(exc: BaseException) -> Finding | None:
    # PyMySQL and mysqlclient say (0, '') of a connection that is already closed.
    args = arguments(exc)
    if len(args) == 2 and type(args[0]) is int and type(args[1]) is str and not args[1]:
        return Finding(Verdict.TRANSIENT, "mysql.message", "the connection was already closed")
    text = _WILL_PASS.search(message(exc))
    if text is not None:
        return Finding(Verdict.TRANSIENT, "mysql.message", f"message has {text[0]!r}")
    return None


ROWS = (
    transient(
        "mysql.timeout",
        *within(
            "mysql.connector.errors", "ConnectionTimeoutError ReadTimeoutError WriteTimeoutError"
        ),
    ),
    probed(
        "mysql.errno",
        mysql_error,
        "the error number in errno or args[0]",
        "pymysql.err.MySQLError",
        "MySQLdb._exceptions.MySQLError",
        "mysql.connector.errors.Error",
    ),
)
