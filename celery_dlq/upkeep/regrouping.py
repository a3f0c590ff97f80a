"""Continues a regrouping that was left to workers, or whose process was killed."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from celery.utils.log import get_logger

from celery_dlq.errors import OtherRecipe, SettingsError
from celery_dlq.model.regrouping import Regrouping

logger = get_logger(__name__)

#: Seconds between looks while no regrouping is under way, and seconds of work in one round.
LOOK_S, WORK_S = 60.0, 1.0
#: A regrouping that no process has continued for this long was killed.
KILLED_AFTER = timedelta(seconds=60)


class BackgroundRegrouping:
    """Works on a regrouping for a part of the time.

    :param dlq: the app's :class:`~celery_dlq.api.queue.DeadLetterQueue`.
    """

    def __init__(self, dlq: Any, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._dlq, self._monotonic = dlq, monotonic
        self._due_at = float("-inf")
        self._refused: Regrouping | None = None

    def run(self, should_stop: Callable[[], bool]) -> None:
        """Work on the regrouping that is under way for :data:`WORK_S`. Without one, look seldom.

        :raises StoreError: the store failed. The next call continues.
        """
        now = self._monotonic()
        if now < self._due_at:
            return
        last: Regrouping | None = self._dlq.store.regroupings.last()
        if last is None or not _is_ours(last) or not self._work(last, now + WORK_S, should_stop):
            self._due_at = now + LOOK_S

    def _work(self, last: Regrouping, until: float, should_stop: Callable[[], bool]) -> bool:
        """Whether there is more to do."""
        try:
            done: Regrouping = self._dlq.regrouper().run(
                last, should_stop=lambda: should_stop() or self._monotonic() >= until
            )
        except (OtherRecipe, SettingsError) as error:
            self._refuse(last, error)
            return False
        if done.is_over:
            logger.info("regrouped %s dead letters; %s were moved", done.looked, done.moved)
        return not done.is_over

    def _refuse(self, last: Regrouping, error: Exception) -> None:
        if self._refused is None or self._refused.began_at != last.began_at:
            self._refused = last
            logger.warning("the regrouping that %s began waits: %s", last.who, error)


def _is_ours(last: Regrouping) -> bool:
    return not last.is_over and (last.is_detached or last.idle >= KILLED_AFTER)
