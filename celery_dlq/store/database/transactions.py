"""Turns the methods of the store's roles into transactions: each method is one, and gets its connection."""

from __future__ import annotations

import functools
import math
import os
import time
from collections.abc import Callable
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar

from sqlalchemy.engine import Connection

from celery_dlq.redact import KNOWN, Redactor
from celery_dlq.store.database import schema
from celery_dlq.store.database.engine import Database

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", bound="StoreRole")


class Searched(NamedTuple):
    """What searches find of a letter."""

    #: The most values of its arguments.
    value_limit: int
    #: Hides secrets before they are stored: a search must not find what no screen shows.
    redactor: Redactor


class Transactions:
    """The transactions of one database. Before the first one, each process checks the schema.

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
        self.database, self.searched = database, Searched(value_limit, redactor)
        self._monotonic = monotonic
        self._checked_in: int | None = None
        self._wrote_at: float | None = None

    @property
    def wrote_s_ago(self) -> float:
        """Seconds since this process last wrote through this object; infinite if it never did."""
        return math.inf if self._wrote_at is None else self._monotonic() - self._wrote_at

    def check_schema(self) -> None:
        """Check (on SQLite: create) the schema; raises ``SchemaError``."""
        schema.check(self.database)
        self._checked_in = os.getpid()

    def read(self, work: Callable[[Connection], T]) -> T:
        """The result of ``work``; see :meth:`~celery_dlq.store.database.engine.Database.read`."""
        self._ready()
        return self.database.read(work)

    def write(self, work: Callable[[Connection], T]) -> T:
        """The result of ``work``; see :meth:`~celery_dlq.store.database.engine.Database.write`."""
        self._ready()
        try:
            return self.database.write(work)
        finally:  # a commit may succeed although its confirmation is lost
            self._wrote_at = self._monotonic()

    def close(self) -> None:
        """Close the connections; the next use opens new ones."""
        self.database.close()

    def _ready(self) -> None:
        if self._checked_in != os.getpid():
            self.check_schema()


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
