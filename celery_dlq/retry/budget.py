"""How many retries a task may have beside its traffic, so that they do not keep a struggling service down."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

#: Seconds of the past that count, in slices of one second.
WINDOW_S = 10


@dataclass(frozen=True)
class OverBudget:
    """Do not try again, and why."""

    why: str


class RetryBudget:
    """Grants the retries of one task in one process. Those granted within :data:`WINDOW_S` seconds are at
    most ``share`` of the first runs within the same seconds, or ``floor`` where that is more.

    Safe to call from any thread.

    Sources: Envoy's ``RetryBudget`` (API v3, ``config.cluster.v3.CircuitBreakers.Thresholds``) has the
    share, ``budget_percent`` (20), and the floor, ``min_retry_concurrency`` (3). It compares what is under
    way at one moment; a process of Celery's pool has one task under way, and its retries wait in a broker.
    So this one compares what happened within a time, as Finagle's ``RetryBudget`` does (10 s, 20 %).

    :param share: retries for each first run, 0.0 to 1.0.
    :param floor: retries within the window that are always granted.
    :param monotonic: seconds, never going back.
    """

    def __init__(
        self, share: float, floor: int, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._share, self._floor, self._monotonic = share, floor, monotonic
        self._first_runs, self._retries = [0] * WINDOW_S, [0] * WINDOW_S
        self._second = int(monotonic())
        self._lock = threading.Lock()
        # Drawing a number is atomic, and takes a fraction of the time that a lock does.
        self._numbers, self._drawn = itertools.count(), 0

    def ran(self) -> None:
        """A message runs that is no retry."""
        if self._monotonic() >= self._second + 1:
            with self._lock:
                self._move_on()
        next(self._numbers)

    def spend(self) -> OverBudget | None:
        """Take one retry from the budget, or say why there is none."""
        with self._lock:
            self._move_on()
            first_runs, retries = sum(self._first_runs), sum(self._retries)
            if retries + 1 <= max(self._floor, self._share * first_runs):
                self._retries[self._second % WINDOW_S] += 1
                return None
        return OverBudget(
            f"over the retry budget: {retries} retries of {first_runs} first runs in {WINDOW_S} s; "
            f"{self._share:.0%} may be, and {self._floor} in any case"
        )

    def _move_on(self) -> None:
        """Note what ran since the last call, then go to the present second, and empty the slices that fell
        out of the window on the way."""
        number = next(self._numbers)
        self._first_runs[self._second % WINDOW_S] += number - self._drawn
        self._drawn = number + 1
        now = max(self._second, int(self._monotonic()))
        for second in range(max(self._second, now - WINDOW_S) + 1, now + 1):
            self._first_runs[second % WINDOW_S] = self._retries[second % WINDOW_S] = 0
        self._second = now
