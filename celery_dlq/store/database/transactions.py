"""Turns the methods of the store's roles into transactions: each method is one."""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import os
import time
from collections.abc import Callable
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeAlias, TypeVar

from sqlalchemy import ColumnElement, Table
from sqlalchemy.engine import Connection
from sqlalchemy.engine import Dialect as SQLAlchemyDialect

from celery_dlq.base.redact import KNOWN, Redactor
from celery_dlq.base.sealing import Keyring
from celery_dlq.errors import StoreUnavailable
from celery_dlq.model.audit import AuditHead
from celery_dlq.store.database import chain, schema
from celery_dlq.store.database.engine import Database
from celery_dlq.store.database.namespaces import is_ours
from celery_dlq.store.database.sealing import begin_sealing

#: The key in a connection's ``info`` of the calls that follow its transaction.
_AFTER_COMMIT = "celery_dlq_after_commit"

#: Seconds between two looks whether the schema has become newer than this process.
LOOK_S = 60.0

P = ParamSpec("P")
T = TypeVar("T")
L = TypeVar("L")
R = TypeVar("R", bound="StoreRole")
Work: TypeAlias = Callable[[Connection], T]


class Searched(NamedTuple):
    """The settings of searches: what is stored of a letter so that searches find it."""

    #: The most values of its arguments.
    value_limit: int
    #: Hides secrets before they are stored: a search must not find what no screen shows.
    redactor: Redactor


class Transactions:
    """The transactions of one database. Each process checks the schema before its first transaction. If the
    schema becomes newer than this release, all transactions are refused, as at the start of a process.

    :param database: the database in which they run.
    :param value_limit: the most values of a letter's arguments that they keep for searches.
    :param redactor: hides the secrets in what is searched; by default, those of the built-in list.
    :param ring: the keys that seal the contents of letters; None if they are not sealed.
    :param monotonic: counts seconds.
    :param audited: is called with the head of the audit's chain after each transaction that adds to it.
    """

    def __init__(
        self,
        database: Database,
        *,
        value_limit: int,
        redactor: Redactor = KNOWN,
        ring: Keyring | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        audited: Callable[[AuditHead], None] = lambda _head: None,
    ) -> None:
        self.database: Database = database
        self._audited = audited
        self.ring: Keyring | None = ring
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

        def begun(connection: Connection) -> T:
            begin_sealing(connection, self.ring, writes=False)
            return work(connection)

        return self._run(self.database.read, begun)

    def write(self, work: Callable[[Connection], T]) -> T:
        """The result of ``work``; see :meth:`~celery_dlq.store.database.engine.Database.write`. The calls
        that ``work`` has put off with :func:`after_commit` are made then, in this thread."""

        def begun(connection: Connection) -> tuple[T, list[Callable[[], None]]]:
            # A new list, because a try that failed has written nothing.
            calls = connection.info[_AFTER_COMMIT] = list[Callable[[], None]]()
            begin_sealing(connection, self.ring, writes=True)
            chain.begin(connection)
            result = work(connection)
            head = chain.append(connection)
            if head is not None:
                calls.append(functools.partial(self._audited, head))
            return result, calls

        result, calls = self._run(self.database.write, begun)
        for call in calls:
            call()
        return result

    def join(self, connection: Any, dialect: SQLAlchemyDialect | None, work: Work[T]) -> T:
        """The result of ``work``; see :meth:`~celery_dlq.store.database.engine.Database.join`."""

        def begun(joined: Connection) -> T:
            begin_sealing(joined, self.ring, writes=True)
            return work(joined)

        return self.database.join(connection, dialect, begun)

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
        """Refuse a schema that is newer than this release. Unlike :meth:`check_schema`, this creates no
        schema."""
        self._look_at = -math.inf  # of the next transaction, if this one is refused
        schema.refuse_newer(self.database.read(schema.current))
        self._look_at = self._monotonic() + LOOK_S


def after_commit(connection: Connection, call: Callable[[], None]) -> None:
    """Make this call once the transaction that writes is committed."""
    connection.info[_AFTER_COMMIT].append(call)


class StoreRole:
    """One use of the store: a class with the SQL for it. Callers get a role from the store. A method runs on
    a copy of its role, so it changes no attribute."""

    #: The connection of the transaction in which a method runs.
    connection: Connection

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def ours(self, table: Table) -> ColumnElement[bool]:
        """:func:`~celery_dlq.store.database.namespaces.is_ours`, in this transaction."""
        return is_ours(self.connection, table)

    def within(self: R, connection: Connection) -> R:
        """This role, in the transaction of ``connection``."""
        role = copy.copy(self)
        role.connection = connection
        return role


class ListenedRole(StoreRole, Generic[L]):
    """A role that notifies a listener of its writes."""

    def __init__(self, transactions: Transactions, listener: L) -> None:
        super().__init__(transactions)
        self._listener = listener


def _transaction(
    run: Callable[[Transactions, Work[T]], T], method: Callable[Concatenate[R, P], T]
) -> Callable[Concatenate[R, P], T]:
    @functools.wraps(method)
    def in_transaction(self: R, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(
            self._transactions, lambda connection: method(self.within(connection), *args, **kwargs)
        )

    return in_transaction


def reads(method: Callable[Concatenate[R, P], T]) -> Callable[Concatenate[R, P], T]:
    """Make ``method`` one transaction that reads."""
    return _transaction(Transactions.read, method)


def writes(method: Callable[Concatenate[R, P], T]) -> Callable[Concatenate[R, P], T]:
    """Make ``method`` one transaction that writes. It is begun again if another writer was in the way."""
    return _transaction(Transactions.write, method)
