"""The differences between databases. Each database has a class of its own; these are their bases.

The rest of the store calls these methods. A default here is right for most databases. The databases on a
server have connections that are named and bounded, errors that are known by a code, and a clock of their own.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from enum import Enum, auto
from typing import Any, ClassVar, TypeVar

import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.engine import URL, Connection, Engine, ExceptionContext, create_engine
from sqlalchemy.types import TypeEngine

from celery_dlq.base.redact import safe_text
from celery_dlq.errors import (
    RecordRefused,
    SchemaError,
    StoreError,
    StoreTooSlow,
    StoreUnavailable,
    page,
)
from celery_dlq.store.database.client import FOR_A_REDRIVE, Client
from celery_dlq.store.database.servers import address

#: Execution option of a connection whose transaction will write.
WRITES = "celery_dlq_writes"

#: Execution option of a query for many or large rows. Some drivers read these faster in another format.
MUCH = "celery_dlq_much"

#: The next step when the schema does not fit.
UPGRADE = "run: celery -A <app> dlq db upgrade"

#: Makes the new values of an existing row from the columns of the given row.
Change = Callable[[Any], Mapping[str, Any]]

W = TypeVar("W", sa.Insert, sa.Update)


class Dialect(ABC):
    """One kind of database."""

    #: SQLAlchemy's name for it.
    name: ClassVar[str]
    #: The schemes that its URLs may have, and the one that they get, which names the driver.
    schemes: ClassVar[frozenset[str]]
    scheme: ClassVar[str]
    #: The extra of this package that installs the driver; empty if Python has it.
    extra: ClassVar[str] = ""

    #: Whether it is a file. Then there is no server that limits connections or has a clock of its own, and no
    #: administrator who creates the schema.
    is_file: ClassVar[bool] = False
    #: Whether only one process can write at a time.
    has_one_writer: ClassVar[bool] = False
    #: Whether changes of tables are undone when their transaction fails.
    undoes_ddl: ClassVar[bool] = True

    # -- Opening ----------------------------------------------------------------------------------

    def why_unfit(self, url: URL) -> str:
        """The reason why ``url`` cannot be used, as the end of a sentence; empty if it can."""
        return ""

    def open(self, url: URL, timeout: float | None, client: Client) -> Engine:
        """An engine for ``url``; nothing is connected yet.

        :param timeout: seconds that connecting, waiting for a lock, or one statement may take; None for
            no limit except that of connecting.
        :param client: names its connections on a server.
        :raises StoreError: the driver is not installed, or the file's directory does not exist.
        """
        options = self._options(url, timeout, client)
        try:
            engine = create_engine(url, hide_parameters=True, **options)
        except ImportError as error:
            raise StoreError(
                f"The driver {url.get_driver_name()} of dlq_store_url cannot be imported ({error}); "
                f"run: pip install 'celery-dlq[{self.extra}]'"
            ) from error
        # Before the listeners of the database, which may read the parameters.
        event.listen(engine, "before_cursor_execute", _with_safe_texts, retval=True)
        self._listen(engine, timeout, client)
        return engine

    @abstractmethod
    def _options(self, url: URL, timeout: float | None, client: Client) -> dict[str, Any]:
        """Arguments for ``create_engine()``."""

    @abstractmethod
    def _listen(self, engine: Engine, timeout: float | None, client: Client) -> None:
        """Set up each new connection, and begin each transaction if the driver does not do it."""

    # -- Errors -----------------------------------------------------------------------------------

    def is_repeatable(self, error: exc.DBAPIError) -> bool:
        """Whether the same transaction may succeed when it is begun again at once, because another
        writer was in the way."""
        return isinstance(error, exc.IntegrityError)

    def store_error(self, error: exc.SQLAlchemyError, url: URL) -> StoreError:
        """The error to raise instead of ``error``."""
        if not isinstance(error, exc.DBAPIError):
            return before_the_database(error, url)
        if isinstance(error, exc.DataError | exc.IntegrityError):
            return RecordRefused(refusal(url, said_by(error, url)))
        return self._error(error, url)

    @abstractmethod
    def _error(self, error: exc.DBAPIError, url: URL) -> StoreError:
        """The error to raise instead of ``error``, which does not depend on the record."""

    # -- Schema -----------------------------------------------------------------------------------

    #: The type of a point in time, and whether it keeps the time zone.
    moment: ClassVar[TypeEngine[datetime]] = sa.DateTime()
    keeps_zones: ClassVar[bool] = False
    #: Text of any length that is stored (:data:`~celery_dlq.store.rows.rows.TEXT_LIMIT`).
    long_text: ClassVar[TypeEngine[str]] = sa.Text()
    #: The body of a message.
    blob: ClassVar[TypeEngine[bytes]] = sa.LargeBinary()
    #: A key that the database counts up by itself.
    big_id: ClassVar[TypeEngine[int]] = sa.BigInteger()
    #: Options of each table, as SQLAlchemy takes them.
    table_options: ClassVar[Mapping[str, str]] = {}

    #: Makes the type of a text that has at most this many characters, and is compared byte by byte.
    short_text: ClassVar[Any] = sa.String

    @abstractmethod
    def lock_schema(self, connection: Connection) -> None:
        """Wait until no other process changes the schema, and keep others from changing it until the
        transaction ends; or until the connection is closed, if the database does not undo changes of
        tables."""

    def check_encoding(self, connection: Connection) -> None:  # noqa: B027 - most hold any text
        """Check that the database can hold any text.

        :raises SchemaError: it cannot.
        """

    # -- Reading ----------------------------------------------------------------------------------

    @abstractmethod
    def now(self, connection: Connection) -> datetime:
        """The time by the database's clock."""

    def one_of(self, column: sa.Column[Any], values: Sequence[Any]) -> sa.ColumnElement[bool]:
        """Whether ``column`` has one of many ``values``."""
        return column.in_(values)

    def ascii_lower(self, column: sa.Column[str]) -> sa.ColumnElement[str]:
        """``column`` in lower case. It has only ASCII characters."""
        return sa.func.lower(column)

    def contains(self, column: sa.Column[str], text: str) -> sa.ColumnElement[bool]:
        """Whether ``column`` contains ``text``; upper and lower case differ."""
        return column.contains(text, autoescape=True)

    #: Makes the number of bytes of a large value. PostgreSQL knows that number without unpacking the value,
    #: which it would have to do to count characters.
    byte_count: ClassVar[Any] = sa.func.octet_length

    def read_first(self, query: sa.CTE) -> sa.CTE:
        """``query``, which is read by itself, before the statement that contains it."""
        return query

    def give_time(self, connection: Connection, size: int) -> None:  # noqa: B027 - most need none
        """Extend the time limit of this transaction's statements by the time that this many bytes take to
        arrive."""

    # -- Writing ----------------------------------------------------------------------------------

    def upsert(self, table: sa.Table, change: Change, found: sa.Select[Any] | None = None) -> Any:
        """An insert that changes the rows whose key exists already.

        :param change: the new values. MySQL sets them in this order, and reads a column that it has set with
            its new value.
        :param found: selects the rows, in columns that are named like those of ``table``; None if the rows
            are given when the statement is executed.
        """
        insert = self.insert(table)
        if found is not None:
            insert = insert.from_select(found.selected_columns.keys(), found)
        return self._or_change(insert, change)

    #: SQLAlchemy's insert of this database.
    insert: ClassVar[Any]

    def _or_change(self, insert: Any, change: Change) -> Any:
        keys: list[sa.Column[Any]] = list(insert.table.primary_key.columns)
        return insert.on_conflict_do_update(index_elements=keys, set_=change(insert.excluded))

    def in_bulk(self, statement: W) -> W:
        """``statement``, which writes many rows. If it fails, the whole transaction is undone, so the
        database need not be able to undo this statement alone."""
        return statement

    def why_too_large(self, connection: Connection, size: int) -> str:
        """The limit of the server that a row with a value of this many bytes exceeds, and how to raise it;
        empty if the row fits."""
        return ""


def driver_args(error: exc.DBAPIError) -> tuple[Any, ...]:
    """The arguments of the driver's exception."""
    return error.orig.args if error.orig is not None else ()


def said_by(error: exc.DBAPIError, url: URL) -> str:
    """The first line of the driver's message."""
    args = driver_args(error)
    text = str(args[1] if len(args) > 1 else error.orig).strip().partition("\n")[0]
    # Drivers may quote the connection string.
    return text.replace(str(url.password), "***") if url.password else text


def refusal(url: URL, reason: str) -> str:
    """The text if it is only known that the database refused."""
    return (
        f"The dead-letter store at {address(url)} refused ({reason}); "
        "run: celery -A <app> dlq doctor"
    )


def schema_error(reason: str) -> SchemaError:
    """The error for a missing table or column."""
    return SchemaError(f"The schema of the dead-letter store does not fit ({reason}); {UPGRADE}")


def before_the_database(error: exc.SQLAlchemyError, url: URL) -> StoreUnavailable | RecordRefused:
    """The error for an ``error`` that did not come from the database: no connection was free, or a value
    could not be sent."""
    if isinstance(error, exc.TimeoutError):
        return StoreUnavailable(
            f"The dead-letter store at {address(url)} has no connection free; try again."
        )
    cause = error.orig if isinstance(error, exc.StatementError) else error
    return RecordRefused(refusal(url, str(cause).partition("\n")[0]))


def _with_safe_texts(
    _connection: Connection, _cursor: Any, statement: str, parameters: Any, _: Any, is_many: bool
) -> tuple[str, Any]:
    """A statement whose parameters every database takes: people may ask for any text. Many rows at once are
    written by code that has made them storable."""
    return statement, parameters if is_many else _safe(parameters)


def _safe(value: Any) -> Any:
    if isinstance(value, str):
        return safe_text(value)
    if isinstance(value, dict):
        return {name: _safe(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = map(_safe, value)
        return [*items] if isinstance(value, list) else tuple(items)
    return value


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


_AWAY = (
    StoreUnavailable,
    "cannot be used",
    "check dlq_store_url (or CELERY_DLQ_STORE_URL) and that the database is up.",
)

#: The errors to raise: the class, what happened, and the next step.
_ERRORS: Mapping[Fault | None, tuple[type[StoreError], str, str]] = {
    Fault.LATE: (StoreTooSlow, "took too long", "ask for less, or raise dlq_store_timeout."),
    Fault.AWAY: _AWAY,
    Fault.CONFLICT: _AWAY,
    Fault.READ_ONLY: (
        StoreError,
        "is read-only",
        "name the server that accepts writes in dlq_store_url, or all servers of which one does, or let "
        "its user write.",
    ),
    Fault.FORBIDDEN: (
        StoreError,
        "refused",
        "give the user of dlq_store_url the rights that are named by "
        f"{page('install-on-postgresql-or-mysql')}.",
    ),
}

#: Another server may do better, so the connection is closed, and the next one is a new one.
_ELSEWHERE = frozenset({Fault.AWAY, Fault.READ_ONLY})


class Server(Dialect):
    """A database on a server."""

    #: The port of its servers, where a URL does not say.
    port: ClassVar[int]
    #: The word of its SQL for a set of tables apart from all others, and the statements that remove one and
    #: that give a user the right to create one.
    apart: ClassVar[str]
    drop_apart: ClassVar[str]
    grant_apart: ClassVar[str]

    @abstractmethod
    def within(self, url: URL, name: str) -> URL:
        """The URL of the tables of the set ``name``."""

    #: The query for the time by its clock.
    clock: ClassVar[str]
    #: The codes whose meaning matters.
    meanings: ClassVar[Mapping[str | int, Fault]]

    @abstractmethod
    def code(self, error: exc.DBAPIError) -> str | int | None:
        """The number or name of the error in this database; None if the driver gives none."""

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
    def oldest(self, connection: Connection) -> tuple[str, tuple[int, ...]]:
        """The name of the server's product, and the oldest version that has all that the store needs."""

    def why_too_old(self, connection: Connection) -> str:
        """Why the server is too old for the store, as the end of a sentence; empty if it is not."""
        product, needed = self.oldest(connection)
        found = connection.dialect.server_version_info or needed
        if found >= needed:
            return ""
        return (
            f"is {product} {_dotted(found)}, and the store needs {_dotted(needed)} or newer; upgrade the "
            "server, or name another one in dlq_store_url"
        )

    #: Waits for the lock of the schema.
    lock: ClassVar[sa.TextClause]

    def lock_schema(self, connection: Connection) -> None:
        connection.execute(self.lock)

    @abstractmethod
    def why_read_only(self, connection: Connection) -> str:
        """Why the server accepts no writes, as the end of a sentence; empty if it does."""

    def now(self, connection: Connection) -> datetime:
        moment: datetime = connection.execute(sa.text(self.clock)).scalar_one()
        if moment.tzinfo is None:
            return moment.replace(tzinfo=timezone.utc)
        return moment.astimezone(timezone.utc)

    def is_repeatable(self, error: exc.DBAPIError) -> bool:
        code = self.code(error)
        is_conflict = code is not None and self.meanings.get(code) is Fault.CONFLICT
        return is_conflict or super().is_repeatable(error)

    def _error(self, error: exc.DBAPIError, url: URL) -> StoreError:
        fault, said = self.fault(error), said_by(error, url)
        if fault is Fault.SCHEMA:
            return schema_error(said)
        if fault not in _ERRORS:
            kind = RecordRefused if fault is Fault.TOO_LARGE else StoreError
            return kind(refusal(url, said))
        kind, what, step = _ERRORS[fault]
        return kind(f"The dead-letter store at {address(url)} {what} ({said}); {step}")

    def _pool(self, timeout: float | None, client: Client) -> dict[str, Any]:
        """How many connections the engine keeps, and how long it waits for one."""
        return {
            "pool_size": client.most + FOR_A_REDRIVE,
            "max_overflow": 0,
            # Connections that are not needed at the same time are never opened.
            "pool_use_lifo": True,
            "pool_timeout": whole_seconds(timeout),
        }


def _dotted(version: Sequence[object]) -> str:
    return ".".join(map(str, version))


def whole_seconds(timeout: float | None) -> int:
    """``timeout`` for a driver that counts whole seconds; connecting always has a limit."""
    return 10 if timeout is None else math.ceil(timeout)
