"""The worker's bootstep: the threads that do the upkeep."""

from __future__ import annotations

import uuid
from typing import Any

from celery import bootsteps

from celery_dlq.store.database.client import Client, Role
from celery_dlq.upkeep.auto_redrive.runner import AutoRedriveThread
from celery_dlq.upkeep.chores import OperationsThread, UpkeepThread
from celery_dlq.upkeep.expiring import RetentionThread
from celery_dlq.upkeep.periodic import GuardedThread
from celery_dlq.upkeep.recovery import RecoveryThread
from celery_dlq.upkeep.stall import StallThread

#: Seconds that a worker's shutdown waits for the current batch.
STOP_S = 10.0


class UpkeepStep(bootsteps.StartStopStep):  # type: ignore[misc]
    """Runs in the worker's parent, from its start to its shutdown, whatever the task consumer does."""

    # Children are forked before the thread exists.
    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **options: Any) -> None:
        self._threads: tuple[GuardedThread, ...] = ()
        dlq = worker.app.dead_letter_queue
        dlq.client = Client(Role.WORKER, str(worker.hostname))
        if dlq.settings.auto_redrive:
            dlq.auto_redrives  # noqa: B018 - checks the definitions before the worker starts
        super().__init__(worker, **options)

    def start(self, worker: Any) -> None:
        """Start: the pool runs, and the consumer is about to start."""
        name = f"{worker.hostname}/{uuid.uuid4().hex}"
        dlq = worker.app.dead_letter_queue
        # Not in a thread, which would keep the event loop from the first tasks; and not before the pool has
        # forked, because each of its processes would soon have a copy of this memory.
        dlq.prepare_store()
        operations = OperationsThread(dlq)
        self._threads = (
            UpkeepThread(dlq, name, wake=operations.wake), operations, RecoveryThread(dlq),
            RetentionThread(dlq.store_health, lambda: dlq.store, dlq.retention, name),
        )  # fmt: skip
        if dlq.settings.auto_redrive:
            self._threads += (AutoRedriveThread(dlq, name, wake=operations.wake),)
        if dlq.settings.stall_after:
            self._threads += (StallThread(dlq, worker),)
        if dlq.handlers:
            # Without handlers, none of their modules is imported.
            from celery_dlq.upkeep.handlers.dispatcher import HandlersThread, warn_of_unknown_tasks

            warn_of_unknown_tasks(worker.app)
            self._threads += (HandlersThread(dlq, name),)
        for thread in self._threads:
            thread.start()

    def stop(self, worker: Any) -> None:
        """Stop: the worker shuts down."""
        threads, self._threads = self._threads, ()
        for thread in threads:
            thread.stop()
        for thread in threads:
            thread.join(timeout=STOP_S)

    terminate = stop
