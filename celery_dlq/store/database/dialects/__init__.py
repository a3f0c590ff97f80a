"""The differences between databases: one class for each that is supported, and what they share.

An SQLAlchemy URL or connection enters; the dialect that it belongs to leaves. The rest of the store asks that
dialect, and never which database it uses.
"""

from __future__ import annotations

from sqlalchemy import exc
from sqlalchemy.engine import URL, Connection, make_url

from celery_dlq.base.known import near_names
from celery_dlq.errors import SettingsError, page
from celery_dlq.store.database.dialects.dialect import Dialect
from celery_dlq.store.database.dialects.mysql import MySQL
from celery_dlq.store.database.dialects.postgresql import PostgreSQL
from celery_dlq.store.database.dialects.sqlite import SQLite
from celery_dlq.store.database.servers import with_hosts_apart

#: A new database is a class of its own, and a name here.
SUPPORTED: tuple[Dialect, ...] = (SQLite(), PostgreSQL(), MySQL())

# An application may use the dialect that SQLAlchemy has for each of the names.
_BY_NAME = {
    scheme.partition("+")[0]: dialect for dialect in SUPPORTED for scheme in dialect.schemes
}
_BY_SCHEME = {scheme: dialect for dialect in SUPPORTED for scheme in dialect.schemes}


def dialect_of(connection: Connection) -> Dialect:
    """The dialect of the database that ``connection`` leads to."""
    return _BY_NAME[connection.dialect.name]


def dialect_named(name: str) -> Dialect:
    """The dialect that SQLAlchemy calls ``name``."""
    return _BY_NAME[name]


def dialect_for(url: URL) -> Dialect:
    """The dialect of the database that ``url`` names.

    :param url: from :func:`parse_url`.
    """
    return _BY_NAME[url.get_backend_name()]


def parse_url(text: str) -> URL:
    """The store's URL, naming the driver that is used.

    :raises SettingsError: ``text`` is not a URL, or its database is not supported.
    """
    try:
        url = make_url(with_hosts_apart(text))
    except (exc.ArgumentError, ValueError):
        # The parser's own message repeats the URL, including the password.
        raise _wrong("is not a database URL; write it like postgresql://user@host/name") from None
    if "@" in (url.host or ""):
        # The part after the first @ would be shown, and looked up, as a part of the host's name.
        raise _wrong("has an @ in its user or password; write it as %40")
    dialect = _BY_SCHEME.get(url.drivername)
    if dialect is None:
        near = "".join(
            f" (did you mean {name!r}?)"
            for name in near_names(url.drivername, [one.name for one in SUPPORTED])[:1]
        )
        raise _wrong(f"names {url.drivername!r}{near}, which is not supported; use {_names()}")
    if unfit := dialect.why_unfit(url):
        raise _wrong(unfit)
    return url.set(drivername=dialect.scheme)


def _names() -> str:
    *others, last = (
        f"{dialect.name} (with {driver})" if driver else dialect.name
        for dialect in SUPPORTED
        for driver in [dialect.scheme.partition("+")[2]]
    )
    return f"{', '.join(others)} or {last}"


def _wrong(problem: str) -> SettingsError:
    return SettingsError(
        f"dlq_store_url (or CELERY_DLQ_STORE_URL) {problem}. See {page('settings')}."
    )
