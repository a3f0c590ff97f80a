"""A person who sends letters back, again and again."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

from celery_dlq import DeadLetterQueue, Filter
from celery_dlq.errors import CeleryDLQError

#: Seconds between two operations.
PAUSE_S = 5.0


class Redriver(threading.Thread):
    """Has the workers send the letters of ``redriven`` back."""

    def __init__(self, app: Any) -> None:
        super().__init__(name="redriver", daemon=True)
        self._app, self._halt = app, threading.Event()

    def run(self) -> None:
        queue = DeadLetterQueue.of(self._app)
        while not self._halt.wait(PAUSE_S):
            # Without letters, or while the store is away, there is no operation.
            with contextlib.suppress(CeleryDLQError):
                queue.redrives.start(Filter(task="redriven"), who="chaos", detach=True)

    def stop(self) -> None:
        """Send no more."""
        self._halt.set()
        self.join()
