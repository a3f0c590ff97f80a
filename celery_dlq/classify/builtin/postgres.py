"""Probes of PostgreSQL through psycopg, psycopg2, aiopg, asyncpg and pg8000.

The classes decide nothing: an OperationalError may be a deadlock or a wrong password. The SQLSTATE
decides (PostgreSQL documentation, appendix A). If a connection could not be made, psycopg and psycopg2 have
no SQLSTATE; then the text of libpq decides.
"""

from __future__ import annotations

import re

from celery_dlq.classify.builtin.codes import texts, words
from celery_dlq.classify.builtin.stdlib import unless_lasting
from celery_dlq.classify.evidence import (
    arguments,
    mapping_item,
    message,
    shown_name,
    sqlstate,
    text_of,
)
from celery_dlq.classify.table import Finding, transient_if
from celery_dlq.model.states import Verdict

# -- Messages without an SQLSTATE -------------------------------------------------------------------

_LANGUAGES = (
    "english", "german", "spanish", "french", "italian", "russian", "japanese", "korean", "chinese",
)  # fmt: skip

#: Another attempt meets the same again; another attempt may connect.
_REFUSED = texts("postgres.refused")
_WILL_PASS = texts(*(f"postgres.{language}" for language in _LANGUAGES))

# -- Probes -----------------------------------------------------------------------------------------

TRANSIENT_SQLSTATES = words("postgres.sqlstates")
# Class 40, transaction rollback, as a whole.
_ROLLBACK = "40"

# SQLSTATEs that mean several things. 57014: a timeout is about load, a user's cancel is not.
# 0A000: a migration ran under a prepared statement, a new statement works
# (src/backend/utils/cache/plancache.c; the second text is asyncpg's own). 08P01: pgbouncer's refusals.
_WILL_PASS_WITH = {
    "57014": texts("postgres.statement_timeout"),
    "0A000": re.compile("cached plan must not change result type|cached statement plan is invalid"),
    "08P01": re.compile(
        "query_wait_timeout|server conn crashed|no more connections allowed|client_idle_timeout"
        "|pgbouncer cannot connect to server|server login has been failing"
    ),
}


def sqlstate_of(exc: BaseException) -> Finding | None:
    """The SQLSTATE, and the text of those that mean several things."""
    found = sqlstate(exc)
    if found is None:
        return None
    code, source = found
    return _by_sqlstate(code, source, message(exc) if code in _WILL_PASS_WITH else "")


_LASTING_CLASSES = words("postgres.lasting_classes")
# ODBC's and MySQL's: the link failed, a timeout.
_OTHER_STATES = frozenset({"08S01", "HYT00", "HYT01"})


def by_state(code: str, source: str) -> Finding | None:
    """The finding about an SQLSTATE of an unknown driver, which may have states of its own."""
    if code in _OTHER_STATES:
        return Finding(Verdict.TRANSIENT, "pg.sqlstate", f"sqlstate={code} from {source}")
    finding = _by_sqlstate(code, source, "")
    is_sure = finding.verdict is Verdict.TRANSIENT or code[:2] in _LASTING_CLASSES
    return finding if is_sure else None


def _by_sqlstate(code: str, source: str, text: str) -> Finding:
    evidence = f"sqlstate={code} from {source}"
    if code in _WILL_PASS_WITH:
        found = _WILL_PASS_WITH[code].search(text)
        if found is not None:
            return Finding(Verdict.TRANSIENT, "pg.sqlstate", f"{evidence}, {found[0]!r}")
    passes = code in TRANSIENT_SQLSTATES or code.startswith(_ROLLBACK)
    return transient_if(passes, "pg.sqlstate", evidence)


def postgres_error(exc: BaseException) -> Finding | None:
    """The SQLSTATE, else libpq's text.

    A rollback has neither if it fails because the connection just broke ("sending query failed: another
    command is already in progress"). The error that broke the connection is its context.
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
    """The finding about a connection that, as the text says, was refused or broke."""
    # With several hosts, or a quoted name, one message may hold both kinds: the refusal counts.
    found = _REFUSED.search(text)
    if found is not None:
        return Finding(Verdict.TERMINAL, "pg.message", f"message has {found[0]!r}")
    found = _WILL_PASS.search(text)
    if found is not None:
        return Finding(Verdict.TRANSIENT, "pg.message", f"message has {found[0]!r}")
    return None
