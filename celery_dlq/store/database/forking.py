"""Closes SQLite's files while the process forks.

SQLite notes in memory which locks a process has. A forked process inherits the note, but not the locks: if
another thread wrote at that moment, the new process would find the file locked for ever. Without open files,
SQLite notes nothing. (https://sqlite.org/howtocorrupt.html, section 2.6)
"""

from __future__ import annotations

import os
import threading
from weakref import WeakSet

from celery_dlq.store.database.connections import Connections

#: Seconds that a fork waits for the transactions of other threads, at most.
PATIENCE_S = 5.0

_of_files: WeakSet[Connections] = WeakSet()
_changing = threading.Lock()


def close_at_fork(connections: Connections) -> None:
    """Close the connections to a file before each fork of this process. Later uses open them again."""
    with _changing:
        _of_files.add(connections)


def _before() -> None:
    for connections in _now():
        connections.pause(PATIENCE_S)


def _in_parent() -> None:
    for connections in _now():
        connections.go_on()


def _in_child() -> None:
    global _changing
    _changing = threading.Lock()
    _of_files.clear()


def _now() -> list[Connections]:
    with _changing:
        return [*_of_files]


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
