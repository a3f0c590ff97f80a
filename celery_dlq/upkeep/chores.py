"""Releases due retries, and does work that is due less often: gives up on outcomes, deletes old rows, sends
vanished messages again, adds values of letters, and moves letters to other groups. Another thread runs the
operations that were left to workers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from celery.utils.log import get_logger

from celery_dlq.errors import CeleryDLQError, SettingsError
from celery_dlq.model.automation import auto_of
from celery_dlq.model.operation import OperationState
from celery_dlq.retry.policy import Uniform, uniform
from celery_dlq.store.base import Lease, Operation
from celery_dlq.store.tenure import TRY_S
from celery_dlq.upkeep.parked import Releaser
from celery_dlq.upkeep.periodic import GuardedThread, Leased
from celery_dlq.upkeep.resending import Resender
from celery_dlq.worker.broker_limits import upkeep_lease

logger: logging.Logger = get_logger(__name__)

#: Seconds between checks for due retries by the worker with the lease, while anything is parked: a
#: retry that was just parked may be due before all others. With nothing parked, it checks whenever it
#: prolongs the lease.
LOOK_S = 1.0
#: Seconds between checks for overdue outcomes; and for letters without values, if the last check found
#: none.
EXPIRE_S = 60.0
#: Seconds for which a released retry and an unchanged circuit are remembered; and between checks for
#: older ones.
KEEP_S, PRUNE_S = 7 * 86_400.0, 3_600.0
#: Seconds in each round for adding values, and letters that get theirs in one transaction.
VALUES_S, VALUES_AT_ONCE = 0.5, 200
#: Seconds between looks for letters to move to other groups while none waits, and seconds of moving in one
#: round.
REGROUPING_LOOK_S, REGROUPING_S = 5.0, 1.0


_CHORES_S = {"outcomes": EXPIRE_S, "values": EXPIRE_S, "old rows": PRUNE_S}


class UpkeepThread(Leased):
    """Releases due retries while it has the lease.

    :param wake: called when operations are left to workers.
    """

    does = "upkeep"
    text_stopped = "parked retries are not released"
    text_resumed = "parked retries are released again"

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
        #: Seconds until each of the chores is due.
        self._due_in_s = dict.fromkeys(_CHORES_S, 0.0)
        self._releaser = Releaser(dlq.app, lambda: dlq.store, place, pause=self.stopping.wait)
        self._resender = Resender(dlq, monotonic=monotonic)
        self._regrouping = BackgroundRegrouping(dlq, monotonic=monotonic)

    def work(self, lease: Lease) -> float:
        """Release due retries until it is time to prolong the lease, and do the other chores that are due."""
        self._release(lease)
        if not self.stopping.is_set():
            if self._is_due("outcomes"):
                self._expire()
            if self._is_due("old rows"):
                self._prune()
            self._resender.run(self._tenure.prolong)
            if self._is_due("values"):
                self._add_values()
            self._regrouping.run(self.stopping.is_set)
        return 0.0

    def wait_for_lease_s(self) -> float:
        """Seconds until this worker asks for the lease; 0 if the lease may be free now. All workers look for
        operations that are left, with or without the lease."""
        if not self._clock_checked:
            wrong = self._dlq.store.why_clock_wrong()
            self._clock_checked = True
            if wrong:
                logger.warning("%s", wrong)
        # Each worker, with or without the lease, says which of the messages in doubt it took.
        self._dlq.doubts.refresh(self._dlq.store)
        to_do = self._tenure.to_do()
        if to_do.operations:
            self._wake()
        wait_s = 0.0 if self._tenure.is_held else self.until_free_s(to_do.lease_free_in_s)
        # The process that ran the operations may have had the lease, and may have died.
        return min(TRY_S, wait_s) if to_do.operations else wait_s

    def end(self) -> None:
        """Say which of the messages in doubt this worker took, which no process remembers after it; then
        give up the lease."""
        self.guarded(lambda: self._dlq.doubts.refresh(self._dlq.store))
        super().end()

    def _release(self, lease: Lease) -> None:
        until = self._monotonic() + TRY_S
        while (left_s := until - self._monotonic()) > 0:
            due_in_s = self._releaser.run(lease, self._tenure.prolong)
            wait_s = left_s if due_in_s is None else max(0.0, min(LOOK_S, due_in_s))
            if self.stopping.wait(min(wait_s, left_s)):
                return

    def _is_due(self, chore: str) -> bool:
        """Whether a chore is due in this round. If so, its time begins again."""
        self._due_in_s[chore] -= TRY_S
        is_due = self._due_in_s[chore] <= 0
        if is_due:
            self._due_in_s[chore] = _CHORES_S[chore]
        return is_due

    def _expire(self) -> None:
        """Give up on overdue outcomes."""
        now = self._dlq.store.now()
        longest = timedelta(seconds=self._dlq.settings.outcome_timeout)
        self._dlq.store.sendings.expire(sent_before=now - longest, now=now)

    def _add_values(self) -> None:
        """Add values to letters that have none yet, for a part of the time. If more letters may be left, the
        next round continues."""
        until, self._due_in_s["values"] = self._monotonic() + VALUES_S, 0.0
        while not self.stopping.is_set() and self._monotonic() < until:
            if not self._dlq.store.values.add(letters=VALUES_AT_ONCE):
                self._due_in_s["values"] = EXPIRE_S
                return

    def _prune(self) -> None:
        store = self._dlq.store
        for role in (store.parked, store.circuits, store.recorder_reports):
            role.prune(older_than_s=KEEP_S)


class BackgroundRegrouping:
    """Moves letters of waiting groups for a part of the time.

    :param dlq: the app's :class:`~celery_dlq.api.queue.DeadLetterQueue`.
    """

    def __init__(self, dlq: Any, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._dlq, self._monotonic = dlq, monotonic
        self._due_at = float("-inf")
        self._has_warned = False

    def run(self, should_stop: Callable[[], bool]) -> None:
        """Work for :data:`REGROUPING_S`. Without work, look seldom.

        :raises StoreError: the store failed. The next call continues.
        """
        now = self._monotonic()
        if now < self._due_at:
            return
        if self._work(lambda: should_stop() or self._monotonic() >= now + REGROUPING_S):
            self._due_at = now + REGROUPING_LOOK_S

    def _work(self, should_stop: Callable[[], bool]) -> bool:
        """Whether nothing is left to do."""
        try:
            is_done: bool = self._dlq.groups.regrouper().run(should_stop=should_stop)
        except SettingsError as error:
            if not self._has_warned:
                self._has_warned = True
                logger.warning("letters cannot be grouped again: %s", error)
            return True
        return is_done


class OperationsThread(GuardedThread):
    """Runs the operations that are left, one after another, each time it is woken. Each operation has a
    lease of its own, so two workers run two operations."""

    does = "operations"
    text_stopped = "redrives do not continue"
    text_resumed = "redrives continue"

    def __init__(self, dlq: Any) -> None:
        super().__init__(dlq)
        self._wanted = threading.Event()

    def wake(self) -> None:
        """Look for operations after the current one."""
        self._wanted.set()

    def stop(self) -> None:
        """Leave the current operation to another worker, and end."""
        self.stopping.set()
        self._wanted.set()

    def run(self) -> None:
        """Work until stopped."""
        while self._wanted.wait() and not self.stopping.is_set():
            self._wanted.clear()
            trouble = self.guarded(self._work)
            if trouble is not None:
                self.log_once(trouble)

    def _work(self) -> str:
        """Run all operations that are left; returns the obstacles that stopped some of them."""
        troubles = []
        for operation in self._dlq.redrives.left():
            if self.stopping.is_set():
                break
            troubles.append(self._run(operation))
        return "; ".join(filter(None, troubles))

    def _run(self, operation: Operation) -> str:
        try:
            ended = self._dlq.redrives.carry_on(operation.id, self._stop_for(operation))
        except CeleryDLQError as error:
            # The next operation may succeed.
            return f"operation {operation.id}: {error}"
        except Exception:
            logger.exception("operation %s failed unexpectedly", operation.id)
            return ""
        if ended is None:
            return ""
        found = ended.operation
        if ended.error is not None and found.state is OperationState.RUNNING:
            return f"operation {operation.id}: {ended.error}"
        logger.log(
            logging.INFO if ended.error is None else logging.ERROR,
            "operation %s is %s: %d of %d sent%s", found.id, found.state.value, found.counts.out,
            found.counts.planned, f" ({found.cause})" if found.cause else "",
        )  # fmt: skip
        return ""

    def _stop_for(self, operation: Operation) -> Callable[[], bool]:
        """The function that says whether ``operation`` must stop; asked before each batch."""
        if not auto_of(operation.who):
            return self.stopping.is_set
        must_stop = self._dlq.automations.must_stop
        return lambda: self.stopping.is_set() or must_stop(operation)
