"""Tells, before anything has failed, when the attempts of a policy start, and how long a service may be away
before they are used up.

For an outage, the task's first attempt fails when it begins, every attempt during the outage fails, and runs
take no time. Then a task is exhausted if its last attempt starts before the outage ends. Tasks are simulated
with a fixed seed: the figures are the same each time, and right to less than a hundredth of the tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random

from celery_dlq.retry.policy import RetryPolicy, Uniform, ceiling

#: The most attempts that are listed or simulated.
LISTED = 20

#: Tasks that are simulated, and the seed.
_TASKS, _SEED = 10_000, 1


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
        longest = _longest_wait(policy, number - 1)
        wait = Span(0.0 if _is_drawn(policy) else longest, longest)
        start += wait
        if start.low > policy.window:
            return
        yield Planned(number, wait, start)


def last_starts(policy: RetryPolicy) -> list[float] | None:
    """Seconds from the first failure of simulated tasks to their last attempt, in ascending order: outages of
    this length exhaust them. None without a last attempt, or with more than :data:`LISTED`."""
    if policy.max_attempts is None or policy.max_attempts > LISTED:
        return None
    longest = [_longest_wait(policy, attempt) for attempt in range(1, policy.max_attempts)]
    draw = Random(_SEED).uniform if _is_drawn(policy) else _at_most  # noqa: S311 - a simulation
    return sorted(_last_start(longest, policy.window, draw) for _ in range(_TASKS))


def exhausts_all(policy: RetryPolicy) -> float:
    """Seconds of an outage after which every task is exhausted."""
    if policy.max_attempts is None:
        return policy.window
    longest = (_longest_wait(policy, attempt) for attempt in range(1, policy.max_attempts))
    if _is_drawn(policy):
        return min(sum(longest), policy.window)
    return _last_start(longest, policy.window, _at_most)


def _last_start(longest: Iterable[float], window: float, draw: Uniform) -> float:
    start = 0.0
    for bound in longest:
        wait = draw(0.0, bound)
        if start + wait > window:
            break
        start += wait
    return start


def _at_most(_low: float, high: float) -> float:
    return high


def _longest_wait(policy: RetryPolicy, attempt: int) -> float:
    if policy.fixed_delay is not None:
        return policy.fixed_delay
    return ceiling(attempt, policy.base, policy.cap)


def _is_drawn(policy: RetryPolicy) -> bool:
    return policy.jitter and policy.fixed_delay is None
