"""Brings spooled letters into the store, a step at a time, so that new letters do not wait for it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator

from celery_dlq.errors import CeleryDLQError
from celery_dlq.spool import Drained, Spool
from celery_dlq.worker.writing.store_calls import StoreCalls

logger = logging.getLogger(__name__)

#: Seconds between two checks for spooled letters, of this worker or of one that has ended.
DRAIN_INTERVAL_S = 30.0


class SpoolDrain:
    """Drains ``spool`` in steps; the first one is due at once. One thread at a time may use it."""

    def __init__(
        self,
        spool: Spool,
        store: StoreCalls,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spool, self._store, self._monotonic = spool, store, monotonic
        self._steps: Generator[Drained, None, None] | None = None
        self._drained = Drained()
        self._due_at = float("-inf")

    def wait_until(self, due_at: float) -> None:
        """Begin the next drain at ``due_at``, by the monotonic clock."""
        self._due_at = due_at

    def seconds_until_due(self) -> float:
        """Seconds until the next step."""
        if self._steps is not None:
            return 0.0
        return max(0.0, min(self._due_at - self._monotonic(), DRAIN_INTERVAL_S))

    def step_when_due(self) -> None:
        """Make the next step of a drain, or begin one, if it is time."""
        if self._steps is None:
            if self._monotonic() < self._due_at:
                return
            self._steps, self._drained = self._spool.drain(self._store.save), Drained()
        try:
            step = next(self._steps, None)
        except CeleryDLQError as error:
            self.stop()
            self._store.fails(error)
        except Exception:
            self.stop()
            logger.exception("spool %s could not be drained", self._spool.directory)
        else:
            self._count(step)

    def stop(self) -> None:
        """End the drain that has begun, if any; another one follows later."""
        if self._steps is not None:
            self._steps.close()
        self._steps = None
        self._due_at = self._monotonic() + DRAIN_INTERVAL_S

    def _count(self, step: Drained | None) -> None:
        if step is not None:
            self._drained += step
            if step.stored:
                self._store.works()
            return
        self.stop()
        if self._drained.stored:
            logger.info("%d spooled dead letters drained into the store", self._drained.stored)
        elif self._store.has_failed:
            # Check now, because the next letter may not come for hours.
            self._store.check()
