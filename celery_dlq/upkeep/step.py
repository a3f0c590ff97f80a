"""The worker's bootstep: threads that are ready to do the upkeep."""

from __future__ import annotations

import threading
import uuid
from datetime import datetime, timedelta, timezone
from typing import Any

from celery import bootsteps
from celery.utils.log import get_logger

from celery_dlq.errors import CeleryDLQError
from celery_dlq.redrive.lease import TRY_S, Tenure
from celery_dlq.upkeep.operations import OperationsThread
from celery_dlq.upkeep.parked import Releaser

logger = get_logger(__name__)

#: Seconds between looks at what is due, by the one who has the lease; what is parked meanwhile may be due
#: sooner than all before it.
LOOK_S = 1.0
#: Seconds between two tries after an error.
RETRY_S = 5.0
#: Seconds between looks for outcomes that are overdue.
EXPIRE_S = 60.0
#: Seconds for which a released retry is remembered, and a circuit that nothing happens to; and between
#: looks for those that are older.
KEEP_S, PRUNE_S = 7 * 86_400.0, 3_600.0
#: Rows of history that are forgotten in one transaction, and seconds until the next one: what people wait
#: for goes first.
PRUNE_ROWS, PRUNE_PAUSE_S = 500, 0.05
#: Seconds that a worker's shutdown waits for the batch in hand.
STOP_S = 10.0


class UpkeepStep(bootsteps.StartStopStep):  # type: ignore[misc]
    """Runs in the worker's parent, from its start to its shutdown, whatever the task consumer does."""

    # Children are forked before the thread is there.
    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **options: Any) -> None:
        self._threads: tuple[UpkeepThread | OperationsThread, ...] = ()
        super().__init__(worker, **options)

    def start(self, worker: Any) -> None:
        """The pool runs; the consumer is about to start."""
        name = f"{worker.hostname}/{uuid.uuid4().hex}"
        dlq = worker.app.dead_letter_queue
        self._threads = (UpkeepThread(dlq, name), OperationsThread(dlq))
        for thread in self._threads:
            thread.start()

    def stop(self, worker: Any) -> None:
        """The worker shuts down."""
        threads, self._threads = self._threads, ()
        for thread in threads:
            thread.stopping.set()
        for thread in threads:
            thread.join(timeout=STOP_S)

    terminate = stop


class UpkeepThread(threading.Thread):
    """Releases what is due while it has the lease; otherwise it waits for its turn."""

    def __init__(self, dlq: Any, holder: str) -> None:
        super().__init__(name="dlq-upkeep", daemon=True)
        self.stopping = threading.Event()
        self._dlq, self._trouble = dlq, ""
        self._prune_in_s = self._expire_in_s = 0.0
        place = dlq.hold.place
        self._tenure = Tenure(lambda: dlq.store, f"parked.{place}", holder)
        self._releaser = Releaser(
            dlq.app, lambda: dlq.store, place, batch_size=dlq.settings.batch_size
        )

    def run(self) -> None:
        """Work until told to stop; then let another one go on at once."""
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
        except CeleryDLQError as error:
            self._say(str(error))
            return RETRY_S
        except Exception:
            logger.exception("celery_dlq's upkeep failed unexpectedly")
            return RETRY_S
        self._say("")
        return wait_s

    def _work(self) -> float:
        lease = self._tenure.prolong()
        if lease is None:
            return TRY_S
        for _ in range(int(TRY_S / LOOK_S)):
            due_in_s = self._releaser.run(lease, self._tenure.prolong)
            wait_s = LOOK_S if due_in_s is None else max(0.0, min(LOOK_S, due_in_s))
            if self.stopping.wait(wait_s):
                return 0.0
        self._expire()
        self._prune()
        return 0.0

    def _expire(self) -> None:
        """Give up on outcomes that do not come."""
        self._expire_in_s -= TRY_S
        if self._expire_in_s <= 0:
            self._expire_in_s = EXPIRE_S
            now = datetime.now(timezone.utc)
            longest = timedelta(seconds=self._dlq.settings.outcome_timeout)
            self._dlq.store.expire_sendings(sent_before=now - longest, now=now)

    def _prune(self) -> None:
        self._prune_in_s -= TRY_S
        if self._prune_in_s <= 0:
            self._prune_in_s = PRUNE_S
            self._dlq.store.prune_releases(older_than_s=KEEP_S)
            self._dlq.store.prune_circuits(older_than_s=KEEP_S)
            self._prune_history()

    def _prune_history(self) -> None:
        """In small transactions, for as long as the lease is held."""
        keep_s = self._dlq.settings.history_retention
        if keep_s is None:
            return
        before = datetime.now(timezone.utc) - timedelta(seconds=keep_s)
        while self._dlq.store.prune_history(before, limit=PRUNE_ROWS):
            if self.stopping.wait(PRUNE_PAUSE_S) or self._tenure.prolong() is None:
                return

    def _say(self, trouble: str) -> None:
        # Once, and not in each round.
        if trouble and trouble != self._trouble:
            logger.error("parked retries are not released: %s", trouble)
        elif self._trouble and not trouble:
            logger.info("parked retries are released again")
        self._trouble = trouble
