"""Shutdowns of a worker whose tasks are greenlets (gevent). Celery's signal handlers wait there where
nothing can: in the event loop itself."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from celery.platforms import EX_FAILURE
from celery.utils.log import get_logger
from celery.worker import state

logger = get_logger(__name__)

_SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


def is_green(pool: Any) -> bool:
    """Whether ``pool`` runs its tasks as greenlets."""
    return bool(getattr(pool, "is_green", False))


class GreenShutdown:
    """Lets Celery's handlers of shutdowns run in greenlets of their own.

    In the event loop they fail at the first thing that waits: the soft shutdown's timeout, a broker's
    answer, the result backend, a letter. Tasks were cut off by then, and nobody told.
    """

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._run: Callable[[Any], object]
        self._is_cold = False

    def join(self) -> None:
        """Stand before the pool; once, before it starts."""
        if is_green(self._consumer.pool):
            self._run = self._consumer.on_task_request
            self._consumer.on_task_request = self._take

    def start(self) -> None:
        """Stand before Celery's handlers, which are set by now."""
        in_main_thread = threading.current_thread() is threading.main_thread()
        if is_green(self._consumer.pool) and in_main_thread:  # handlers are set in no other
            self._wrap_handlers()

    def stop(self) -> None:
        """Cancel, at the end of a cold shutdown, what Celery's handler has not: a task that began
        meanwhile, or all, where another greenlet was using the connection to the broker."""
        if is_green(self._consumer.pool) and state.should_terminate not in (None, False):
            time.sleep(0)  # what was given to the pool begins, and so can be cancelled
            self._consumer.cancel_active_requests()

    def _take(self, request: Any) -> None:
        # Celery's handler waits for the broker, and may be given messages in the meantime. In a full pool
        # it would wait for ever; and they go back unharmed when the connection is closed.
        if not self._is_cold:
            self._run(request)

    def _wrap_handlers(self) -> None:
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            if getattr(handler, "__module__", "") == "celery.apps.worker":
                signal.signal(number, partial(self._handle, handler))

    def _handle(self, handler: Any, number: int, frame: Any) -> None:
        is_cold = handler.__name__ == "worker_Cold"
        self._is_cold = self._is_cold or is_cold
        spawn = self._consumer.pool.spawn_n
        spawn(partial(_terminate_after, handler) if is_cold else handler, number, frame)
        # It begins with setting other handlers, for the next signal.
        spawn(self._wrap_handlers)


def _terminate_after(handler: Callable[..., object], number: int, frame: Any) -> None:
    """Before 5.7, Celery's handler of cold shutdowns ends the worker only when nothing failed on its way,
    such as its word to the broker, on a connection that the consumer's greenlet is reading."""
    try:
        handler(number, frame)
    except Exception as error:  # noqa: BLE001 - a signal came; the worker is to end
        logger.warning("the shutdown goes on, though Celery's handler failed: %r", error)
    finally:
        if state.should_terminate in (None, False):
            state.should_terminate = EX_FAILURE
