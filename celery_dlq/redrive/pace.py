"""How fast a redrive sends."""

from __future__ import annotations

from collections.abc import Callable

#: A paced redrive sends in steps of about this many seconds, so that the rate holds evenly.
_STEP_S = 0.25


class Pace:
    """Keeps a redrive at ``rate`` messages per second; None for as fast as it goes.

    :param monotonic: a clock that only goes forward, in seconds.
    :param sleep: waits for so many seconds.
    """

    def __init__(
        self,
        rate: float | None,
        *,
        monotonic: Callable[[], float],
        sleep: Callable[[float], object],
    ) -> None:
        if rate is not None and not rate > 0:
            raise ValueError(f"rate must be above zero, not {rate!r}")
        self._rate, self._monotonic, self._sleep = rate, monotonic, sleep
        self._start = monotonic()
        self._sent = 0

    def batch_size(self, most: int) -> int:
        """How many messages to send in one step, at most ``most``."""
        return most if self._rate is None else max(1, min(most, int(self._rate * _STEP_S)))

    def wait_before(self, count: int, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Wait until ``count`` more messages may go, or until ``should_stop``."""
        if self._rate is not None:
            due = self._start + self._sent / self._rate
            while not should_stop() and (delay := due - self._monotonic()) > 0:
                self._sleep(min(delay, _STEP_S))
        self._sent += count
