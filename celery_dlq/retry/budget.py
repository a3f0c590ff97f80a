"""Limits the retries of a task in proportion to its first runs, so that they do not keep a struggling
service down."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable

from celery_dlq.retry.policy import Exhausted

#: Length of the time window in seconds, in slices of one second.
WINDOW_S = 10


class RetryBudget:
    """Grants the retries of one task in one process. Within :data:`WINDOW_S` seconds it grants at most
    ``share`` of the first runs in the same time, or ``floor`` if that is more.

    Safe to call from any thread.

    Sources: Envoy's ``RetryBudget`` (API v3, ``config.cluster.v3.CircuitBreakers.Thresholds``) has the
    share, ``budget_percent`` (20), and the floor, ``min_retry_concurrency`` (3). It compares active
    retries with active requests; a process of Celery's pool has one active task, and its retries wait in a
    broker. So this one compares the counts within a time window, as Finagle's ``RetryBudget`` does (10 s,
    20 %).

    :param share: retries per first run, 0.0 to 1.0.
    :param floor: retries within the window that are always granted.
    :param monotonic: a clock in seconds that never goes back.
    """

    def __init__(
        self, share: float, floor: int, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._share, self._floor, self._monotonic = share, floor, monotonic
        self._first_runs, self._retries = [0] * WINDOW_S, [0] * WINDOW_S
        self._second = int(monotonic())
        self._lock = threading.Lock()
        # next() on a counter is atomic, and takes a fraction of the time of a lock.
        self._numbers, self._drawn = itertools.count(), 0

    def ran(self) -> None:
        """Count a first run."""
        if self._monotonic() >= self._second + 1:
            with self._lock:
                self._move_on()
        next(self._numbers)

    def spend(self) -> Exhausted | None:
        """Take one retry from the budget; returns why there is none, or None if it was taken."""
        with self._lock:
            self._move_on()
            first_runs, retries = sum(self._first_runs), sum(self._retries)
            if retries + 1 <= max(self._floor, self._share * first_runs):
                self._retries[self._second % WINDOW_S] += 1
                return None
        return Exhausted(
            f"over the retry budget: {retries} retries for {first_runs} first runs in {WINDOW_S} s; "
            f"{self._share:.0%} are allowed, or {self._floor} if that is more"
        )

    def _move_on(self) -> None:
        """Add the runs since the last call, then move to the current second, and clear the slices that
        left the window."""
        number = next(self._numbers)
        self._first_runs[self._second % WINDOW_S] += number - self._drawn
        self._drawn = number + 1
        now = max(self._second, int(self._monotonic()))
        for second in range(max(self._second, now - WINDOW_S) + 1, now + 1):
            self._first_runs[second % WINDOW_S] = self._retries[second % WINDOW_S] = 0
        self._second = now
