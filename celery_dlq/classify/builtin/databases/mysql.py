"""MySQL and MariaDB through PyMySQL, aiomysql, asyncmy, mysqlclient, mysql-connector and mariadb.

The error number decides. The SQLSTATE would mislead: too many connections of one user (1226) has
42000, the class of syntax errors, and a packet that is too large (1153) has 08S01, the class of lost
connections.
"""

from __future__ import annotations

import re

from celery_dlq.classify.builtin.behind import unless_lasting
from celery_dlq.classify.evidence import arguments, message, vendor_code
from celery_dlq.classify.table import Finding, probed, terminal, transient, within
from celery_dlq.model.states import Verdict

# MySQL reference, "Client Error Message Reference": a connection that was never made, or is lost.
# A certificate or an unknown host behind it is no passing trouble.
NETWORK_NUMBERS = frozenset({2001, 2002, 2003, 2004, 2006, 2013, 2014, 2045, 2055})

# MySQL and MariaDB reference, "Server Error Message Reference"; the first line is MySqlConnector's
# IsErrorTransient, the second SQLAlchemy's is_disconnect.
TRANSIENT_NUMBERS = NETWORK_NUMBERS | frozenset(
    {
        1040, 1042, 1205, 1213, 1614,  # connections, host, lock wait, deadlock, XA deadlock
        1927, 4031,  # connection killed, idle for too long
        1020, 1203, 1226,  # row changed since read, connections or quota of one user
        1053, 1079, 1152, 1154, 1158, 1159, 1160, 1161, 1184,  # shutdown, aborted, packet errors
        1037, 1041, 1135,  # the server is short of memory or threads
        1297, 1412, 1613, 1615, 1689,  # "temporary", table changed, XA timeout, prepare anew, lock given up
        1637, 3101, 3572,  # too many transactions, group replication rollback, NOWAIT
        1969, 3024,  # statement timeout: MariaDB, MySQL
        3032, 3058, 3132, 3133, 3168,  # offline mode, deadlock and timeout of user locks, not available
    }
)  # fmt: skip

# Galera answers "unknown command" while a node joins: sql/wsrep_mysqld.cc.
_UNKNOWN_COMMAND, _JOINING = 1047, "WSREP has not yet prepared node"

# mysql/connector/connection.py and pooling.py; pymysql/connections.py ping() on a stale connection;
# aiomysql/connection.py _ensure_alive().
_WILL_PASS = re.compile(
    r"MySQL Connection not available|Connection to MySQL is not available|pool exhausted"
    r"|Already closed|Not connected"
)


def mysql_error(exc: BaseException) -> Finding | None:
    """The error number; without one, the texts of a stale connection and a used-up pool."""
    found = vendor_code(exc)
    if found is None or found[0] <= 0:
        return _without_number(exc)
    code, source = found
    evidence = f"errno={code} from {source}"
    if code in NETWORK_NUMBERS:
        return unless_lasting(exc, "mysql.errno", evidence)
    joining = code == _UNKNOWN_COMMAND and _JOINING in message(exc)
    passes = joining or code in TRANSIENT_NUMBERS
    return Finding(Verdict.TRANSIENT if passes else Verdict.TERMINAL, "mysql.errno", evidence)


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
        "asyncmy.errors.MySQLError",
        "MySQLdb._exceptions.MySQLError",
        "_mysql_exceptions.MySQLError",
        "mariadb.Error",
        "mysql.connector.errors.Error",
    ),
    # aiomysql/sa/exc.py.
    terminal("mysql.usage", "aiomysql.sa.exc.Error"),
)
