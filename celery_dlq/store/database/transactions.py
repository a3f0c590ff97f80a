"""Turns the methods of the store's roles into transactions: each method is one, and gets its
connection."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import time
from collections.abc import Callable
from typing import Concatenate, NamedTuple, ParamSpec, TypeAlias, TypeVar

from sqlalchemy.engine import Connection

from celery_dlq.base.redact import KNOWN, Redactor
from celery_dlq.errors import StoreUnavailable
from celery_dlq.store.database import schema
from celery_dlq.store.database.engine import Database

#: Seconds between two looks whether the schema has become newer than this process.
LOOK_S = 60.0

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", bound="StoreRole")
Work: TypeAlias = Callable[[Connection], T]


class Searched(NamedTuple):
    """The settings of searches: what is stored of a letter so that searches find it."""

    #: The most values of its arguments.
    value_limit: int
    #: Hides secrets before they are stored: a search must not find what no screen shows.
    redactor: Redactor


class Transactions:
    """The transactions of one database. Each process checks the schema before the first one. If the schema
    becomes newer than this release, it refuses all transactions, as it would at its start.

    :param database: the database in which they run.
    :param value_limit: the most values of a letter's arguments that they keep for searches.
    :param redactor: hides the secrets in what is searched; by default, those of the built-in list.
    :param monotonic: counts seconds.
    """

    def __init__(
        self,
        database: Database,
        *,
        value_limit: int,
        redactor: Redactor = KNOWN,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.database = database
        self.searched: Searched = Searched(value_limit, redactor)
        self._monotonic = monotonic
        self._checked_in: int | None = None
        self._look_at = math.inf

    def check_schema(self) -> None:
        """Check (on SQLite: create) the schema; raises ``SchemaError``."""
        schema.check(self.database)
        self._checked_in, self._look_at = os.getpid(), self._monotonic() + LOOK_S

    def read(self, work: Callable[[Connection], T]) -> T:
        """The result of ``work``; see :meth:`~celery_dlq.store.database.engine.Database.read`."""
        return self._run(self.database.read, work)

    def write(self, work: Callable[[Connection], T]) -> T:
        """The result of ``work``; see :meth:`~celery_dlq.store.database.engine.Database.write`."""
        return self._run(self.database.write, work)

    def close(self) -> None:
        """Close the connections; the next use opens new ones."""
        self.database.close()

    def _run(self, run: Callable[[Work[T]], T], work: Work[T]) -> T:
        if self._checked_in != os.getpid():
            self.check_schema()
        elif self._monotonic() >= self._look_at:
            self._look()
        try:
            return run(work)
        except Exception as error:
            if not isinstance(error, StoreUnavailable):
                # A newer release may have written what this one does not know.
                with contextlib.suppress(StoreUnavailable):
                    self._look()
            raise

    def _look(self) -> None:
        """Refuse a schema that is newer than this release. Unlike the check, this makes none."""
        self._look_at = -math.inf  # of the next transaction, if this one is refused
        schema.refuse_newer(self.database.read(schema.current))
        self._look_at = self._monotonic() + LOOK_S


class StoreRole:
    """One use of the store: a class with the SQL for it. Callers get it from the store."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions


def reads(method: Callable[Concatenate[R, Connection, P], T]) -> Callable[Concatenate[R, P], T]:
    """Make ``method`` one transaction that reads. Callers leave out the connection."""

    @functools.wraps(method)
    def in_transaction(self: R, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._transactions.read(lambda connection: method(self, connection, *args, **kwargs))

    return in_transaction


def writes(method: Callable[Concatenate[R, Connection, P], T]) -> Callable[Concatenate[R, P], T]:
    """Make ``method`` one transaction that writes. Callers leave out the connection. The transaction is begun
    again if another writer was in the way."""

    @functools.wraps(method)
    def in_transaction(self: R, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._transactions.write(
            lambda connection: method(self, connection, *args, **kwargs)
        )

    return in_transaction
