"""How often, for how long, and until when a task is tried."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from celery_dlq.retry.backoff import Uniform, ceiling, full_jitter, uniform


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
