"""The databases on a server: their connections are named and bounded, their errors are known by a code, and
they have a clock of their own."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from enum import Enum, auto
from typing import Any, ClassVar

from sqlalchemy import event, exc, text
from sqlalchemy.engine import URL, Connection, Engine, ExceptionContext

from celery_dlq.errors import RecordRefused, StoreError, StoreTooSlow, StoreUnavailable, page
from celery_dlq.store.database import faults
from celery_dlq.store.database.client import FOR_A_REDRIVE, Client
from celery_dlq.store.database.dialects.dialect import Dialect
from celery_dlq.store.database.pooler import Pooler

_GRANT = (
    "give the user of dlq_store_url the rights that are named by "
    f"{page('install-on-postgresql-or-mysql')}."
)


class Fault(Enum):
    """The meaning of an error."""

    #: Another writer was in the way.
    CONFLICT = auto()
    #: A table or a column is missing.
    SCHEMA = auto()
    #: A lock or a statement took too long.
    LATE = auto()
    #: The server cannot be reached, lets no one in, or is shutting down.
    AWAY = auto()
    READ_ONLY = auto()
    FORBIDDEN = auto()
    #: The row is larger than the database allows.
    TOO_LARGE = auto()


#: Another server may do better, so the connection is closed, and the next one is a new one.
_ELSEWHERE = frozenset({Fault.AWAY, Fault.READ_ONLY})


class Server(Dialect):
    """A database on a server."""

    #: The query for the time by its clock.
    clock: ClassVar[str]
    #: The codes whose meaning matters.
    meanings: ClassVar[Mapping[str | int, Fault]]

    @abstractmethod
    def code(self, error: exc.DBAPIError) -> str | int | None:
        """The code by which the database tells its errors apart; None if the driver gives none."""

    def fault(self, error: exc.DBAPIError) -> Fault | None:
        """The meaning of ``error``; None if its code only says that the database refused."""
        code = self.code(error)
        known = None if code is None else self.meanings.get(code)
        if known in (Fault.TOO_LARGE, Fault.SCHEMA, Fault.LATE, Fault.READ_ONLY):
            return known
        if error.connection_invalidated or isinstance(error, exc.InterfaceError):
            return Fault.AWAY
        if code is None and isinstance(error, exc.OperationalError):
            # A connection that could not be made, or broke.
            return Fault.AWAY
        return known

    def _listen(self, engine: Engine, timeout: float | None, client: Client) -> None:
        @event.listens_for(engine, "handle_error")
        def leave(context: ExceptionContext) -> None:
            # A server that is a standby now, or a node that has left its cluster, keeps its connections.
            error = context.sqlalchemy_exception
            if isinstance(error, exc.DBAPIError) and self.fault(error) in _ELSEWHERE:
                context.is_disconnect = True

    @abstractmethod
    def why_read_only(self, connection: Connection) -> str:
        """Why the server accepts no writes, as the end of a sentence; empty if it does."""

    @abstractmethod
    def lag(self, connection: Connection) -> timedelta | None:
        """How far the server is behind the primary that it follows; zero if it follows none, None if it does
        not say."""

    def pooler(self, connection: Connection) -> Pooler | None:
        """The pooler between this process and the server; None if there is none, or if it cannot be found.

        :param connection: has begun no transaction, and is not used afterwards.
        """
        return None

    def now(self, connection: Connection) -> datetime:
        moment: datetime = connection.execute(text(self.clock)).scalar_one()
        if moment.tzinfo is None:
            return moment.replace(tzinfo=timezone.utc)
        return moment.astimezone(timezone.utc)

    def is_repeatable(self, error: exc.DBAPIError) -> bool:
        code = self.code(error)
        is_conflict = code is not None and self.meanings.get(code) is Fault.CONFLICT
        return is_conflict or super().is_repeatable(error)

    def _error(self, error: exc.DBAPIError, url: URL) -> StoreError:
        fault, said, where = self.fault(error), faults.said(error, url), faults.address(url)
        if fault is Fault.TOO_LARGE:
            return RecordRefused(faults.refusal(url, said))
        if fault is Fault.SCHEMA:
            return faults.schema_error(said)
        if fault is Fault.LATE:
            return StoreTooSlow(
                f"The dead-letter store at {where} took too long ({said}); ask for less, "
                "or raise dlq_store_timeout."
            )
        if fault in (Fault.AWAY, Fault.CONFLICT):
            return StoreUnavailable(
                f"The dead-letter store at {where} does not answer ({said}); "
                "check dlq_store_url and that the database is up."
            )
        if fault is Fault.READ_ONLY:
            return StoreError(
                f"The dead-letter store at {where} is read-only ({said}); name the server that accepts "
                "writes in dlq_store_url, or all servers of which one does, or let its user write."
            )
        if fault is Fault.FORBIDDEN:
            return StoreError(f"The dead-letter store at {where} refused ({said}); {_GRANT}")
        return StoreError(faults.refusal(url, said))

    def _pool(self, timeout: float | None, client: Client) -> dict[str, Any]:
        """How many connections the engine keeps, and how long it waits for one."""
        return {
            "pool_size": client.most + FOR_A_REDRIVE,
            "max_overflow": 0,
            # Connections that are not needed at the same time are never opened.
            "pool_use_lifo": True,
            "pool_timeout": whole_seconds(timeout),
        }


def whole_seconds(timeout: float | None) -> int:
    """``timeout`` for a driver that counts whole seconds; connecting always has a limit."""
    return 10 if timeout is None else math.ceil(timeout)
