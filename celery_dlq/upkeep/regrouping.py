"""Moves letters to other groups after groups were merged, split or folded, and applies a recipe that was left
to workers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from celery.utils.log import get_logger

from celery_dlq.errors import SettingsError

logger = get_logger(__name__)

#: Seconds between looks while no group waits, and seconds of work in one round.
LOOK_S, WORK_S = 5.0, 1.0


class BackgroundRegrouping:
    """Works off waiting groups for a part of the time.

    :param dlq: the app's :class:`~celery_dlq.api.queue.DeadLetterQueue`.
    """

    def __init__(self, dlq: Any, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._dlq, self._monotonic = dlq, monotonic
        self._due_at = float("-inf")
        self._has_warned = False

    def run(self, should_stop: Callable[[], bool]) -> None:
        """Work for :data:`WORK_S`. Without work, look seldom.

        :raises StoreError: the store failed. The next call continues.
        """
        now = self._monotonic()
        if now < self._due_at:
            return
        if self._work(lambda: should_stop() or self._monotonic() >= now + WORK_S):
            self._due_at = now + LOOK_S

    def _work(self, should_stop: Callable[[], bool]) -> bool:
        """Whether nothing is left to do."""
        try:
            is_done: bool = self._dlq.regrouper().run(should_stop=should_stop)
        except SettingsError as error:
            if not self._has_warned:
                self._has_warned = True
                logger.warning("letters cannot be grouped again: %s", error)
            return True
        return is_done
