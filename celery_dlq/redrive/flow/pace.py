"""The rate of a redrive, and the size of its steps."""

from __future__ import annotations

import math
from collections.abc import Callable

#: A paced redrive sends in steps of about this many seconds, so that its rate is even.
STEP_S = 0.25

#: Letters of the first step, and how many times larger than the last one a step may be.
FIRST, GROWTH = 32, 8
#: The part of its lease in which a claim should be marked: other claims are made, and sent, before it.
SHARE = 0.25
#: The part of its lease after which a claim is given back rather than sent.
LATE = 0.5


class Pace:
    """Keeps a redrive at ``rate`` messages per second; None for as fast as possible.

    :param ramp_s: seconds in which the rate grows evenly up to ``rate``.
    :param monotonic: a clock that only goes forward, in seconds.
    """

    def __init__(
        self, rate: float | None, ramp_s: float = 0.0, *, monotonic: Callable[[], float]
    ) -> None:
        self._rate, self._ramp_s, self._monotonic = rate, ramp_s, monotonic
        self._start, self._sent = monotonic(), 0

    def batch_size(self, most: int) -> int:
        """How many messages to send in one step, at most ``most``."""
        if self._rate is None:
            return most
        return max(1, min(most, int(self._rate * self._share() * STEP_S)))

    def delay_s(self) -> float:
        """Seconds until the next step may be sent; 0.0 for at once."""
        if self._rate is None:
            return 0.0
        early_s = self._due_s(self._rate) - self._elapsed_s()
        if early_s < -STEP_S:
            # The redrive waited for something else, and must not make up for that with a burst.
            self._start -= early_s + STEP_S
        return max(0.0, early_s)

    def took(self, count: int) -> None:
        """Count this many more messages."""
        self._sent += count

    def _elapsed_s(self) -> float:
        return self._monotonic() - self._start

    def _share(self) -> float:
        """The part of the rate that applies now."""
        return min(1.0, self._elapsed_s() / self._ramp_s) if self._ramp_s else 1.0

    def _due_s(self, rate: float) -> float:
        """When the messages that were sent so far are due, in seconds after the start. While the rate grows,
        their number grows with the square of the time."""
        on_ramp = rate * self._ramp_s / 2
        if self._sent < on_ramp:
            return math.sqrt(2 * self._ramp_s * self._sent / rate)
        return self._ramp_s + (self._sent - on_ramp) / rate


class Steps:
    """Sizes steps so that a claim holds until its letters are marked, however long the checks or the broker
    take for each.

    :param lease_s: how long a claim holds, in seconds.
    """

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self.size = FIRST

    def took(self, count: int, seconds: float) -> None:
        """Note that ``count`` letters took this long from their claim to their mark."""
        in_time = SHARE * count * self._lease_s / seconds if seconds else math.inf
        # The time of a small step does not depend on the number of its letters.
        least = 1 if self.is_late(seconds) else min(FIRST, self.size)
        self.size = max(least, int(min(GROWTH * self.size, in_time)))

    def is_late(self, seconds: float) -> bool:
        """Whether a claim that was made this many seconds ago may expire before its letters are marked."""
        return seconds > LATE * self._lease_s
