"""SQLite, also through aiosqlite, which raises what sqlite3 raises."""

from __future__ import annotations

from celery_dlq.classify.evidence import message, number, read
from celery_dlq.classify.table import Finding, Row, probed, terminal
from celery_dlq.model.states import Verdict

# sqlite.org/rescode.html: the low byte of an extended code is the primary one.
_BUSY_CODES = {5: "SQLITE_BUSY", 6: "SQLITE_LOCKED"}
#: Python 3.10 has no sqlite_errorcode; the texts are sqlite3.c's sqlite3ErrStr().
BUSY_TEXTS = ("database is locked", "database table is locked", "database schema is locked")


def sqlite_error(exc: BaseException) -> Finding:
    """Decides by the primary result code; before Python 3.11, by the text."""
    code = number(read(exc, "sqlite_errorcode"))
    if code is not None:
        name = _BUSY_CODES.get(code & 0xFF)
        verdict = Verdict.TRANSIENT if name else Verdict.TERMINAL
        return Finding(verdict, "sqlite.code", f"code={name or code} from sqlite_errorcode")
    text = message(exc)
    verdict = Verdict.TRANSIENT if text.startswith(BUSY_TEXTS) else Verdict.TERMINAL
    return Finding(verdict, "sqlite.code", "no sqlite_errorcode; the message decides")


ROWS: tuple[Row, ...] = (
    probed("sqlite.code", sqlite_error, "sqlite_errorcode", "sqlite3.OperationalError"),
    terminal("sqlite.error", "sqlite3.Error"),
)
