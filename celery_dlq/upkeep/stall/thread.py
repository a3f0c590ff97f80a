"""The worker's thread that watches for a stall."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import Any

from celery.utils.log import get_logger

from celery_dlq.errors import page
from celery_dlq.model.stall import Stall
from celery_dlq.upkeep.guarded import GuardedThread
from celery_dlq.upkeep.stall.ending import Ending
from celery_dlq.upkeep.stall.queues import Queues
from celery_dlq.upkeep.stall.watch import Recovered, StallWatch

logger = get_logger(__name__)

#: The values of ``dlq_on_stall``.
LOG, EXIT = "log", "exit"


class StallThread(GuardedThread):
    """Notices that ``worker`` receives nothing although messages wait and it has free slots.

    :param worker: a worker whose consumer was made. It may not have started.
    """

    does = "stall watch"
    stopped = "a stall of this worker would not be noticed"
    again = "a stall of this worker would be noticed again"

    def __init__(self, dlq: Any, worker: Any) -> None:
        super().__init__(dlq)
        self._worker, self._reception = worker, worker.consumer.dlq.reception
        self._queues = Queues(dlq.app)
        self._stall_after_s = dlq.settings.stall_after
        self._watch = StallWatch(
            str(worker.hostname),
            self._reception,
            self._queues.waiting,
            stall_after_s=self._stall_after_s,
            ends_worker=dlq.settings.on_stall == EXIT,
            monotonic=time.monotonic,
            now=lambda: datetime.now(timezone.utc),
        )

    def stop(self) -> None:
        """End after the current look."""
        self.stopping.set()

    def run(self) -> None:
        """Look until stopped."""
        try:
            while not self.stopping.wait(self._watch.wait_s):
                if self.guarded(self._round):
                    self.log_once("")
        finally:
            self._queues.close()

    def _round(self) -> bool:
        seen = self._watch.look()
        if isinstance(seen, Stall):
            self._announce(seen)
        elif isinstance(seen, Recovered):
            logger.info(
                "this worker receives messages again, after a stall of %.0f s", seen.after_s
            )
        return True

    def _announce(self, stall: Stall) -> None:
        logger.error(
            "this worker is stalled: it has received nothing for %.0f s, although it has free slots and "
            "messages wait (%s: %d); %s",
            stall.seconds, ", ".join(stall.queues), stall.messages,
            "it ends, because dlq_on_stall is 'exit'" if stall.ends_worker else _NEXT_STEP,
        )  # fmt: skip
        self._dlq.announcer().stalled(stall)
        if stall.ends_worker:
            self._end_worker()

    def _end_worker(self) -> None:
        Ending(
            lambda: self._reception.stall is not None,
            # Celery closes the connection to the broker after all steps have stopped, and that may hang.
            self._worker.blueprint.shutdown_complete.is_set,
            grace_s=self._stall_after_s,
            finish=self._dlq.hooks.finish,
        ).start()


_NEXT_STEP = (
    f"restart it, or let it end by itself with dlq_on_stall = 'exit': {page('stalled-workers')}"
)
