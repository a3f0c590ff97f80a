"""The worker's bootstep: the thread that gives letters to handlers."""

from __future__ import annotations

import hashlib
import uuid
from typing import Any

from celery import bootsteps
from celery.utils.log import get_logger

from celery_dlq.known import unknown_task
from celery_dlq.model.handling import may_have_letters
from celery_dlq.retry.backoff import Uniform, uniform
from celery_dlq.store.base import Lease
from celery_dlq.upkeep.handlers.dispatcher import Dispatcher
from celery_dlq.upkeep.leased import LeasedThread
from celery_dlq.upkeep.step import STOP_S

logger = get_logger(__name__)


class HandlersStep(bootsteps.StartStopStep):  # type: ignore[misc]
    """Runs in the worker's parent, from its start to its shutdown. It is added with the first handler."""

    # Children are forked before the thread exists.
    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **options: Any) -> None:
        self._thread: HandlersThread | None = None
        super().__init__(worker, **options)

    def start(self, worker: Any) -> None:
        """Start: the pool runs, and the consumer is about to start."""
        _warn_of_unknown_tasks(worker.app)
        holder = f"{worker.hostname}/{uuid.uuid4().hex}"
        self._thread = HandlersThread(worker.app.dead_letter_queue, holder)
        self._thread.start()

    def stop(self, worker: Any) -> None:
        """Stop: the worker shuts down."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop()
            thread.join(timeout=STOP_S)

    terminate = stop


class HandlersThread(LeasedThread):
    """Gives letters to handlers while it has the lease."""

    does = "handlers"
    stopped = "handlers get no letters"
    again = "handlers get letters again"

    def __init__(self, dlq: Any, holder: str, *, draw: Uniform = uniform) -> None:
        super().__init__(dlq, lease_name(dlq.app, dlq.hold.place), holder, draw=draw)
        self._dispatcher = Dispatcher(dlq)

    def work(self, lease: Lease) -> float:
        """Give letters that wait to their handlers."""
        return self._dispatcher.run(lease, self._tenure.prolong)


def _warn_of_unknown_tasks(app: Any) -> None:
    """Log the handlers whose filter names a task that the app does not have. Letters of such a task may still
    be in the store, so this is not an error."""
    for handler in app.dead_letter_queue.handlers.values():
        unknown = unknown_task(handler.where.task, filter(may_have_letters, app.tasks))
        if unknown:
            logger.warning("handler %s: %s", handler.name, unknown)


def lease_name(app: Any, place: str) -> str:
    """The name of the lease, under which the workers of one app on one broker give letters to handlers: each
    app has handlers of its own."""
    named = hashlib.blake2b(str(app.main).encode(), digest_size=8).hexdigest()
    return f"handlers.{place}.{named}"
