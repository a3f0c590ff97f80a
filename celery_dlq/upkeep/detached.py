"""Runs the operations that were left to workers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from celery.utils.log import get_logger

from celery_dlq.errors import CeleryDLQError
from celery_dlq.model.auto_redrive import auto_of
from celery_dlq.model.operation import OperationState
from celery_dlq.store.base import Operation
from celery_dlq.upkeep.periodic import GuardedThread

logger = get_logger(__name__)


class OperationsThread(GuardedThread):
    """Runs the operations that are left, one after another, each time it is woken. Each operation has a
    lease of its own, so two workers run two operations."""

    does = "operations"
    stopped = "redrives do not continue"
    again = "redrives continue"

    def __init__(self, dlq: Any) -> None:
        super().__init__(dlq.store_health)
        self._dlq, self._wanted = dlq, threading.Event()

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
        must_stop = self._dlq.auto_redrives.must_stop
        return lambda: self.stopping.is_set() or must_stop(operation)
