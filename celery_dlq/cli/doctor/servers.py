"""The doctor's look at each server of a store that has several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from celery_dlq.cli.doctor.finding import Finding, Findings, Level
from celery_dlq.cli.exits import one_line
from celery_dlq.cli.session import Session
from celery_dlq.errors import StoreError

if TYPE_CHECKING:
    from sqlalchemy.engine import URL


def check_servers(session: Session) -> Findings:
    """Whether each server of ``dlq_store_url`` could take over, and which one is used."""
    from celery_dlq.store.database.dialects.supported import parse_url
    from celery_dlq.store.database.servers import alone, hosts_of

    url, timeout = parse_url(session.queue.settings.store_url), session.queue.settings.store_timeout
    in_use = ""
    for host in hosts_of(url):
        try:
            why = _why_read_only(alone(url, host), timeout)
        except StoreError as error:
            yield Finding(Level.WARNING, f"{host} could not take over: {one_line(str(error))}")
            continue
        if why:
            yield Finding(Level.OK, f"{host} {why}")
        elif in_use:
            yield Finding(Level.OK, f"{host} accepts writes, too")
        else:
            in_use = host
            yield Finding(Level.OK, f"{host} accepts writes, and is used")


def _why_read_only(url: URL, timeout: float) -> str:
    """:raises StoreError: the server does not answer."""
    from celery_dlq.store.database.dialects.dialect import Server
    from celery_dlq.store.database.engine import Database

    database = Database(url.render_as_string(hide_password=False), timeout=timeout)
    try:
        dialect = database.dialect
        return database.read(dialect.why_read_only) if isinstance(dialect, Server) else ""
    finally:
        database.close()
