"""One process's connections to a database. Their number is bounded, and unused ones are closed.

SQLite notes in memory which locks a process has. A forked process inherits the note, but not the locks: if
another thread wrote at that moment, the new process would find the file locked for ever. Without open files,
SQLite notes nothing, so they are closed while the process forks. (https://sqlite.org/howtocorrupt.html,
section 2.6)
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakSet

from sqlalchemy import QueuePool, exc
from sqlalchemy.engine import Engine

#: A connection is closed when it has not been used for this many seconds, or for up to twice as many. Opening
#: one costs milliseconds; an open one takes up a process of PostgreSQL, or one of a pooler's few connections.
IDLE_S = 2.0


class Connections:
    """Lends ``engine`` to a bounded number of threads at a time, and closes connections that are not used.

    :param most: threads that may use it at a time; None for any number, and to leave its connections open.
    :param patience_s: seconds that one more thread waits; None for no limit.
    """

    def __init__(
        self, engine: Engine, most: int | None, *, patience_s: float | None, idle_s: float = IDLE_S
    ) -> None:
        self.engine = engine
        self._most, self._patience_s, self._idle_s = most, patience_s, idle_s
        self._changed = threading.Condition()
        #: Threads that use it now, and that used it at the same time since the watcher last looked.
        self._users = self._peak = 0
        self._has_unused = False
        #: Forks that are under way in different threads.
        self._pauses = 0
        self._watcher: _Watcher | None = None

    @contextmanager
    def used(self) -> Iterator[Engine]:
        """The engine, for one connection.

        :raises sqlalchemy.exc.TimeoutError: too many threads use it for too long.
        """
        with self._changed:
            if not self._changed.wait_for(self._has_room, self._patience_s):
                raise exc.TimeoutError("all connections are in use")
            if self._watcher is None and self._most is not None:
                watcher = _Watcher(self, self._idle_s)
                watcher.start()
                self._watcher = watcher
            self._users += 1
            self._peak = max(self._peak, self._users)
        try:
            yield self.engine
        finally:
            with self._changed:
                self._users -= 1
                self._close_what_is_unused()
                self._changed.notify_all()

    @contextmanager
    def extended(self, more: int) -> Iterator[None]:
        """Let this many more threads use the engine until the ``with`` block ends."""
        self._extend(more)
        try:
            yield
        finally:
            self._extend(-more)

    def close(self) -> None:
        """Close the open connections; the next use opens new ones."""
        with self._changed:
            if self._watcher is not None:
                self._watcher.ended.set()
                self._watcher = None
            self.engine.dispose()

    def pause(self, patience_s: float) -> None:
        """Close all connections, and open none before :meth:`resume`. Transactions may end first, for at most
        ``patience_s`` seconds; the connection of a longer one stays open."""
        with self._changed:
            self._pauses += 1
            if self._changed.wait_for(lambda: not self._users, patience_s):
                self.engine.dispose()

    def resume(self) -> None:
        """End :meth:`pause`."""
        with self._changed:
            self._pauses = max(0, self._pauses - 1)
            self._changed.notify_all()

    def close_unused(self) -> bool:
        """Close the connections that no thread has needed since the last look; those in use are not affected.
        Returns whether any connection may still be open."""
        with self._changed:
            pool = self.engine.pool
            kept = pool.checkedin() if isinstance(pool, QueuePool) else 0
            self._has_unused = self._users + kept > self._peak
            is_idle, self._peak = self._peak == 0, self._users
            self._close_what_is_unused()
            if is_idle:
                self._watcher = None
            return not is_idle

    def _close_what_is_unused(self) -> None:
        # The pool closes all its connections or none. Without users, no connection is in use, and none can be
        # taken while the lock is held.
        if self._has_unused and not self._users:
            self._has_unused = False
            self.engine.dispose()

    def _has_room(self) -> bool:
        return not self._pauses and (self._most is None or self._users < self._most)

    def _extend(self, more: int) -> None:
        with self._changed:
            if self._most is not None:
                self._most += more
            self._changed.notify_all()


class _Watcher(threading.Thread):
    """Looks for unused connections for as long as any is open."""

    def __init__(self, connections: Connections, idle_s: float) -> None:
        super().__init__(name="dlq-connections", daemon=True)
        self._connections, self._idle_s = connections, idle_s
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(self._idle_s) and self._connections.close_unused():
            pass


#: Seconds that a fork waits for the transactions of other threads, at most.
PATIENCE_S = 5.0

_of_files: WeakSet[Connections] = WeakSet()
_changing = threading.Lock()


def close_at_fork(connections: Connections) -> None:
    """Close the connections to a file before each fork of this process. Later uses open them again."""
    with _changing:
        _of_files.add(connections)


def _before_fork() -> None:
    for connections in _files_now():
        connections.pause(PATIENCE_S)


def _in_parent() -> None:
    for connections in _files_now():
        connections.resume()


def _in_child() -> None:
    global _changing
    _changing = threading.Lock()
    _of_files.clear()


def _files_now() -> list[Connections]:
    with _changing:
        return [*_of_files]


os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
