"""Computes, before anything has failed, when the attempts of a policy start, and how long a service may be
away before they are used up.

For an outage, the task's first attempt fails when it begins, every attempt during the outage fails, and runs
take no time. Then a task is exhausted if its waits end before the outage. With full jitter each wait is drawn
evenly from zero to its ceiling, so their sum is distributed as

    F(x) = sum of (-1) ** len(s) * max(0, x - sum(s)) ** m  over all subsets s of the m ceilings
           divided by m! * product of the ceilings

(W. Feller, An Introduction to Probability Theory and Its Applications, vol. 2, chapter I.9, for equal
ceilings). The terms nearly cancel each other, so they are computed in whole microseconds, without
rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from celery_dlq.retry.policy import RetryPolicy, ceiling

#: Attempts that are listed if the schedule has no last one.
LISTED = 20

#: The most attempts for which shares of tasks are computed; the number of terms grows with each
#: ceiling.
MOST = 20

#: Units of time in a second, and the accuracy of a search, in units.
_UNITS, _CLOSE = 1_000_000, 500


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


def exhausts_all(policy: RetryPolicy) -> float:
    """Seconds of an outage after which every task is exhausted."""
    waits = _longest_waits(policy)
    if waits is None:
        return policy.window
    if not _is_drawn(policy):
        return _end_of(waits, policy.window)
    return min(math.fsum(waits), policy.window)


def exhausts_share(policy: RetryPolicy, share: float) -> float | None:
    """The length in seconds of the shortest outage that exhausts ``share`` (0.0 to 1.0) of the tasks;
    None if it is not computed: without a last attempt, or with more than :data:`MOST`."""
    waits = _longest_waits(policy)
    if waits is None or len(waits) >= MOST:
        return None
    if not _is_drawn(policy):
        return _end_of(waits, policy.window)
    low, high = -1, _units(exhausts_all(policy))
    while high - low > _CLOSE:
        middle = (low + high) // 2
        if exhausted_share(policy, middle / _UNITS) < share:
            low = middle
        else:
            high = middle
    return high / _UNITS


def exhausted_share(policy: RetryPolicy, outage_s: float) -> float:
    """The share of the tasks that an outage of this many seconds exhausts.

    :raises ValueError: the schedule has no last attempt.
    """
    waits = _longest_waits(policy)
    if waits is None:
        raise ValueError("the schedule has no last attempt")
    if not _is_drawn(policy):
        return float(outage_s >= _end_of(waits, policy.window))
    ceilings, window = [_units(wait) for wait in waits], _units(policy.window)
    until = min(_units(outage_s), window)
    share = _Sum(ceilings).at_most(until)
    if sum(ceilings) > window:
        share += sum(
            _Sum(ceilings[:place]).up_to_and_passed_by(last, until, window)
            for place, last in enumerate(ceilings)
        )
    return float(share)


def _longest_waits(policy: RetryPolicy) -> list[float] | None:
    """The waits between the attempts, each at its longest; None if the number of attempts has no limit."""
    if policy.max_attempts is None:
        return None
    return [_longest_wait(policy, attempt) for attempt in range(1, policy.max_attempts)]


def _longest_wait(policy: RetryPolicy, attempt: int) -> float:
    if policy.fixed_delay is not None:
        return policy.fixed_delay
    return ceiling(attempt, policy.base, policy.cap)


def _is_drawn(policy: RetryPolicy) -> bool:
    return policy.jitter and policy.fixed_delay is None


def _end_of(waits: Sequence[float], window: float) -> float:
    """The start of the last attempt within ``window``."""
    start = 0.0
    for wait in waits:
        if start + wait > window:
            break
        start += wait
    return start


def _units(seconds: float) -> int:
    return round(seconds * _UNITS)


class _Sum:
    """A sum of waits, each drawn evenly from zero to its ceiling. All times are in units."""

    def __init__(self, ceilings: Sequence[int]) -> None:
        self._bounds = [bound for bound in ceilings if bound]
        #: Sums of subsets of the bounds, each with how often it is added, minus how often it is subtracted.
        self._counts = {0: 1}
        for bound in self._bounds:
            for term, count in [*self._counts.items()]:
                self._counts[term + bound] = self._counts.get(term + bound, 0) - count

    def at_most(self, x: int) -> Fraction:
        """The probability that the sum is at most ``x``."""
        return self._integrated(x, 0)

    def up_to_and_passed_by(self, bound: int, x: int, window: int) -> Fraction:
        """The probability that the sum is at most ``x``, and that one more wait of up to ``bound`` ends after
        ``window``."""
        edge = window - bound
        start = max(0, edge)
        if not bound or x < start:
            return Fraction(0)
        inside = self._integrated(x, 1) - self._integrated(start, 1)
        return ((x - edge) * self.at_most(x) - inside) / bound

    def _integrated(self, x: int, times: int) -> Fraction:
        """The distribution function, integrated ``times`` times."""
        power = len(self._bounds) + times
        total = sum(
            count * (x - term) ** power for term, count in self._counts.items() if term <= x
        )
        return Fraction(total, math.factorial(power) * math.prod(self._bounds))
