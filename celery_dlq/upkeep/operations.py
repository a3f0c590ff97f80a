"""Runs the operations that were left to workers."""

from __future__ import annotations

import logging
import threading
from typing import Any

from celery.utils.log import get_logger

from celery_dlq.errors import CeleryDLQError, StoreError
from celery_dlq.model.operation import OperationState
from celery_dlq.store.base import Operation

logger = get_logger(__name__)


class OperationsThread(threading.Thread):
    """Runs the operations that are left, one after another, each time it is woken. Each operation has a
    lease of its own, so two workers run two operations."""

    def __init__(self, dlq: Any) -> None:
        super().__init__(name="dlq-operations", daemon=True)
        self.stopping = threading.Event()
        self._wanted = threading.Event()
        self._dlq, self._trouble = dlq, ""

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
            self._try()

    def _try(self) -> None:
        try:
            self._log_once(self._work())
            self._dlq.store_health.works("redrives")
        except StoreError as error:
            self._dlq.store_health.fails("redrives", error)
        except CeleryDLQError as error:
            self._log_once(str(error))
        except Exception:
            logger.exception("celery_dlq's upkeep of redrives failed unexpectedly")

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
            ended = self._dlq.redrives.carry_on(operation.id, self.stopping.is_set)
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

    def _log_once(self, trouble: str) -> None:
        # Not in each round.
        if trouble and trouble != self._trouble:
            logger.error("redrives do not continue: %s", trouble)
        elif self._trouble and not trouble:
            logger.info("redrives continue")
        self._trouble = trouble
