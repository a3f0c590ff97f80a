"""Running the operations that were left to workers."""

from __future__ import annotations

import logging
import threading
from typing import Any

from celery.utils.log import get_logger

from celery_dlq.errors import CeleryDLQError
from celery_dlq.operation import OperationState
from celery_dlq.redrive.lease import TRY_S
from celery_dlq.store.base import Operation

logger = get_logger(__name__)

#: Seconds between two looks for operations.
LOOK_S = TRY_S


class OperationsThread(threading.Thread):
    """Runs one operation after the other. Each has a lease of its own, so that two workers run two."""

    def __init__(self, dlq: Any) -> None:
        super().__init__(name="dlq-operations", daemon=True)
        self.stopping = threading.Event()
        self._dlq, self._trouble = dlq, ""

    def run(self) -> None:
        """Work until told to stop; an operation under way is left to another worker."""
        while not self.stopping.wait(LOOK_S):
            self._try()

    def _try(self) -> None:
        try:
            self._say(self._work())
        except CeleryDLQError as error:
            self._say(str(error))
        except Exception:
            logger.exception("celery_dlq's upkeep of redrives failed unexpectedly")

    def _work(self) -> str:
        """One round; returns what keeps an operation from going on."""
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
            # The next operation is another one.
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

    def _say(self, trouble: str) -> None:
        # Once, and not in each round.
        if trouble and trouble != self._trouble:
            logger.error("redrives do not go on: %s", trouble)
        elif self._trouble and not trouble:
            logger.info("redrives go on again")
        self._trouble = trouble
