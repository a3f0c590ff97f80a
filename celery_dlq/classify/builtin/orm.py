"""Probes of Django, peewee and Tortoise, which raise their own errors over a driver's."""

from __future__ import annotations

from celery_dlq.classify.builtin.behind import unless_lasting
from celery_dlq.classify.builtin.postgres import postgres_text, sqlstate_of
from celery_dlq.classify.builtin.sql import BUSY_TEXTS, mysql_error
from celery_dlq.classify.chain import causes
from celery_dlq.classify.evidence import arguments, message
from celery_dlq.classify.table import Finding
from celery_dlq.model.states import Verdict


def driver_error(exc: BaseException) -> Finding | None:
    """Undecided while the driver's exception is at hand; otherwise its number or text decides."""
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
