"""Shutdowns of a worker whose tasks are greenlets (gevent): Celery's signal handlers fail in gevent's hub.

gevent runs signal handlers in its event loop, the hub, where nothing can wait. Celery's handlers do wait:
``on_cold_shutdown`` for the soft shutdown's timeout, for the broker, and for the result backend (celery
5.7.0, apps/worker.py, lines 463 to 486). They raise at the first wait; so tasks were cut off without a
record. Before 5.7 the worker did not even end then: since 5.7, ``_shutdown_handler`` sets the flag in a
``finally`` (line 350). Needed with Celery 5.5 to 5.7. Upstream: celery/celery#6111, open; the same cause with
eventlet was celery/celery#10083, fixed for the handler's own output only.

It can be deleted when Celery's handlers run outside the hub. The matrix shows that: ``cold_shutdown`` and
``soft_shutdown`` with gevent, in ``tests/integration/test_matrix_on_redis.py``. :func:`_terminate_after` can
be deleted with Celery 5.6.
"""

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
    """Runs Celery's handlers of shutdowns in greenlets of their own. Admits no message after a cold one."""

    def __init__(self) -> None:
        self._consumer: Any = None
        self._is_cold = False

    def join(self, consumer: Any, onward: Callable[[Any], object]) -> bool:
        """Messages have to pass this guard if tasks run as greenlets. Called once, before the worker
        starts."""
        self._consumer = consumer
        return is_green(consumer.pool)

    def admits(self, request: Any) -> bool:
        """Whether no cold shutdown has begun. During one, Celery's handler waits for the broker, and may
        receive messages in the meantime; with a full pool it would wait forever. A message that is not
        admitted is left alone: the broker delivers it again when the connection is closed."""
        return not self._is_cold

    def start(self) -> None:
        """Wrap Celery's signal handlers, which are set by now."""
        in_main_thread = threading.current_thread() is threading.main_thread()
        if is_green(self._consumer.pool) and in_main_thread:  # only it can set handlers
            self._wrap_handlers()

    def stop(self) -> None:
        """At the end of a cold shutdown, cancel the tasks that Celery's handler has not cancelled: a task
        that began in the meantime; or all tasks, if another greenlet was using the connection to the
        broker."""
        if is_green(self._consumer.pool) and state.should_terminate not in (None, False):
            time.sleep(0)  # tasks that were given to the pool begin, and so can be cancelled
            self._consumer.cancel_active_requests()

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
        # Celery's handler begins by setting other handlers, for the next signal.
        spawn(self._wrap_handlers)


def _terminate_after(handler: Callable[..., object], number: int, frame: Any) -> None:
    """Before 5.7, Celery's handler of cold shutdowns ends the worker only if nothing fails on its way. It may
    fail to tell the broker, on a connection that the consumer's greenlet is reading."""
    try:
        handler(number, frame)
    except Exception as error:  # noqa: BLE001 - a signal came: the worker has to end
        logger.warning("the shutdown goes on, though Celery's handler failed: %r", error)
    finally:
        if state.should_terminate in (None, False):
            state.should_terminate = EX_FAILURE
