"""PostgreSQL through psycopg, psycopg2, asyncpg, and SQLAlchemy's adapter of asyncpg.

The classes decide nothing: an OperationalError may be a deadlock or a wrong password. The SQLSTATE
decides (PostgreSQL documentation, appendix A), and libpq's text where a connection was never made,
since neither psycopg nor psycopg2 has a SQLSTATE there.
"""

from __future__ import annotations

import re

from celery_dlq.classify.evidence import message, sqlstate
from celery_dlq.classify.table import Finding, probed, terminal, transient, within
from celery_dlq.states import Verdict

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

# SQLSTATEs that mean several things. 57014: a timeout is about load, a user's cancel is not
# (src/backend/tcop/postgres.c). 0A000: a migration ran under a prepared statement, a new statement
# works (src/backend/utils/cache/plancache.c; the second text is asyncpg's own).
_WILL_PASS_WITH = {
    "57014": re.compile("statement timeout"),
    "0A000": re.compile("cached plan must not change result type|cached statement plan is invalid"),
}

# libpq and server texts without SQLSTATE. They are translated when lc_messages, or the client's
# locale, is not English; what is not recognised decides nothing.
_REFUSED = re.compile(
    r"password authentication failed|no password supplied|does not exist|no pg_hba\.conf entry"
    r"|not permitted to log in|certificate verify failed|Name or service not known"
    r"|No address associated with hostname"
)
_WILL_PASS = re.compile(
    r"too many clients already|remaining connection slots|too many connections for"
    r"|the database system is (?:starting up|shutting down|in recovery mode|not yet accepting)"
    r"|Connection refused|Connection reset by peer|Connection timed out|Broken pipe"
    r"|No route to host|Network is unreachable|Temporary failure in name resolution"
    r"|timeout expired|server closed the connection unexpectedly"
    r"|SSL connection has been closed|SSL SYSCALL error|EOF detected"
    r"|could not (?:receive data from|send data to) server"
    r"|connection (?:is|was|already|has been) closed|the connection is lost"
)


def sqlstate_of(exc: BaseException) -> Finding | None:
    """The SQLSTATE, with a look at the text of the two that mean several things."""
    found = sqlstate(exc)
    if found is None:
        return None
    code, source = found
    evidence = f"sqlstate={code} from {source}"
    if code in _WILL_PASS_WITH:
        text = _WILL_PASS_WITH[code].search(message(exc))
        if text is not None:
            return Finding(Verdict.TRANSIENT, "pg.sqlstate", f"{evidence}, {text[0]!r}")
    passes = code in TRANSIENT_SQLSTATES or code.startswith(_ROLLBACK)
    return Finding(Verdict.TRANSIENT if passes else Verdict.TERMINAL, "pg.sqlstate", evidence)


def postgres_error(exc: BaseException) -> Finding | None:
    """The SQLSTATE, else libpq's text.

    Neither is known of the rollback that fails because the connection just broke ("sending query
    failed: another command is already in progress"); what broke it is its context.
    """
    return sqlstate_of(exc) or _by_message(message(exc))


def _by_message(text: str) -> Finding | None:
    # With several hosts, or a quoted name, one message may hold both kinds: the refusal counts.
    found = _REFUSED.search(text)
    if found is not None:
        return Finding(Verdict.TERMINAL, "pg.message", f"message has {found[0]!r}")
    found = _WILL_PASS.search(text)
    if found is not None:
        return Finding(Verdict.TRANSIENT, "pg.message", f"message has {found[0]!r}")
    return None


ROWS = (
    # psycopg/errors.py, psycopg_pool/errors.py: client-side, without SQLSTATE.
    transient("pg.timeout", *within("psycopg.errors", "ConnectionTimeout CancellationTimeout")),
    transient("pg.pool", *within("psycopg_pool", "PoolTimeout TooManyRequests")),
    terminal("pg.pool", "psycopg_pool.PoolClosed"),
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
