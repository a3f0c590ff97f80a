"""The worker's bootstep: the threads that do the upkeep."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from celery import bootsteps
from celery.utils.log import get_logger

from celery_dlq.base.process import identity
from celery_dlq.store.database.client import Client, Role
from celery_dlq.worker.consumer import ends_in_one_line

if TYPE_CHECKING:
    from celery_dlq.upkeep.periodic import GuardedThread

logger: logging.Logger = get_logger(__name__)

#: Seconds that a worker's shutdown waits for the current batch.
STOP_S = 10.0


class UpkeepStep(bootsteps.StartStopStep):  # type: ignore[misc]
    """Runs in the worker's parent, from its start to its shutdown, whatever the task consumer does."""

    # Children, and an embedded beat, are forked before the threads exist: SQLite's locks, held by a thread at
    # that moment, would never be free in the child.
    requires: tuple[str, ...] = ("celery.worker.components:Pool", "celery.worker.components:Beat")

    def __init__(self, worker: Any, **options: Any) -> None:
        """
        :raises SettingsError: a setting is wrong, or an automatic redrive can never run. The worker ends.
        """
        self._threads: tuple[GuardedThread, ...] = ()
        dlq = worker.app.dead_letter_queue
        dlq.client = Client(Role.WORKER, str(worker.hostname))
        with ends_in_one_line():
            if dlq.settings.auto_redrive:
                from celery_dlq.upkeep.automation.conditions import check_definitions

                # The worker starts even if the store is away, but not with a definition that can never run.
                check_definitions(worker.app, dlq.settings, dlq.handlers)
        if dlq.handlers:
            # The pool's processes use the store under the time limits of handlers. An import that a time
            # limit cuts off would leave a process without SQLAlchemy for as long as it lives.
            dlq.prepare_store()
        super().__init__(worker, **options)

    def start(self, worker: Any) -> None:
        """Start: the pool runs, and the consumer is about to start.

        :raises SettingsError: the store's URL is wrong. The worker ends.
        """
        dlq = worker.app.dead_letter_queue
        # Here and below, modules are imported neither in a thread, which would keep the event loop from the
        # first tasks; nor before the pool has forked, because each of its processes would soon have a copy of
        # this memory, which only handlers need there.
        logger.info("dead letters go to %s", dlq.check_store_url())
        dlq.prepare_store()
        self._threads = (*_threads(worker),)
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


def _threads(worker: Any) -> Iterator[GuardedThread]:
    """The threads that ``worker`` needs. Modules of features that are not used are not imported."""
    from celery_dlq.upkeep.chores import OperationsThread, UpkeepThread
    from celery_dlq.upkeep.expiring import RetentionThread
    from celery_dlq.upkeep.recovery import RecoveryThread

    # Begins with the process, because another process ends its leases when it is gone.
    name = f"{identity()}/{worker.hostname}/{uuid.uuid4().hex}"
    dlq = worker.app.dead_letter_queue
    operations = OperationsThread(dlq)
    upkeep = UpkeepThread(dlq, name, wake=operations.wake)
    waking = [upkeep.wake]
    yield upkeep
    yield operations
    yield RecoveryThread(dlq, wake=lambda: [wake() for wake in waking])
    yield RetentionThread(dlq, name)
    if dlq.settings.auto_redrive or dlq.handlers:
        from celery_dlq.upkeep.automation.engine import AutomationThread, warn_of_unknown_tasks

        warn_of_unknown_tasks(worker.app)
        automations = AutomationThread(dlq, name, wake=operations.wake)
        waking.append(automations.wake)
        yield automations
    if dlq.settings.stall_after:
        from celery_dlq.upkeep.stall import StallThread

        yield StallThread(dlq, worker)
