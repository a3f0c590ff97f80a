"""The schedule of a policy, computed before anything has failed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from celery_dlq.retry.backoff import ceiling
from celery_dlq.retry.policy import RetryPolicy

#: Attempts that are listed if the schedule has no last one.
LISTED = 20


@dataclass(frozen=True)
class Span:
    """A range of seconds."""

    low: float
    high: float

    def __add__(self, other: Span) -> Span:
        return Span(self.low + other.low, self.high + other.high)


@dataclass(frozen=True)
class Planned:
    """One attempt: the wait before it, and its start after the first failure."""

    number: int
    wait: Span
    start: Span


def outlook(policy: RetryPolicy) -> Iterator[Planned]:
    """The attempts that ``policy`` allows when runs take no time: down to the last one, to the first
    that cannot start within the window, or to :data:`LISTED`."""
    start = Span(0.0, 0.0)
    yield Planned(1, start, start)
    for number in range(2, 1 + min(policy.max_attempts or LISTED, LISTED)):
        wait = _wait(policy, number - 1)
        start += wait
        if start.low > policy.window:
            return
        yield Planned(number, wait, start)


def _wait(policy: RetryPolicy, attempt: int) -> Span:
    if policy.fixed_delay is not None:
        return Span(policy.fixed_delay, policy.fixed_delay)
    longest = ceiling(attempt, policy.base, policy.cap)
    return Span(0.0 if policy.jitter else longest, longest)
