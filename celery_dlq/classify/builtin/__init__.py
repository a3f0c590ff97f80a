"""The built-in rules: one table for all library families, and what goes beside it."""

from __future__ import annotations

from celery_dlq.classify.builtin import brokers, databases, http, mysql, postgres, stdlib
from celery_dlq.classify.builtin.http import any_status
from celery_dlq.classify.builtin.postgres import sqlstate_of
from celery_dlq.classify.table import Probe, Table

TABLE = Table(
    (
        *stdlib.ROWS,
        *http.ROWS,
        *databases.ROWS,
        *postgres.ROWS,
        *mysql.ROWS,
        *brokers.ROWS,
    )
)

#: Asked about types that no row knows. An SQLSTATE comes first: nothing else looks like one.
GENERIC_PROBES: tuple[Probe, ...] = (sqlstate_of, any_status)

#: Rules whose terminal verdict holds although a network error was raised on top of it.
ROOT_CAUSES = frozenset(
    {
        "dns.lookup",
        "http.proxy",
        "http.retries",
        "http.url",
        "redis.auth",
        "tls.certificate",
        "tls.protocol",
    }
)

__all__ = ["GENERIC_PROBES", "ROOT_CAUSES", "TABLE"]
