"""Runs the tasks of a test in a thread of its process, and leaves nothing behind there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

from celery import _state, signals
from celery.contrib.testing.worker import TestWorkController, start_worker

from celery_dlq.testing.dead_letters import DeadLetters, under_test

#: For a worker in the test's process: a broker and results that end with it.
_IN_MEMORY: Mapping[str, Any] = {
    "broker_url": "memory://localhost",
    "broker_read_url": "memory://localhost",
    "broker_write_url": "memory://localhost",
    # It looks for messages every 10 ms.
    "broker_transport_options": {"polling_interval": 0.01},
    "broker_use_ssl": False,
    "result_backend": "cache+memory://",
    "worker_detect_quorum_queues": False,
    # It is for workers that are killed.
    "dlq_recorder": False,
}

#: Seconds that the worker may take to start.
_STARTS_WITHIN_S = 30.0

#: Seconds that a task may still run after the test.
_ENDS_WITHIN_S = 30.0


@contextlib.contextmanager
def in_a_thread(app: Any, directory: Path) -> Iterator[DeadLetters]:
    """The dead letters of ``app``, whose tasks run in a thread until this block ends.

    :param directory: for the store. It is a file, because SQLite's locks on a database in memory are locks on
        whole tables, which do not wait for each other.
    """
    with under_test(app, directory, _IN_MEMORY) as letters, _working(app):
        yield letters


@contextlib.contextmanager
def _working(app: Any) -> Iterator[Any]:
    """A worker of ``app`` that runs one task at a time; it has ended when this block ends."""
    # The broker in memory is that of all apps of this process.
    app.control.purge()
    with (
        _own_logging(),
        patch.object(_state, "default_app", _state.default_app),
        patch.object(_state._tls, "current_app", _state._tls.current_app),
        patch.object(_state, "_task_join_will_block", _state._task_join_will_block),
        start_worker(
            app,
            perform_ping_check=False,
            shutdown_timeout=_ENDS_WITHIN_S,
            WorkController=_Worker,
        ) as worker,
    ):
        yield worker
        app.control.purge()
        # A worker on this broker looks every two seconds whether it is to end; a message wakes it.
        app.control.shutdown()


class _Worker(TestWorkController):  # type: ignore[misc]
    """A worker in a thread that ends if it cannot start; Celery's own would be awaited for ever."""

    _has_ended = False

    def start(self) -> None:
        """Run until the worker is told to end."""
        try:
            super().start()
        finally:
            self._has_ended = True
            self._on_started.set()

    def ensure_started(self) -> None:
        """Wait until the worker runs.

        :raises RuntimeError: it does not.
        """
        if not self._on_started.wait(_STARTS_WITHIN_S) or self._has_ended:
            raise RuntimeError("the worker of the fixture dlq did not start; its log says why")


@contextlib.contextmanager
def _own_logging() -> Iterator[None]:
    """Have Celery leave the handlers of the root logger alone; pytest has some there."""
    signals.setup_logging.connect(_leave_alone)
    try:
        yield
    finally:
        signals.setup_logging.disconnect(_leave_alone)


def _leave_alone(**_: Any) -> None:
    """Celery sets up no logging if this signal has a receiver."""
