"""The open transaction of the sender's thread or asyncio task, in which a message may be written: one of an
SQLAlchemy session whose class was registered, or an ``atomic`` block of Django."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit
from weakref import WeakKeyDictionary

from sqlalchemy import event, exc
from sqlalchemy.engine import URL
from sqlalchemy.orm import Session, SessionTransaction

from celery_dlq.errors import CeleryDLQError, SettingsError, page
from celery_dlq.model.letter import DeadLetter
from celery_dlq.settings import read_settings
from celery_dlq.store.database.dialects import dialect_for, parse_url
from celery_dlq.store.database.dialects.dialect import Server
from celery_dlq.store.database.servers import address, hosts_of

if TYPE_CHECKING:
    from celery_dlq.store import Store

logger: logging.Logger = logging.getLogger(__name__)

#: Names of this machine.
_LOCAL = frozenset({"", "localhost", "127.0.0.1", "::1"})

#: The keys in a session's ``info`` of its place in :data:`_begun`, of the calls of each of its transactions,
#: and of the calls to make now.
_PLACE, _CALLS, _READY = "celery_dlq_place", "celery_dlq_calls", "celery_dlq_ready"

#: The sessions that have a transaction, the last one last, by the thread or asyncio task that began it, or
#: used it last.
_begun: WeakKeyDictionary[Any, WeakKeyDictionary[Session, None]] = WeakKeyDictionary()

Call = Callable[[], None]


class OpenTransaction(Protocol):
    """A transaction of the user on the store's database."""

    def park(self, letter: DeadLetter) -> None:
        """Write ``letter`` in the transaction. An error of the database is that of the user's own
        statements."""

    def after_commit(self, call: Call) -> None:
        """Make this call, which raises nothing, after the outermost commit; never if the transaction is
        rolled back, or the savepoint in which it is now."""


def open_transaction(dlq: Any) -> OpenTransaction | None:
    """The open transaction of this thread or asyncio task; None without one. Of several, it is that of the
    session that was begun last."""
    here = _begun.get(_here())
    for one in reversed(here.keyrefs() if here else []):
        session = one()
        if session is not None and isinstance(session, dlq.outbox_sessions) and _is_open(session):
            return _OfSession(dlq, session)
    django = sys.modules.get("django.db")
    if django is None or not sys.modules["django.conf"].settings.configured:
        return None
    open_ones = [
        one for one in django.connections.all(initialized_only=True) if one.in_atomic_block
    ]
    if not open_ones:
        return None
    store = parse_url(dlq.settings.store_url)
    for connection in open_ones:
        if _place(_url_of(connection)) == _place(store):
            return _OfDjango(dlq, connection)
    _report_others(dlq, store, django.connections.all())
    return None


def _write(store: Store, letter: DeadLetter, connection: Any, dialect: Any = None) -> None:
    """Write ``letter`` by a driver's connection.

    :param dialect: SQLAlchemy's for it; None for the store's own.
    """
    now = datetime.now(timezone.utc)
    store.parked.park_within(connection, dialect, letter, at=store.now(), now=now)


# -- SQLAlchemy -----------------------------------------------------------------------------------


def register(dlq: Any, given: Any) -> None:
    """Let messages be written in the transactions of the sessions of ``given``: a class, a ``sessionmaker``
    or a ``scoped_session``.

    :raises SettingsError: it is something else, or its database is not the store's.
    """
    factory = getattr(given, "session_factory", given)
    kind = getattr(factory, "class_", factory)
    if not (isinstance(kind, type) and issubclass(kind, Session)):
        raise SettingsError(
            f"{given!r} makes no SQLAlchemy sessions; give a sessionmaker, a scoped_session or a Session "
            f"class, for AsyncSession its sync_session_class. See {page('outbox')}."
        )
    bind = getattr(factory, "kw", {}).get("bind")
    if bind is not None:
        # Not those of the queue, because the program may set others later.
        _check_place(bind.engine.url, read_settings(dlq.app).settings.store_url)
    for name, listener in _LISTENERS.items():
        event.listen(kind, name, listener)
    dlq.outbox_sessions += (kind,)


class _OfSession:
    def __init__(self, dlq: Any, session: Session) -> None:
        self._dlq, self._session = dlq, session

    def park(self, letter: DeadLetter) -> None:
        bind = self._session.get_bind()
        _check_place(bind.engine.url, self._dlq.settings.store_url)
        store = self._dlq.store
        try:
            connection = self._session.connection(bind_arguments={"bind": bind})
            _write(store, letter, connection.connection.dbapi_connection, connection.dialect)
        except (exc.MissingGreenlet, exc.StatementError) as error:
            if not isinstance(getattr(error, "orig", error), exc.MissingGreenlet):
                raise
            raise CeleryDLQError(
                "A message that is sent while an AsyncSession is open is written through it; send it with: "
                "await session.run_sync(lambda _: task.delay())"
            ) from None
        # The session may have been given a connection whose transaction continues after its commit.
        self._continues = connection.in_transaction

    def after_commit(self, call: Call) -> None:
        session, continues = self._session, self._continues
        transaction = session.get_nested_transaction() or session.get_transaction()
        assert transaction is not None, "it has just been used"  # noqa: S101
        calls = _calls(session).setdefault(transaction, [])
        calls.append(lambda: None if continues() else call())


def _is_open(session: Session) -> bool:
    """Whether statements of ``session`` would be part of an open transaction. After a commit, while its
    listeners are called, they are not."""
    transaction = session.get_transaction()
    return transaction is not None and transaction.is_active


def _here() -> Any:
    try:
        return asyncio.current_task() or threading.current_thread()
    except RuntimeError:
        return threading.current_thread()


def _calls(session: Session) -> dict[SessionTransaction, list[Call]]:
    found: dict[SessionTransaction, list[Call]] = session.info.setdefault(_CALLS, {})
    return found


def _note_begin(session: Session, transaction: SessionTransaction, *_: Any) -> None:
    """A session has begun a transaction, or has connected to a database for it."""
    _forget(session)
    here = session.info[_PLACE] = _begun.setdefault(_here(), WeakKeyDictionary())
    here[session] = None


def _note_commit(session: Session) -> None:
    """The innermost transaction of ``session``, perhaps of a savepoint, is committed."""
    nested = session.get_nested_transaction()
    done = nested or session.get_transaction()
    calls = _calls(session).pop(done, []) if done else []
    if nested is None:
        session.info[_READY] = calls
    elif calls:
        _calls(session).setdefault(_outer(nested), []).extend(calls)


def _outer(transaction: SessionTransaction) -> SessionTransaction:
    """The transaction, or the savepoint, that contains this savepoint."""
    outer = transaction.parent
    assert outer is not None, "a savepoint is in a transaction"  # noqa: S101
    return outer if outer.nested or outer.parent is None else _outer(outer)  # not of a flush


def _note_end(session: Session, transaction: SessionTransaction) -> None:
    """A transaction has ended. Its calls are still here if it was not committed."""
    _calls(session).pop(transaction, None)
    if transaction.parent is None:
        _forget(session)
        for call in session.info.pop(_READY, ()):
            call()


def _forget(session: Session) -> None:
    session.info.pop(_PLACE, {}).pop(session, None)


_LISTENERS: dict[str, Callable[..., None]] = {
    "after_transaction_create": _note_begin,
    "after_begin": _note_begin,
    "after_commit": _note_commit,
    "after_transaction_end": _note_end,
}


# -- Django ---------------------------------------------------------------------------------------


class _OfDjango:
    def __init__(self, dlq: Any, connection: Any) -> None:
        self._dlq, self._connection = dlq, connection

    def park(self, letter: DeadLetter) -> None:
        store, connection = self._dlq.store, self._connection
        connection.validate_no_broken_transaction()
        connection.ensure_connection()
        with connection.wrap_database_errors:
            try:
                _write(store, letter, connection.connection)
            except exc.DBAPIError as error:
                raise (error.orig or error) from None

    def after_commit(self, call: Call) -> None:
        self._connection.on_commit(call)


def _url_of(connection: Any) -> URL:
    """The database of one of Django's connections."""
    given = connection.settings_dict
    port = str(given["PORT"] or "")
    return URL.create(
        connection.vendor,
        host=str(given["HOST"] or "") or None,
        port=int(port) if port.isdecimal() else None,
        database=str(given["NAME"]),
    )


def _report_others(dlq: Any, store: URL, connections: Sequence[Any]) -> None:
    """Log, once, that no database of Django is the store's."""
    urls = [_url_of(one) for one in connections]
    if not dlq.outbox_sessions and _place(store) not in map(_place, urls):
        _warn(address(store), ", ".join(map(address, urls)))


@cache
def _warn(store: str, others: str) -> None:
    logger.warning(
        "dlq_unsent is 'commit', but the store %s is none of the DATABASES (%s), so messages are sent before "
        "the commit; set dlq_store_url to the same host, port and database as one of them",
        store, others,
    )  # fmt: skip


# -- Databases ------------------------------------------------------------------------------------


def _check_place(url: URL, store_url: str) -> None:
    """:raises SettingsError: ``url`` does not lead to the store's database."""
    store = parse_url(store_url)
    if _place(url) != _place(store):
        raise SettingsError(
            f"The sessions of the outbox use {address(url)}, and the store is {address(store)}; a "
            "transaction has one database, so set dlq_store_url to the same host, port and database. "
            f"See {page('outbox')}."
        )


def _place(url: URL) -> tuple[object, Sequence[str], str]:
    """The kind, the servers and the name of a database, by whichever driver it is reached."""
    try:
        dialect = dialect_for(url)
    except KeyError:  # not one that a store can have
        return url.drivername, (), ""
    if not isinstance(dialect, Server):
        return dialect, (), _file(url.database or "")
    hosts = hosts_of(url) or [f"{url.host or url.query.get('host', '')}:{url.port or dialect.port}"]
    pairs = [one.rpartition(":") if ":" in one else (one, "", dialect.port) for one in hosts]
    servers = sorted(f"{_machine(host)}:{own}" for host, _, own in pairs)
    return dialect, servers, url.database or ""


def _machine(host: str) -> str:
    is_here = host in _LOCAL or host.startswith("/")  # the directory of a socket
    return "" if is_here else host.lower()


def _file(name: str) -> str:
    return os.path.realpath(unquote(urlsplit(name).path) if name.startswith("file:") else name)
