"""How often, for how long, and until when a task is tried: its policy, with waits in float seconds, and the
budget that all its retries share."""

from __future__ import annotations

import itertools
import math
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

#: Draws a float uniformly between two bounds.
Uniform = Callable[[float, float], float]

#: Not the module's own generator: tasks may seed that one, and forked processes may share its state, so
#: they would all draw the same waits.
uniform: Uniform = random.SystemRandom().uniform


def ceiling(attempt: int, base: float, cap: float) -> float:
    """The longest wait after ``attempt`` (1-based): ``min(cap, base * 2 ** (attempt - 1))`` seconds."""
    try:
        return min(cap, math.ldexp(base, attempt - 1))
    except OverflowError:
        return cap


def full_jitter(attempt: int, base: float, cap: float, draw: Uniform) -> float:
    """Seconds to wait after the failure of ``attempt`` (1-based), drawn from zero to the ceiling.

    Source: "Exponential Backoff And Jitter", AWS Architecture Blog, 2015: of the variants compared
    there, full jitter makes the fewest calls, because it spreads clients over the whole interval.
    Celery's own helper has only whole seconds and raises the base to at least one.
    """
    return draw(0.0, ceiling(attempt, base, cap))


@dataclass(frozen=True)
class Wait:
    """Try again after this many seconds."""

    delay_s: float
    #: Whether this run did not use up an attempt.
    free: bool = False


@dataclass(frozen=True)
class Exhausted:
    """Do not try again, and why."""

    why: str


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """The retry schedule of one task. Durations are in seconds."""

    #: Number of runs, the first included; None for no limit except the window.
    max_attempts: int | None
    base: float
    cap: float
    #: Without jitter the wait is the ceiling itself.
    jitter: bool
    window: float
    retry_after_max: float
    #: A constant wait that replaces the backoff.
    fixed_delay: float | None = None
    draw: Uniform = field(default=uniform, compare=False)

    def after(
        self,
        attempt: int,
        *,
        failed_at: datetime,
        first_failed_at: datetime,
        retry_after: float | None = None,
        uncounted: bool = False,
        free: int = 0,
    ) -> Wait | Exhausted:
        """The next step after the transient failure of ``attempt`` (1-based).

        A server's ``retry_after`` is a lower bound: the backoff is added to it, so that its clients do not
        all come back at the same moment.

        :param uncounted: whether the run does not use up an attempt, because the other side asked for
            the wait, or the circuit is open: only the window ends it. Its backoff still grows;
            otherwise a server that always says 1 s would be asked every second.
        :param free: runs up to this one that did not use up an attempt.
        """
        used = max(1, attempt - free)
        if not uncounted and self.max_attempts is not None and used >= self.max_attempts:
            return Exhausted(f"{used} of {self.max_attempts} attempts used")
        if retry_after is not None and retry_after > self.retry_after_max:
            return Exhausted(
                f"Retry-After {retry_after:g} s is above dlq_retry_after_max {self.retry_after_max:g} s"
            )
        delay = self.backoff(attempt if uncounted else used) + (retry_after or 0.0)
        if failed_at + timedelta(seconds=delay) > first_failed_at + timedelta(seconds=self.window):
            return Exhausted(f"the retry window of {self.window:g} s is used up")
        return Wait(delay, free=uncounted)

    def backoff(self, attempt: int) -> float:
        """Seconds to wait after ``attempt``, without a wait that a server asked for."""
        if self.fixed_delay is not None:
            return self.fixed_delay
        if not self.jitter:
            return ceiling(attempt, self.base, self.cap)
        return full_jitter(attempt, self.base, self.cap, self.draw)


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
        """Take one retry from the budget; returns None, or why the budget refuses it."""
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
        """Add the runs since the last call, move to the current second, and clear the slices that have left
        the window."""
        number = next(self._numbers)
        self._first_runs[self._second % WINDOW_S] += number - self._drawn
        self._drawn = number + 1
        now = max(self._second, int(self._monotonic()))
        for second in range(max(self._second, now - WINDOW_S) + 1, now + 1):
            self._first_runs[second % WINDOW_S] = self._retries[second % WINDOW_S] = 0
        self._second = now
