"""Computes how long a service may be away before a schedule has used up its attempts.

The task's first attempt fails when the outage begins, every attempt during the outage fails, and runs take no
time. Then a task is exhausted if its waits end before the outage. With full jitter each wait is drawn evenly
from zero to its ceiling, so their sum is distributed as

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

from celery_dlq.retry.backoff import ceiling
from celery_dlq.retry.policy import RetryPolicy

#: The most attempts for which shares of tasks are computed; the number of terms grows with each
#: ceiling.
MOST = 20

#: Units of time in a second, and the accuracy of a search, in units.
_UNITS, _CLOSE = 1_000_000, 500


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
    attempts = range(1, policy.max_attempts)
    if policy.fixed_delay is not None:
        return [policy.fixed_delay for _ in attempts]
    return [ceiling(attempt, policy.base, policy.cap) for attempt in attempts]


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


@dataclass(frozen=True)
class _Terms:
    """Sums of subsets, each with how often it is added, minus how often it is subtracted."""

    counts: dict[int, int]

    @classmethod
    def of(cls, ceilings: Sequence[int]) -> _Terms:
        counts = {0: 1}
        for bound in ceilings:
            shifted = {term + bound: -count for term, count in counts.items()}
            counts = {term: counts.get(term, 0) + shifted.get(term, 0) for term in counts | shifted}
        return cls(counts)

    def below(self, x: int) -> Iterator[tuple[int, int]]:
        return ((x - term, count) for term, count in self.counts.items() if term <= x)


class _Sum:
    """A sum of waits, each drawn evenly from zero to its ceiling. All times are in units."""

    def __init__(self, ceilings: Sequence[int]) -> None:
        self._bounds = [bound for bound in ceilings if bound]
        self._terms = _Terms.of(self._bounds)

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
        total = sum(count * rest**power for rest, count in self._terms.below(x))
        return Fraction(total, math.factorial(power) * math.prod(self._bounds))
