"""The place of a drill: tables, a queue and files of its own, which are removed at its end; and what cuts its
connections: a small TCP proxy before a server, or the lock of a file."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from kombu import Connection
from sqlalchemy import text
from sqlalchemy.engine import URL

from celery_dlq.base.redact import safe_message
from celery_dlq.drill.process import Plan, queue_of
from celery_dlq.errors import DrillError, StoreError, StoreUnavailable
from celery_dlq.store.database import schema, tables
from celery_dlq.store.database.dialects import dialect_for, parse_url
from celery_dlq.store.database.dialects.dialect import Server
from celery_dlq.store.database.engine import Database
from celery_dlq.worker.broker_limits import driver_of

#: Seconds to wait for the broker.
BROKER_TIMEOUT_S = 5

_PORTS = {"redis": 6379, "amqp": 5672}


@contextlib.contextmanager
def own_tables(store_url: str, name: str) -> Iterator[str]:
    """The URL of empty tables beside those of the app: in a file, a schema or a database of their own.

    :param name: of this drill; letters, digits and ``_``.
    :raises DrillError: the user of the database may not make them.
    :raises StoreError: the database failed.
    """
    url = parse_url(store_url)
    dialect = dialect_for(url)
    if not isinstance(dialect, Server):
        with _own_file(url, name) as own:
            yield own
        return
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(contextlib.closing(Database(store_url)))
        # Before they exist: it may be interrupted at any moment.
        stack.callback(_run, database, dialect.drop_apart.format(name=name))
        try:
            _run(database, f"CREATE {dialect.apart} {name}")
        except StoreError as error:
            stack.pop_all()
            if isinstance(error, StoreUnavailable):
                raise
            raise DrillError(_why_none(dialect, url)) from error
        own = dialect.within(url, name).render_as_string(hide_password=False)
        schema.upgrade(Database(own))
        yield own


def _run(database: Database, statement: str) -> None:
    database.write(lambda connection: connection.execute(text(statement)))


def _why_none(dialect: Server, url: URL) -> str:
    grant = dialect.grant_apart.format(database=url.database, user=url.username)
    return (
        f"The drill keeps its letters in a {dialect.apart.lower()} of its own, and the user of dlq_store_url "
        f"may not create one; run: {grant}; or name an empty database for the drill by --store-url."
    )


@contextlib.contextmanager
def _own_file(url: URL, name: str) -> Iterator[str]:
    path = Path(str(url.database)).absolute()
    own = path.with_name(f"{name}{path.suffix}")
    try:
        own_url = url.set(database=str(own)).render_as_string(hide_password=False)
        schema.upgrade(Database(own_url))
        yield own_url
    finally:
        for left in own.parent.glob(f"{own.name}*"):
            left.unlink()


@contextlib.contextmanager
def given_tables(store_url: str) -> Iterator[str]:
    """``store_url``, whose database is empty. The tables are removed at the end.

    :raises DrillError: the database already has a store.
    :raises StoreError: the database failed.
    """
    database = Database(store_url)
    if database.read(schema.current) is not None:
        raise DrillError(
            "The database of --store-url has letters or tables of a store; name an empty one."
        )
    try:
        schema.upgrade(database)
        yield store_url
    finally:
        database.write(tables.metadata.drop_all)
        database.write(lambda connection: tables.version.drop(connection, checkfirst=True))
        database.close()


@contextlib.contextmanager
def own_directory(configured: str, name: str) -> Iterator[str]:
    """The path of a directory in the configured one, or where workers would make that one; nothing is left of
    it at the end. It is not made here: whether a worker can do that is part of the drill."""
    parent = Path(configured).absolute()
    nearest = next(path for path in (parent, *parent.parents) if path.exists())
    try:
        yield str(nearest / name)
    finally:
        shutil.rmtree(nearest / name, ignore_errors=True)


def own_options(app: Any, name: str, directory: str) -> Mapping[str, Any]:
    """Additions to the transport options that keep the messages of the drill apart from all others.

    :raises DrillError: no other process sees the messages of this broker.
    """
    driver = driver_of(app)
    if driver == "memory":
        raise DrillError(
            "The broker is in memory, so no worker process sees its messages; give the app a broker."
        )
    if driver == "redis":
        given = (app.conf.broker_transport_options or {}).get("global_keyprefix", "")
        return {"global_keyprefix": f"{given}{name}:"}
    if driver == "filesystem":
        folders = [os.path.join(directory, folder) for folder in ("messages", "control")]
        for folder in folders:
            os.makedirs(folder, exist_ok=True)
        return {
            "data_folder_in": folders[0],
            "data_folder_out": folders[0],
            "control_folder": folders[1],
        }
    return {}


@contextlib.contextmanager
def own_queue(app: Any, plan: Plan, url: str) -> Iterator[Callable[[], Connection]]:
    """A function that connects to the broker, which has the queue of the drill. The queue is deleted at the
    end, with everything in it.

    :raises DrillError: the broker is away, or refuses it.
    """
    connect = partial(
        app.connection_for_write, url=url, connect_timeout=BROKER_TIMEOUT_S,
        transport_options=dict(plan.transport_options),
    )  # fmt: skip
    with contextlib.ExitStack() as stack:
        # Before it exists: it may be interrupted at any moment.
        stack.callback(_remove_queue, connect, plan)
        try:
            with connect() as connection:
                connection.ensure_connection(max_retries=1, timeout=BROKER_TIMEOUT_S)
                queue_of(plan)(connection.default_channel).declare()
        except Exception as error:
            stack.pop_all()
            raise DrillError(
                f"The broker does not let the drill have a queue of its own, {plan.queue}: "
                f"{type(error).__name__}: {safe_message(error)}; check the rights of the broker's user."
            ) from error
        yield connect


def _remove_queue(connect: Callable[[], Connection], plan: Plan) -> None:
    prefix = plan.transport_options.get("global_keyprefix")
    with connect() as connection:
        channel = connection.default_channel
        if prefix:
            # kombu's own client adds the global prefix, but only to the commands that it uses itself.
            from redis import Redis

            client = Redis(connection_pool=channel.pool)
            for key in client.scan_iter(match=f"{prefix}*", count=1_000):
                client.delete(key)
            return
        bound = queue_of(plan)(channel)
        bound.delete()
        # Virtual transports know only the exchanges that this process has declared.
        with contextlib.suppress(KeyError):
            bound.exchange.delete()


def kind_of_queue(app: Any) -> tuple[str, Mapping[str, Any]]:
    """The exchange's type, and the arguments, of a queue of the kind of the app's default queue."""
    default = app.amqp.queues.get(app.conf.task_default_queue)
    if default is None:
        return str(app.conf.task_default_exchange_type), {}
    given = default.queue_arguments or {}
    kind = {key: given[key] for key in ("x-queue-type",) if key in given}
    return default.exchange.type if default.exchange else "direct", kind


class Proxy:
    """Passes connections on to a server, until they are cut."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._sockets: list[socket.socket] = []
        self.port: int = 0
        self.restore()

    def cut(self) -> None:
        """Break all connections, and refuse new ones."""
        # Closing alone does not wake a thread that accepts.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()
        self.sever()

    def sever(self) -> None:
        """Break all connections; accept new ones."""
        broken, self._sockets = self._sockets, []
        for one in broken:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Cut it for ever."""
        self.cut()

    def restore(self) -> None:
        """Accept connections, on the port that it had before."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listener.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._server, timeout=10)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            self._sockets += (client, server)
            self._link(client, server)

    def _link(self, client: socket.socket, server: socket.socket) -> None:
        for source, target in ((client, server), (server, client)):
            threading.Thread(target=_pass, args=(source, target), daemon=True).start()


def _pass(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    # The other direction's thread closes the other end, once it has noticed.
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
    source.close()


class FileLock:
    """Locks an SQLite file, so that no other process can write to it."""

    def __init__(self, path: str) -> None:
        self._path = path

    def cut(self) -> None:
        """Lock it."""
        self._connection = sqlite3.connect(self._path, isolation_level=None)
        self._connection.execute("BEGIN EXCLUSIVE")

    def restore(self) -> None:
        """Unlock it."""
        self._connection.close()


@contextlib.contextmanager
def cuttable_broker(app: Any, url: str) -> Iterator[tuple[Proxy | None, str]]:
    """What cuts the broker off, and the URL at which it can be cut; None, and its own URL, if it has no
    single address, or does not answer through another one, as when its certificate names it."""
    driver = driver_of(app)
    # Clients of Sentinel and of other brokers are sent on to addresses that no proxy is before.
    if driver not in ("redis", "amqp") or ";" in url or url.startswith("sentinel:"):
        yield None, url
        return
    parts = urlsplit(url)
    if not parts.hostname:  # a socket in a file
        yield None, url
        return
    with contextlib.closing(Proxy(parts.hostname, parts.port or _PORTS[driver])) as proxy:
        user = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
        through = urlunsplit(parts._replace(netloc=f"{user}127.0.0.1:{proxy.port}"))
        yield (proxy, through) if _answers(app, through) else (None, url)


def _answers(app: Any, url: str) -> bool:
    with app.connection_for_write(url=url, connect_timeout=BROKER_TIMEOUT_S) as connection:
        try:
            connection.ensure_connection(max_retries=1, timeout=BROKER_TIMEOUT_S)
        except Exception:  # noqa: BLE001 - each transport has its own errors
            return False
        return True


@contextlib.contextmanager
def cuttable_store(store_url: str) -> Iterator[tuple[Proxy | FileLock | None, str]]:
    """What cuts the store off, and the URL at which it can be cut; None, and its own URL, if it has several
    servers, or does not answer through another address."""
    url = parse_url(store_url)
    dialect = dialect_for(url)
    if not isinstance(dialect, Server):
        yield FileLock(str(url.database)), store_url
        return
    if not url.host:
        yield None, store_url
        return
    with contextlib.closing(Proxy(url.host, url.port or dialect.port)) as proxy:
        through = url.set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)
        with contextlib.closing(Database(through)) as database:
            is_reached = _reaches(database)
        yield (proxy, through) if is_reached else (None, store_url)


def _reaches(database: Database) -> bool:
    try:
        database.read(schema.current)
    except StoreError:
        return False
    return True
