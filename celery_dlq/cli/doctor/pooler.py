"""The doctor's look at a pooler between the store and PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from celery_dlq.cli.doctor.finding import Finding, Findings, Level
from celery_dlq.cli.session import Session

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

    from celery_dlq.store.database.servers import Pooler

_SEE = "see: celery -A <app> dlq help install-on-postgresql-or-mysql"
_BETWEEN = "stands between this machine and PostgreSQL"

#: The names of the store's connections, as PgPool-II's settings match them.
_NAMES = "celery_dlq.*"


def check_pooler(session: Session) -> Findings:
    """The pooler in front of the store's server, and whether the store works through it."""
    from celery_dlq.store.database.dialects.supported import parse_url

    pooler = _pooler(session)
    if pooler is None:
        return
    if pooler.name:
        yield from _named(pooler, parse_url(session.queue.settings.store_url))
    elif pooler.refuses:
        yield Finding(
            Level.ERROR,
            f"a pooler, such as PgBouncer, {_BETWEEN}, and refuses transactions ({pooler.refuses}); set "
            f"PgBouncer's pool_mode to transaction, and {_SEE}",
        )
    else:
        yield Finding(
            Level.OK,
            f"a pooler, such as PgBouncer, {_BETWEEN}; transaction mode is enough for the store",
        )


def _named(pooler: Pooler, url: URL) -> Findings:
    """The findings about PgPool-II."""
    name = f"{pooler.name} {pooler.version}".strip()
    if pooler.balances:
        own = url.query.get("application_name", _NAMES)
        yield Finding(
            Level.ERROR,
            f"{name} {_BETWEEN}, and may send the store's queries to a standby, which may lack the newest "
            f"changes; in pgpool.conf, set app_name_redirect_preference_list = '{own}:primary', and {_SEE}",
        )
    if pooler.caches:
        yield Finding(
            Level.WARNING,
            f"{name} {_BETWEEN}, and answers queries from a cache; in pgpool.conf, set "
            f"memory_cache_enabled = off, and {_SEE}",
        )
    if not pooler.balances and not pooler.caches:
        yield Finding(Level.OK, f"{name} {_BETWEEN}, and sends the store's queries to the primary")


def _pooler(session: Session) -> Pooler | None:
    from celery_dlq.store.database.dialects.dialect import Server
    from celery_dlq.store.database.engine import Database

    settings = session.queue.settings
    database = Database(
        settings.store_url, timeout=settings.store_timeout, client=session.queue.client
    )
    try:
        dialect = database.dialect
        return database.ask_raw(dialect.pooler) if isinstance(dialect, Server) else None
    finally:
        database.close()
