"""A database as the store uses it: one engine per process, and transactions that repeat themselves."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import NullPool, exc
from sqlalchemy.engine import URL, Connection, Engine, Transaction
from sqlalchemy.engine import Dialect as SQLAlchemyDialect

from celery_dlq.errors import NamespaceError
from celery_dlq.store.database.client import Client
from celery_dlq.store.database.connections import Connections, close_at_fork
from celery_dlq.store.database.dialects import dialect_for, parse_url
from celery_dlq.store.database.dialects.dialect import WRITES, Dialect
from celery_dlq.store.database.namespaces import SEEN

#: How often a transaction is begun before it is given up.
MAX_TRIES = 6

#: The first pause before a repetition takes at most this many seconds; the bound doubles.
FIRST_PAUSE = 0.005

#: Set in the ``info`` of a connection that has begun a transaction before.
_USED = "celery_dlq_used"

T = TypeVar("T")

# The generator that ``random`` itself uses belongs to the application, which may have seeded it.
_random = random.SystemRandom()


class Database:
    """One database and its transactions. Any thread may use it, and so may both processes after a fork.

    :param url: a URL that :func:`~celery_dlq.store.database.dialects.parse_url` accepts.
    :param timeout: seconds that connecting, waiting for a lock, or one statement may take; None for no limit
        except that of connecting.
    :param client: the owner of the connections.
    :param namespaces: those that the process sees; None for all.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float | None = 5.0,
        client: Client | None = None,
        namespaces: Sequence[str] | None = ("",),
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.url: URL = parse_url(url)
        self.dialect: Dialect = dialect_for(self.url)
        self.timeout = timeout
        self.client: Client = client or Client()
        self._namespaces, self._sleep = namespaces, sleep
        self._connections: dict[int, Connections] = {}
        # By process, too, because a fork may happen while another thread of the parent writes.
        self._writing: dict[int, threading.Lock] = {}
        #: The compiled statements of joined transactions.
        self._joined: dict[Any, Any] = {}

    @property
    def engine(self) -> Engine:
        """This process's engine.

        :raises StoreError: the driver is not installed, or an SQLite file has no directory.
        """
        return self._here().engine

    @contextmanager
    def extended(self, more: int) -> Iterator[None]:
        """Let this many connections be open until the ``with`` block ends, in addition to the client's own.

        :raises StoreError: the driver is not installed, or an SQLite file has no directory.
        """
        with self._here().extended(more):
            yield

    def read(self, work: Callable[[Connection], T]) -> T:
        """The result of ``work``, done in one transaction.

        :raises StoreError: the database failed.
        """
        with self._translated(), self._begun(writes=False) as connection:
            return work(connection)

    def write(self, work: Callable[[Connection], T]) -> T:
        """The result of ``work``, done in one transaction that is begun again, a bounded number of
        times, when another writer was in the way.

        :raises StoreError: the database failed, and nothing was written.
        """
        with self._translated():
            for tries in range(1, MAX_TRIES):
                try:
                    return self._write_once(work)
                except exc.DBAPIError as error:
                    if not self.dialect.is_repeatable(error):
                        raise
                self._sleep(_pause(tries))
            return self._write_once(work)

    def ask_raw(self, work: Callable[[Connection], T]) -> T:
        """The result of ``work``, done on a connection without a transaction, which is closed afterwards.

        :raises StoreError: the database failed.
        """
        with self._translated(), self._here().used() as engine, engine.connect() as connection:
            try:
                return work(connection)
            finally:
                connection.invalidate()

    def join(
        self, connection: Any, dialect: SQLAlchemyDialect | None, work: Callable[[Connection], T]
    ) -> T:
        """The result of ``work``, done in the transaction that the application has begun on ``connection``,
        and which it ends. Errors are those of the driver, or SQLAlchemy's.

        :param connection: a driver's, to this database.
        :param dialect: fits the driver; None for the store's own.
        """
        own = self.engine
        options = {**own.get_execution_options(), "compiled_cache": self._joined}
        pool = NullPool(lambda: _Lent(connection))
        joined = Engine(
            pool, dialect or own.dialect, own.url, execution_options=options, hide_parameters=True
        )
        with joined.connect() as lent:
            return work(lent)

    def close(self) -> None:
        """Close this process's connections; the next use opens new ones."""
        connections = self._connections.pop(os.getpid(), None)
        if connections is not None:
            connections.close()

    def _write_once(self, work: Callable[[Connection], T]) -> T:
        with self._turn(), self._begun(writes=True) as connection:
            return work(connection)

    @contextmanager
    def _begun(self, *, writes: bool) -> Iterator[Connection]:
        with self._here().used() as engine:
            connection, transaction = _begin(engine, writes=writes)
            with connection, transaction:
                yield connection

    def _here(self) -> Connections:
        """This process's connections."""
        connections = self._connections.get(os.getpid())
        if connections is None:
            # A parent's connections are kept, unused: if they were collected as garbage here, they would be
            # closed for both processes.
            connections = self._connections.setdefault(os.getpid(), self._open())
        return connections

    def _open(self) -> Connections:
        engine = self.dialect.open(self.url, self.timeout, self.client)
        engine.update_execution_options(**{SEEN: self._namespaces})
        most = None if self.dialect.is_file else self.client.most
        connections = Connections(engine, most, patience_s=self.timeout)
        if self.dialect.is_file:
            close_at_fork(connections)
        return connections

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Threads of this process write one after the other to a file that has one writer. With SQLite
        itself, a second writer tries again after pauses that get longer, and misses its turn."""
        if not self.dialect.has_one_writer:
            yield
            return
        lock = self._writing.setdefault(os.getpid(), threading.Lock())
        has_turn = lock.acquire(timeout=-1 if self.timeout is None else self.timeout)
        try:
            yield  # even without the lock; SQLite will report why
        finally:
            if has_turn:
                lock.release()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except exc.SQLAlchemyError as error:
            if isinstance(error, exc.StatementError) and isinstance(error.orig, NamespaceError):
                raise error.orig from None
            raise self.dialect.store_error(error, self.url) from error


class _Lent:
    """A driver's connection whose transaction, and which itself, is ended by the application."""

    def __init__(self, connection: Any) -> None:
        self._lent = connection  # SQLAlchemy reads an attribute ``_connection`` of some

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lent, name)

    def rollback(self) -> None:
        """Does nothing, and neither do the others."""

    commit = close = rollback


def _begin(engine: Engine, *, writes: bool) -> tuple[Connection, Transaction]:
    """A connection, and a transaction on it. The server may have closed a connection that was kept. The
    beginning of the transaction shows that, and then a new connection is opened."""
    connection = engine.connect().execution_options(**{WRITES: writes})
    is_kept = connection.info.get(_USED, False)
    try:
        transaction = connection.begin()
    except exc.DBAPIError as error:
        connection.close()
        if is_kept and error.connection_invalidated:
            return _begin(engine, writes=writes)
        raise
    connection.info[_USED] = True
    return connection, transaction


def _pause(tries: int) -> float:
    bound = FIRST_PAUSE * float(2 ** (tries - 1))
    return _random.uniform(0, bound)
