"""Says in the worker's log whether the store works, once for the process."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

logger = logging.getLogger(__name__)

#: The most causes of one failure that are logged, because the text of an error may change with each try.
_CAUSES = 5


class StoreHealth:
    """Collects reports from the threads of a worker on whether the store works. Each cause of a failure is
    logged once, whichever thread notices it first; the end of the failure is logged once the store works for
    all threads.

    :param spool: the directory where letters go meanwhile.
    """

    def __init__(self, spool: Path) -> None:
        self._spool = spool
        self._lock = threading.Lock()
        #: The threads for which the store fails, and the causes that were logged.
        self._failing, self._told = set[str](), set[str]()

    def fails(self, thread: str, error: Exception) -> None:
        """Note that the store has failed for ``thread``."""
        cause = str(error)
        with self._lock:
            self._failing.add(thread)
            is_news = cause not in self._told and len(self._told) < _CAUSES
            if is_news:
                self._told.add(cause)
        if is_news:
            logger.error(
                "dead letters go to the spool %s, and parked retries wait: %s", self._spool, cause
            )

    def works(self, thread: str) -> None:
        """Note that the store has answered ``thread``."""
        if not self._failing:
            return
        with self._lock:
            was_failing = bool(self._failing)
            self._failing.discard(thread)
            is_well = was_failing and not self._failing
            if is_well:
                self._told.clear()
        if is_well:
            logger.info("dead letters go to the store again")
