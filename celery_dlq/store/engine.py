"""A database as the store uses it: one engine per process, and transactions that repeat themselves."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy import exc
from sqlalchemy.engine import URL, Connection, Engine

from celery_dlq.store.drivers import WRITES, open_engine, parse_url
from celery_dlq.store.faults import is_repeatable, store_error

#: How often a transaction is begun before it is given up.
MAX_TRIES = 6

#: The first pause before a repetition takes at most so many seconds; the bound doubles.
FIRST_PAUSE = 0.005

T = TypeVar("T")

# The module's own generator belongs to the application, which may have seeded it.
_random = random.SystemRandom()


class Database:
    """One database and its transactions. Any thread may use it, and either side of a fork.

    :param url: what :func:`~celery_dlq.store.drivers.parse_url` takes.
    :param timeout: seconds that connecting, waiting for a lock, or one statement may take; None for
        no bound but that of connecting.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float | None = 5.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.url: URL = parse_url(url)
        self.timeout = timeout
        self._sleep = sleep
        self._engines: dict[int, Engine] = {}
        # By process, too: a fork may come while another thread of the parent writes.
        self._writing: dict[int, threading.Lock] = {}

    @property
    def dialect(self) -> str:
        """``sqlite``, ``postgresql`` or ``mysql``."""
        return self.url.get_backend_name()

    @property
    def engine(self) -> Engine:
        """This process's engine.

        :raises StoreError: the driver is not installed, or an SQLite file has no directory.
        """
        engine = self._engines.get(os.getpid())
        if engine is None:
            # A parent's engine stays where it is, unused: its connections are the parent's, and
            # collecting them as garbage here would close what both processes hold.
            engine = self._engines.setdefault(os.getpid(), open_engine(self.url, self.timeout))
        return engine

    def read(self, work: Callable[[Connection], T]) -> T:
        """The result of ``work``, done in one transaction.

        :raises StoreError: the database failed.
        """
        with self._translated(), self.engine.begin() as connection:
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
                    if not is_repeatable(error):
                        raise
                self._sleep(_pause(tries))
            return self._write_once(work)

    def close(self) -> None:
        """Close this process's connections; the next use opens new ones."""
        engine = self._engines.pop(os.getpid(), None)
        if engine is not None:
            engine.dispose()

    def _write_once(self, work: Callable[[Connection], T]) -> T:
        with self._turn(), self.engine.connect() as connection:
            connection.execution_options(**{WRITES: True})
            with connection.begin():
                return work(connection)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Threads of this process write to an SQLite file one after the other. It has one writer in any case,
        and who finds another one there looks again after pauses that get longer, and misses its turn."""
        if self.dialect != "sqlite":
            yield
            return
        lock = self._writing.setdefault(os.getpid(), threading.Lock())
        has_turn = lock.acquire(timeout=-1 if self.timeout is None else self.timeout)
        try:
            yield  # without its turn, too: SQLite says what the matter is
        finally:
            if has_turn:
                lock.release()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except exc.SQLAlchemyError as error:
            raise store_error(error, self.url) from error


def _pause(tries: int) -> float:
    bound = FIRST_PAUSE * float(2 ** (tries - 1))
    return _random.uniform(0, bound)
