"""PostgreSQL through psycopg, psycopg2, aiopg, asyncpg, pg8000, and SQLAlchemy's adapter of asyncpg.

The classes decide nothing: an OperationalError may be a deadlock or a wrong password. The SQLSTATE
decides (PostgreSQL documentation, appendix A), and libpq's text where a connection was never made,
since neither psycopg nor psycopg2 has a SQLSTATE there.
"""

from __future__ import annotations

import re

from celery_dlq.classify.builtin.behind import unless_lasting
from celery_dlq.classify.builtin.databases.postgres_texts import (
    REFUSED,
    STATEMENT_TIMEOUT,
    WILL_PASS,
)
from celery_dlq.classify.evidence import (
    arguments,
    mapping_item,
    message,
    shown_name,
    sqlstate,
    text_of,
)
from celery_dlq.classify.table import Finding, probed, terminal, transient, within
from celery_dlq.model.states import Verdict

# PostgreSQL documentation 13.5 (40001, 40P01) and Npgsql's PostgresException.IsTransient, without
# what needs an operator. 25P03, 25P04 and 57P05 are the server's limits on idle or long transactions.
TRANSIENT_SQLSTATES = frozenset(
    {
        "08000", "08001", "08003", "08004", "08006", "08007", "25P03", "25P04",
        "53000", "53100", "53200", "53300", "53400", "55006", "55P03",
        "57P01", "57P02", "57P03", "57P05", "58000", "58030",
    }
)  # fmt: skip
# Class 40, transaction rollback, as a whole.
_ROLLBACK = "40"

# SQLSTATEs that mean several things. 57014: a timeout is about load, a user's cancel is not.
# 0A000: a migration ran under a prepared statement, a new statement works
# (src/backend/utils/cache/plancache.c; the second text is asyncpg's own). 08P01: pgbouncer's refusals.
_WILL_PASS_WITH = {
    "57014": STATEMENT_TIMEOUT,
    "0A000": re.compile("cached plan must not change result type|cached statement plan is invalid"),
    "08P01": re.compile(
        "query_wait_timeout|server conn crashed|no more connections allowed|client_idle_timeout"
        "|pgbouncer cannot connect to server|server login has been failing"
    ),
}


def sqlstate_of(exc: BaseException) -> Finding | None:
    """The SQLSTATE, with a look at the text of those that mean several things."""
    found = sqlstate(exc)
    if found is None:
        return None
    code, source = found
    return _by_sqlstate(code, source, message(exc) if code in _WILL_PASS_WITH else "")


def _by_sqlstate(code: str, source: str, text: str) -> Finding:
    evidence = f"sqlstate={code} from {source}"
    if code in _WILL_PASS_WITH:
        words = _WILL_PASS_WITH[code].search(text)
        if words is not None:
            return Finding(Verdict.TRANSIENT, "pg.sqlstate", f"{evidence}, {words[0]!r}")
    passes = code in TRANSIENT_SQLSTATES or code.startswith(_ROLLBACK)
    return Finding(Verdict.TRANSIENT if passes else Verdict.TERMINAL, "pg.sqlstate", evidence)


def postgres_error(exc: BaseException) -> Finding | None:
    """The SQLSTATE, else libpq's text.

    Neither is known of the rollback that fails because the connection just broke ("sending query
    failed: another command is already in progress"); what broke it is its context.
    """
    return sqlstate_of(exc) or postgres_text(message(exc))


def passing_class(exc: BaseException) -> Finding:
    """psycopg2 has a class for each SQLSTATE, and fills in the code only where the server sent one."""
    evidence = f"type={shown_name(type(exc))}"
    return sqlstate_of(exc) or Finding(Verdict.TRANSIENT, "pg.sqlstate", evidence)


def cancelled(exc: BaseException) -> Finding:
    """psycopg2's class for 57014."""
    return sqlstate_of(exc) or _by_sqlstate("57014", "the type", message(exc))


def pg8000_error(exc: BaseException) -> Finding | None:
    """pg8000/core.py: the fields of the server's message as a dict, ``C`` the code, ``M`` the text."""
    fields = next(iter(arguments(exc)), None)
    code = text_of(mapping_item(fields, "C"))
    if code is not None:
        return _by_sqlstate(code, "args[0]['C']", text_of(mapping_item(fields, "M")) or "")
    text = message(exc)
    if text.startswith("Can't create a connection"):
        return unless_lasting(exc, "pg.message", 'message has "Can\'t create a connection"')
    return postgres_text(text)


def postgres_text(text: str) -> Finding | None:
    """What the text says of a connection that was refused, or that broke."""
    # With several hosts, or a quoted name, one message may hold both kinds: the refusal counts.
    found = REFUSED.search(text)
    if found is not None:
        return Finding(Verdict.TERMINAL, "pg.message", f"message has {found[0]!r}")
    found = WILL_PASS.search(text)
    if found is not None:
        return Finding(Verdict.TRANSIENT, "pg.message", f"message has {found[0]!r}")
    return None


ROWS = (
    # psycopg/errors.py, psycopg_pool/errors.py: client-side, without SQLSTATE.
    transient("pg.timeout", *within("psycopg.errors", "ConnectionTimeout CancellationTimeout")),
    transient("pg.pool", *within("psycopg_pool", "PoolTimeout TooManyRequests")),
    terminal("pg.pool", "psycopg_pool.PoolClosed"),
    # asyncpg/exceptions/_base.py: a migration ran; asyncpg has forgotten the old schema by now.
    transient("pg.schema", "asyncpg.exceptions._base.OutdatedSchemaCacheError"),
    probed(
        "pg.sqlstate",
        passing_class,
        "sqlstate, else transient",
        "psycopg2.extensions.TransactionRollbackError",
        *within(
            "psycopg2.errors",
            "ConnectionException SqlclientUnableToEstablishSqlconnection ConnectionDoesNotExist "
            "SqlserverRejectedEstablishmentOfSqlconnection ConnectionFailure "
            "TransactionResolutionUnknown IdleInTransactionSessionTimeout InsufficientResources "
            "DiskFull OutOfMemory TooManyConnections ConfigurationLimitExceeded ObjectInUse "
            "LockNotAvailable AdminShutdown CrashShutdown CannotConnectNow IdleSessionTimeout "
            "TransactionTimeout SystemError IoError",
        ),
    ),
    probed(
        "pg.sqlstate",
        cancelled,
        "sqlstate and the message",
        "psycopg2.extensions.QueryCanceledError",
    ),
    probed(
        "pg.sqlstate",
        pg8000_error,
        "the code in args[0], else the message",
        "pg8000.exceptions.Error",
    ),
    probed(
        "pg.sqlstate",
        postgres_error,
        "sqlstate, else libpq's message",
        "psycopg.Error",
        "psycopg2.Error",
        *within("asyncpg.exceptions._base", "PostgresError InterfaceError InternalClientError"),
        # Under SQLAlchemy, a deadlock in asyncpg is a bare DBAPIError around this one.
        "sqlalchemy.dialects.postgresql.asyncpg.AsyncAdapt_asyncpg_dbapi.Error",
    ),
)
