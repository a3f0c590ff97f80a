"""The worker's bootstep: the threads that do the upkeep."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from celery import bootsteps
from celery.utils.log import get_logger

from celery_dlq.redrive.lease import TRY_S
from celery_dlq.retry.backoff import Uniform, uniform
from celery_dlq.store.base import Lease, ToDo
from celery_dlq.store.database.client import Client, Role
from celery_dlq.store.skew import why_wrong
from celery_dlq.upkeep.auto_redrive.thread import AutoRedriveThread
from celery_dlq.upkeep.detached import OperationsThread
from celery_dlq.upkeep.leased import LeasedThread
from celery_dlq.upkeep.parked import Releaser
from celery_dlq.upkeep.recovery.thread import RecoveryThread
from celery_dlq.upkeep.regrouping import BackgroundRegrouping
from celery_dlq.upkeep.resending import Resender
from celery_dlq.upkeep.retention.thread import RetentionThread
from celery_dlq.upkeep.stall.thread import StallThread
from celery_dlq.worker.broker_limits import upkeep_lease

logger = get_logger(__name__)

#: Seconds between checks for due retries by the worker with the lease, while anything is parked: a
#: retry that was just parked may be due before all others. With nothing parked, it checks whenever it
#: prolongs the lease.
LOOK_S = 1.0
#: Seconds between checks for overdue outcomes, and for letters that lack their values if none did.
EXPIRE_S = 60.0
#: Seconds for which a released retry and an unchanged circuit are remembered; and between checks for
#: older ones.
KEEP_S, PRUNE_S = 7 * 86_400.0, 3_600.0
#: Seconds in each round for adding values, and letters that get theirs in one transaction.
VALUES_S, VALUES_AT_ONCE = 0.5, 200
#: Seconds that a worker's shutdown waits for the current batch.
STOP_S = 10.0


class UpkeepStep(bootsteps.StartStopStep):  # type: ignore[misc]
    """Runs in the worker's parent, from its start to its shutdown, whatever the task consumer does."""

    # Children are forked before the thread exists.
    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **options: Any) -> None:
        self._threads: tuple[
            LeasedThread | OperationsThread | RecoveryThread | RetentionThread | StallThread, ...
        ] = ()
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
            UpkeepThread(dlq, name, wake=operations.wake), operations, RetentionThread(dlq, name),
            RecoveryThread(dlq),
        )  # fmt: skip
        if dlq.settings.auto_redrive:
            self._threads += (AutoRedriveThread(dlq, name, wake=operations.wake),)
        if dlq.settings.stall_after:
            self._threads += (StallThread(dlq, worker),)
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


class UpkeepThread(LeasedThread):
    """Releases due retries while it has the lease.

    :param wake: called when operations are left to workers.
    """

    does = "upkeep"
    stopped = "parked retries are not released"
    again = "parked retries are released again"

    def __init__(
        self,
        dlq: Any,
        holder: str,
        *,
        wake: Callable[[], object],
        draw: Uniform = uniform,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        place = dlq.hold.place
        super().__init__(dlq, upkeep_lease(place), holder, draw=draw)
        self._wake, self._monotonic, self._clock_checked = wake, monotonic, False
        self._prune_in_s = self._expire_in_s = self._values_in_s = 0.0
        self._releaser = Releaser(
            dlq.app, lambda: dlq.store, place, batch_size=dlq.settings.batch_size
        )
        self._resender = Resender(dlq, monotonic=monotonic)
        self._regrouping = BackgroundRegrouping(dlq, monotonic=monotonic)

    def work(self, lease: Lease) -> float:
        """Release due retries until it is time to prolong the lease, and do what is due less often."""
        self._release(lease)
        if not self.stopping.is_set():
            self._expire()
            self._prune()
            self._resender.run(self._tenure.prolong)
            self._add_values()
            self._regrouping.run(self.stopping.is_set)
        return 0.0

    def wait_for_lease_s(self) -> float:
        """The same. All workers look for operations that are left, with or without the lease."""
        self._check_clock()
        to_do: ToDo = self._dlq.store.leases.to_do(self._tenure.name)
        if to_do.operations:
            self._wake()
        wait_s = 0.0 if self._tenure.is_held else self.until_free_s(to_do.lease_free_in_s)
        # The process that ran the operations may have had the lease, and may have died.
        return min(TRY_S, wait_s) if to_do.operations else wait_s

    def _release(self, lease: Lease) -> None:
        until = self._monotonic() + TRY_S
        while (left_s := until - self._monotonic()) > 0:
            due_in_s = self._releaser.run(lease, self._tenure.prolong)
            wait_s = left_s if due_in_s is None else max(0.0, min(LOOK_S, due_in_s))
            if self.stopping.wait(min(wait_s, left_s)):
                return

    def _check_clock(self) -> None:
        if not self._clock_checked:
            wrong = why_wrong(self._dlq.store.clock_ahead())
            self._clock_checked = True
            if wrong:
                logger.warning("%s", wrong)

    def _expire(self) -> None:
        """Give up on overdue outcomes."""
        self._expire_in_s -= TRY_S
        if self._expire_in_s <= 0:
            self._expire_in_s = EXPIRE_S
            now = self._dlq.store.now()
            longest = timedelta(seconds=self._dlq.settings.outcome_timeout)
            self._dlq.store.sendings.expire(sent_before=now - longest, now=now)

    def _add_values(self) -> None:
        """Add values of letters that lack them, for a part of the time; look seldom if none does."""
        self._values_in_s -= TRY_S
        until = self._monotonic() + VALUES_S
        while self._values_in_s <= 0 and not self.stopping.is_set() and self._monotonic() < until:
            if not self._dlq.store.values.add(letters=VALUES_AT_ONCE):
                self._values_in_s = EXPIRE_S

    def _prune(self) -> None:
        self._prune_in_s -= TRY_S
        if self._prune_in_s <= 0:
            self._prune_in_s = PRUNE_S
            self._dlq.store.parked.prune(older_than_s=KEEP_S)
            self._dlq.store.circuits.prune(older_than_s=KEEP_S)
            self._dlq.store.recorder_reports.prune(older_than_s=KEEP_S)
