"""How fast a count grows, and when it will be whole."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

#: Seconds that a rate is measured over: long enough to be steady, short enough to show a change.
_WINDOW_S = 15.0


class Speed:
    """Measures a count as it grows.

    :param monotonic: a clock that only goes forward, in seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, count: int) -> None:
        """The count is this now."""
        now = self._monotonic()
        self._seen.append((now, count))
        # One that is older stays: the window begins with it.
        while len(self._seen) > 2 and self._seen[1][0] <= now - _WINDOW_S:
            self._seen.popleft()

    @property
    def per_second(self) -> float:
        """By how much it grew in a second; 0.0 until that can be told."""
        if not self._seen:
            return 0.0
        (began, first), (now, last) = self._seen[0], self._seen[-1]
        return (last - first) / (now - began) if now > began else 0.0

    def left_s(self, missing: int) -> float | None:
        """Seconds until ``missing`` more have come, at this speed; None while it stands still."""
        return missing / self.per_second if self.per_second else None
