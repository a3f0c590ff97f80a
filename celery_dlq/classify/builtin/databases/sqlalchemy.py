"""SQLAlchemy. It wraps the exceptions of the drivers."""

from __future__ import annotations

from celery_dlq.classify.evidence import read
from celery_dlq.classify.table import Finding, Row, probed, terminal, transient, within, wrapper
from celery_dlq.model.states import Verdict


def disconnected(exc: BaseException) -> Finding | None:
    """SQLAlchemy sets ``connection_invalidated`` to the result of the dialect's ``is_disconnect()``."""
    if read(exc, "connection_invalidated") is not True:
        return None
    return Finding(Verdict.TRANSIENT, "sqlalchemy.disconnect", "connection_invalidated=True")


ROWS: tuple[Row, ...] = (
    # sqlalchemy/exc.py: the wrappers, then the library's own errors.
    probed(
        "sqlalchemy.disconnect",
        disconnected,
        "connection_invalidated, else the driver's exception in orig",
        "sqlalchemy.exc.DBAPIError",
    ),
    wrapper("sqlalchemy.orig", "the exception in orig", "sqlalchemy.exc.StatementError"),
    transient("sqlalchemy.pool", *within("sqlalchemy.exc", "TimeoutError DisconnectionError")),
    # Another transaction changed the row first; the next attempt reads it again.
    transient("sqlalchemy.stale", "sqlalchemy.orm.exc.StaleDataError"),
    terminal(
        "sqlalchemy.usage",
        *within(
            "sqlalchemy.exc",
            "InvalidRequestError ArgumentError CompileError CircularDependencyError IdentifierError",
        ),
        *within("sqlalchemy.orm.exc", "DetachedInstanceError FlushError ObjectDereferencedError"),
    ),
)
