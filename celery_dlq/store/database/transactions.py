"""Turns the methods of the store's roles into transactions: each method is one, and gets its connection.
They may read from a read replica: a server that follows the primary, which takes all writes."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Concatenate, NamedTuple, ParamSpec, TypeAlias, TypeVar

from sqlalchemy.engine import Connection

from celery_dlq.errors import RecordRefused, StoreError, StoreTooSlow, StoreUnavailable
from celery_dlq.redact import KNOWN, Redactor
from celery_dlq.store.database import schema
from celery_dlq.store.database.dialects.dialect import Server
from celery_dlq.store.database.engine import Database
from celery_dlq.store.database.servers import address

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
        self._wrote_at: float | None = None

    @property
    def wrote_s_ago(self) -> float:
        """Seconds since this process last wrote through this object; infinite if it never did."""
        return math.inf if self._wrote_at is None else self._monotonic() - self._wrote_at

    def check_schema(self) -> None:
        """Check (on SQLite: create) the schema; raises ``SchemaError``."""
        schema.check(self.database)
        self._checked_in, self._look_at = os.getpid(), self._monotonic() + LOOK_S

    def read(self, work: Callable[[Connection], T]) -> T:
        """The result of ``work``; see :meth:`~celery_dlq.store.database.engine.Database.read`."""
        return self._run(self.database.read, work)

    def write(self, work: Callable[[Connection], T]) -> T:
        """The result of ``work``; see :meth:`~celery_dlq.store.database.engine.Database.write`."""
        try:
            return self._run(self.database.write, work)
        finally:  # a commit may succeed although its confirmation is lost
            self._wrote_at = self._monotonic()

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


logger: logging.Logger = logging.getLogger(__name__)

#: Seconds after a write of this process in which it reads from the primary, so that it sees what it wrote.
FOLLOW_S = 10.0

#: Seconds after an error until the replica is asked again.
PAUSE_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Following:
    """How a read replica follows its primary."""

    #: Its URL, without a password.
    address: str
    #: How far it is behind; None if it does not say.
    lag: timedelta | None = None
    #: Why screens read from the primary instead; empty if they do not.
    trouble: str = ""


class ReplicaTransactions(Transactions):
    """Transactions that read from a replica, and write to the primary.

    They also read from the primary for :data:`FOLLOW_S` seconds after this process has written, and while the
    replica fails.

    :param primary: the transactions of the primary.
    :param replica: those of the replica.
    """

    def __init__(
        self,
        primary: Transactions,
        replica: Transactions,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(primary.database, **primary.searched._asdict(), monotonic=monotonic)
        self._primary, self._replica = primary, replica
        self._trouble, self._again_at = "", 0.0

    def check_schema(self) -> None:
        self._primary.check_schema()

    def read(self, work: Callable[[Connection], T]) -> T:
        if self._is_paused or self._primary.wrote_s_ago < FOLLOW_S:
            return self._primary.read(work)
        try:
            found = self._replica.read(work)
        except (StoreTooSlow, RecordRefused):  # on the primary it would be the same
            raise
        except StoreError as error:
            self._fails(error)
            return self._primary.read(work)
        self._works()
        return found

    def write(self, work: Callable[[Connection], T]) -> T:
        return self._primary.write(work)

    def following(self) -> Following:
        """How the replica follows now. Raises no error, and does not wait for a replica that has just
        failed."""
        where, dialect = address(self._replica.database.url), self._replica.database.dialect
        if self._is_paused or not isinstance(dialect, Server):
            return Following(address=where, trouble=self._trouble)
        try:
            lag = self._replica.database.read(dialect.lag)
        except StoreUnavailable as error:
            return Following(address=where, trouble=self._trouble or str(error))
        except StoreError:  # such as a missing right
            return Following(address=where, trouble=self._trouble)
        return Following(address=where, lag=lag, trouble=self._trouble)

    def close(self) -> None:
        """Close the connections to both servers."""
        self._replica.close()
        self._primary.close()

    @property
    def _is_paused(self) -> bool:
        return bool(self._trouble) and self._monotonic() < self._again_at

    def _fails(self, error: StoreError) -> None:
        self._again_at = self._monotonic() + PAUSE_S
        if not self._trouble:
            logger.warning("the read replica is not used until it works again: %s", error)
        self._trouble = str(error)

    def _works(self) -> None:
        if self._trouble:
            self._trouble = ""
            logger.info("the read replica at %s is used again", address(self._replica.database.url))
