"""The worker's bootstep: the threads that do the upkeep."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from celery import bootsteps
from celery.utils.log import get_logger

from celery_dlq.errors import CeleryDLQError, StoreError
from celery_dlq.redrive.lease import TRY_S, Tenure
from celery_dlq.retry.backoff import Uniform, uniform
from celery_dlq.store.base import Lease, ToDo
from celery_dlq.store.database.client import Client, Role
from celery_dlq.store.skew import why_wrong
from celery_dlq.upkeep.operations import OperationsThread
from celery_dlq.upkeep.parked import Releaser

logger = get_logger(__name__)

#: Seconds between checks for due retries by the worker with the lease, while anything is parked: a
#: retry that was just parked may be due before all others. With nothing parked, it checks whenever it
#: prolongs the lease.
LOOK_S = 1.0
#: Seconds after which workers without the lease ask again whether there is anything to do, if there was
#: not.
IDLE_S = 15.0
#: Seconds between two tries after an error.
RETRY_S = 5.0
#: Seconds between checks for overdue outcomes.
EXPIRE_S = 60.0
#: Seconds for which a released retry and an unchanged circuit are remembered; and between checks for
#: older ones.
KEEP_S, PRUNE_S = 7 * 86_400.0, 3_600.0
#: Rows of history that are deleted in one transaction, and seconds until the next one, so that other
#: work comes first.
PRUNE_ROWS, PRUNE_PAUSE_S = 500, 0.05
#: Seconds that a worker's shutdown waits for the current batch.
STOP_S = 10.0


class UpkeepStep(bootsteps.StartStopStep):  # type: ignore[misc]
    """Runs in the worker's parent, from its start to its shutdown, whatever the task consumer does."""

    # Children are forked before the thread exists.
    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **options: Any) -> None:
        self._threads: tuple[UpkeepThread | OperationsThread, ...] = ()
        worker.app.dead_letter_queue.client = Client(Role.WORKER, str(worker.hostname))
        super().__init__(worker, **options)

    def start(self, worker: Any) -> None:
        """Start: the pool runs, and the consumer is about to start."""
        name = f"{worker.hostname}/{uuid.uuid4().hex}"
        dlq = worker.app.dead_letter_queue
        operations = OperationsThread(dlq)
        self._threads = (UpkeepThread(dlq, name, wake=operations.wake), operations)
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


class UpkeepThread(threading.Thread):
    """Releases due retries while it has the lease; otherwise it waits for the lease.

    :param wake: called when operations are left to workers.
    :param draw: random waits, so that workers do not ask for the same lease at the same moment.
    """

    def __init__(
        self,
        dlq: Any,
        holder: str,
        *,
        wake: Callable[[], object],
        draw: Uniform = uniform,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(name="dlq-upkeep", daemon=True)
        self.stopping = threading.Event()
        self._dlq, self._trouble, self._clock_checked = dlq, "", False
        self._wake, self._draw, self._monotonic = wake, draw, monotonic
        self._prune_in_s = self._expire_in_s = 0.0
        place = dlq.hold.place
        self._tenure = Tenure(lambda: dlq.store, f"parked.{place}", holder)
        self._releaser = Releaser(
            dlq.app, lambda: dlq.store, place, batch_size=dlq.settings.batch_size
        )

    def stop(self) -> None:
        """End after the current batch."""
        self.stopping.set()

    def run(self) -> None:
        """Work until stopped; then give up the lease, so that another worker can continue at once."""
        wait_s = 0.0
        while not self.stopping.wait(wait_s):
            wait_s = self._try()
        try:
            self._tenure.end()
        except Exception as error:  # noqa: BLE001 - the lease ends by itself
            logger.warning("the lease of the upkeep could not be given up: %s", error)

    def _try(self) -> float:
        """One round; returns the seconds until the next."""
        try:
            wait_s = self._work()
        except StoreError as error:
            self._dlq.store_health.fails("upkeep", error)
            return RETRY_S
        except CeleryDLQError as error:
            self._say(str(error))
            return RETRY_S
        except Exception:
            logger.exception("celery_dlq's upkeep failed unexpectedly")
            return RETRY_S
        self._dlq.store_health.works("upkeep")
        self._say("")
        return wait_s

    def _work(self) -> float:
        self._check_clock()
        to_do = self._dlq.store.leases.to_do(self._tenure.name)
        if to_do.operations:
            self._wake()
        if not self._tenure.is_held and to_do.lease_free_in_s > 0:
            return self._wait_s(to_do)
        lease = self._tenure.prolong()
        if lease is None:
            return TRY_S
        self._release(lease)
        if not self.stopping.is_set():
            self._expire()
            self._prune()
        return 0.0

    def _wait_s(self, to_do: ToDo) -> float:
        """Seconds until a worker without the lease asks again: soon after the lease ends, unless it is
        prolonged."""
        if to_do.operations:  # the process that ran them may have died, too
            return TRY_S
        return min(IDLE_S, to_do.lease_free_in_s) + self._draw(0.0, TRY_S)

    def _release(self, lease: Lease) -> None:
        """Release due retries until it is time to prolong the lease."""
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

    def _prune(self) -> None:
        self._prune_in_s -= TRY_S
        if self._prune_in_s <= 0:
            self._prune_in_s = PRUNE_S
            self._dlq.store.parked.prune(older_than_s=KEEP_S)
            self._dlq.store.circuits.prune(older_than_s=KEEP_S)
            self._prune_history()

    def _prune_history(self) -> None:
        """Delete old history in small transactions, for as long as the lease is held."""
        keep_s = self._dlq.settings.history_retention
        if keep_s is None:
            return
        before = self._dlq.store.now() - timedelta(seconds=keep_s)
        while self._dlq.store.history.prune(before, limit=PRUNE_ROWS):
            if self.stopping.wait(PRUNE_PAUSE_S) or self._tenure.prolong() is None:
                return

    def _say(self, trouble: str) -> None:
        # Once, not in each round.
        if trouble and trouble != self._trouble:
            logger.error("parked retries are not released: %s", trouble)
        elif self._trouble and not trouble:
            logger.info("parked retries are released again")
        self._trouble = trouble
