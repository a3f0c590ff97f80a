"""Decides whether a message may enter the pool now. Leads it past the guards in a fixed order. Runs in the
event loop of the worker's parent; answers of the store and ends of runs may come in other threads.

Celery hands each request to ``Consumer.on_task_request``. :class:`Admission` replaces that method once, and
asks its guards, which :class:`~celery_dlq.worker.consumer.Capture` lists. A request goes to the pool, or is
held, parked, dropped, or condemned as poison. The modules of this room are the guards and their parts. This
room knows the request class and the room that writes. It may not know the step, or how a task is run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from celery.utils.log import get_logger

from celery_dlq.worker.celery_quirks.pools import GreenShutdown

logger: logging.Logger = get_logger(__name__)

#: Passes a request (a worker's Request) on to the next step.
Onward = Callable[[Any], object]


class Guard:
    """A reason to keep messages from the pool, for a while or for good. A guard knows no other guard. It
    repeats its tasks while the broker is connected."""

    _consumer: Any = None
    _onward: Onward
    #: The number of lost connections. Messages that came before the last one must not run.
    _connection = 0
    _timer_entries: Sequence[Any] = ()

    def join(self, consumer: Any, onward: Onward) -> bool:
        """Get ready for the messages of ``consumer``; called once, before its worker starts.

        :param onward: called with a request that this guard has held and lets go: leads it past the guards
            after this one, then to the pool.
        :return: whether messages have to pass this guard. If not, it costs them nothing.
        """
        self._consumer, self._onward = consumer, onward
        return True

    def admits(self, request: Any) -> bool:
        """Whether ``request`` may pass now. If not, the guard takes charge of it: the guard holds it and
        calls ``onward`` with it later, or drops it and settles its message."""
        return True

    def start(self) -> None:
        """Called when the broker is connected."""
        return

    def stop(self) -> None:
        """Called when the connection is lost, or the worker shuts down. The broker delivers all held messages
        again, so none of them may pass."""
        self._connection += 1
        for entry in self._timer_entries:
            entry.cancel()
        self._timer_entries = ()

    def _repeat(self, *calls: tuple[float, Callable[[], object]]) -> None:
        """Make each of ``calls`` after its seconds, again and again."""
        repeat = self._consumer.timer.call_repeatedly
        self._timer_entries = [repeat(seconds, call) for seconds, call in calls]


def watch_end(request: Any, note: Callable[[tuple[Any, Any, Any]], object]) -> None:
    """Call ``note`` with ``(failed, result or ExceptionInfo, seconds)`` before Celery learns that the run of
    ``request`` has ended. An error of ``note`` is logged."""
    # Celery overrides on_success in a subclass for each task, but not on the instance.
    end = request.on_success

    def on_success(result: tuple[Any, Any, Any], **kwargs: Any) -> None:
        request.__dict__.pop("on_success", None)  # it refers to the request
        try:
            note(result)
        except Exception:
            logger.exception("celery_dlq could not note the end of %s", request)
        end(result, **kwargs)

    request.__dict__["on_success"] = on_success


class Admission:
    """Leads requests past the guards into the pool.

    :param guards: in the order in which a message passes them.
    """

    def __init__(self, guards: Sequence[Guard | GreenShutdown]) -> None:
        self._guards = guards
        self._give_back: Callable[[], object] = lambda: None

    def join(self, consumer: Any, enter_pool: Onward) -> None:
        """Take the requests of ``consumer``. Called once, before its worker starts, because the strategies of
        tasks keep ``on_task_request`` for as long as a connection lasts.

        :param enter_pool: gives a request to the pool.
        """
        before, onward = consumer.on_task_request, enter_pool
        # Every message pays for this, so the methods are looked up only once.
        checks: tuple[Callable[[Any], bool], ...] = ()
        for guard in reversed(self._guards):
            if guard.join(consumer, onward):
                checks = guard.admits, *checks
                onward = partial(_pass, checks, enter_pool)
        consumer.on_task_request = onward
        self._give_back = lambda: setattr(consumer, "on_task_request", before)

    def leave(self) -> None:
        """Give ``on_task_request`` back to the consumer. Called at the worker's end and not earlier, because
        after a new connection Celery reads it before it starts this package's step again."""
        self._give_back()

    def start(self) -> None:
        """Called when the broker is connected."""
        for guard in self._guards:
            guard.start()

    def stop(self) -> None:
        """Called when the connection is lost, or the worker shuts down."""
        for guard in self._guards:
            guard.stop()


def _pass(checks: Sequence[Callable[[Any], bool]], enter_pool: Onward, request: Any) -> None:
    """Lead ``request`` past the guards, by their methods ``admits``, into the pool."""
    for admits in checks:
        if not admits(request):
            return
    enter_pool(request)
