"""peewee, Tortoise, and what they share with Django: they raise their own errors over a driver's."""

from __future__ import annotations

from celery_dlq.classify.builtin.behind import unless_lasting
from celery_dlq.classify.builtin.databases.mysql import mysql_error
from celery_dlq.classify.builtin.databases.postgres import postgres_text, sqlstate_of
from celery_dlq.classify.builtin.databases.sqlite import BUSY_TEXTS
from celery_dlq.classify.chain import causes
from celery_dlq.classify.evidence import arguments, message
from celery_dlq.classify.table import Finding, Row, probed, terminal, transient, within, wrapper
from celery_dlq.model.states import Verdict


def driver_error(exc: BaseException) -> Finding | None:
    """Undecided while the driver's exception is at hand, else by what was copied from it."""
    if causes(exc):
        return None
    first = next(iter(arguments(exc)), None)
    if type(first) is int:
        return mysql_error(exc)
    text = message(exc)
    if text.startswith(BUSY_TEXTS):
        return Finding(
            Verdict.TRANSIENT, "sqlite.code", "no driver's exception; the message decides"
        )
    return postgres_text(text)


def tortoise_connection(exc: BaseException) -> Finding:
    """tortoise/backends: over a refused connection, but over a missing database as well."""
    for cause in causes(exc):
        finding = mysql_error(cause) or sqlstate_of(cause)
        if finding is not None:
            return finding
    return unless_lasting(exc, "tortoise.connection", "type=tortoise.exceptions.DBConnectionError")


_PEEWEE = (
    # peewee.py: ExceptionWrapper hands the driver's exception over in args[0].
    probed(
        "peewee.database",
        driver_error,
        "the driver's exception, else its number or text",
        "peewee.PeeweeException",
    ),
    transient("peewee.pool", "playhouse.pool.MaxConnectionsExceeded"),
    transient("peewee.rollback", "playhouse.cockroachdb.ExceededMaxAttempts"),
    terminal("peewee.usage", *within("peewee", "DoesNotExist ImproperlyConfigured IntegrityError")),
)

_TORTOISE = (
    # tortoise/exceptions.py.
    probed(
        "tortoise.connection",
        tortoise_connection,
        "the driver's error behind it; else transient",
        "tortoise.exceptions.DBConnectionError",
    ),
    terminal(
        "tortoise.usage",
        *within(
            "tortoise.exceptions",
            "IntegrityError NotExistOrMultiple IncompleteInstanceError NoValuesFetched FieldError "
            "ObjectDoesNotExistError ConfigurationError ParamsError UnSupportedError ValidationError",
        ),
    ),
    wrapper("tortoise.database", "the driver's exception", "tortoise.exceptions.BaseORMException"),
)

ROWS: tuple[Row, ...] = (*_PEEWEE, *_TORTOISE)
