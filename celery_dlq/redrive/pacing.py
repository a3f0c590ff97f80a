"""How many letters a redrive may send now: its rate, its canary, the guard that judges outcomes, and the
limits of letters in flight. Counts, outcomes and times enter; allowances, waits and causes leave."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from celery_dlq.model.operation import (
    Counts,
    Guard,
    Orders,
    Pacing,
    Sending,
    SendingState,
)

#: A paced redrive sends in steps of about this many seconds, so that its rate is even.
STEP_S = 0.25

#: Letters of the first step, and how many times larger than the last one a step may be.
_FIRST_STEP, _GROWTH = 32, 8
#: The part of its lease in which a claim should be marked: other claims are made, and sent, before it.
_SHARE = 0.25
#: The part of its lease after which a claim is given back rather than sent.
_LATE = 0.5

#: How many letters a guarded redrive first sends ahead of their outcomes, and the seconds in which this
#: number doubles even if no outcome comes.
_FIRST_AHEAD, _DOUBLES_S = 10, 30.0

#: Letters that the cause of an abort names one by one.
_NAMED = 3


@dataclass(frozen=True)
class SendAllowance:
    """How many letters may be claimed now, and what the operation waits for before it may claim more."""

    size: int
    waits_for: str = ""


def allowance_of(orders: Orders, counts: Counts, for_s: float) -> SendAllowance:
    """The allowance of an operation with these ``counts``.

    :param for_s: the seconds for which this process has carried it.
    """
    if not canary_succeeded(orders.pacing.canary, counts):
        return _for_canary(orders.pacing, counts)
    ahead = _ahead(orders, counts, for_s)
    if ahead is None or counts.unclaimed <= ahead:
        return SendAllowance(counts.unclaimed)
    return SendAllowance(max(0, ahead), f"outcomes ({counts.in_flight} in flight)")


def _for_canary(pacing: Pacing, counts: Counts) -> SendAllowance:
    missing = pacing.canary - counts.out - counts.in_hand
    if pacing.max_in_flight is not None:
        missing = min(missing, pacing.max_in_flight - counts.in_flight)
    return SendAllowance(min(counts.unclaimed, max(0, missing)), "the canary")


def first_letters(orders: Orders) -> int:
    """How many letters are chosen among all causes, because their outcomes decide whether the others go."""
    return max(orders.pacing.canary, _FIRST_AHEAD if orders.guard.enabled else 0)


def _ahead(orders: Orders, counts: Counts, for_s: float) -> int | None:
    """How many more may be sent before an outcome arrives; None for any number."""
    most = orders.pacing.max_in_flight
    limits = [most] if most is not None else []
    if orders.guard.enabled:
        limits.append(_window(orders.guard, counts, for_s))
    return min((limit - counts.in_flight for limit in limits), default=None)


def _window(guard: Guard, counts: Counts, for_s: float) -> int:
    # Each success makes room for one more, so the window doubles as long as all letters succeed. It also
    # grows with the time: a task may run for hours, its worker may be off, and an outcome may never come.
    doubled = _FIRST_AHEAD * 2 ** min(for_s / _DOUBLES_S, 60)
    return min(guard.window, int(doubled) + counts.succeeded)


class Pace:
    """Keeps a redrive at ``rate`` messages per second; None for as fast as possible.

    :param monotonic: a clock that only goes forward, in seconds.
    """

    def __init__(self, rate: float | None, *, monotonic: Callable[[], float]) -> None:
        self._rate, self._monotonic = rate, monotonic
        self._start, self._sent = monotonic(), 0

    def batch_size(self, most: int) -> int:
        """How many messages to send in one step, at most ``most``."""
        if self._rate is None:
            return most
        return max(1, min(most, int(self._rate * STEP_S)))

    def delay_s(self) -> float:
        """Seconds until the next step may be sent; 0.0 for at once."""
        if self._rate is None:
            return 0.0
        early_s = self._sent / self._rate - (self._monotonic() - self._start)
        if early_s < -STEP_S:
            # The redrive waited for something else, and must not make up for that with a burst.
            self._start -= early_s + STEP_S
        return max(0.0, early_s)

    def took(self, count: int) -> None:
        """Count this many more messages."""
        self._sent += count


class Steps:
    """Sizes steps so that a claim holds until its letters are marked, however long the checks or the broker
    take for each.

    :param lease_s: how long a claim holds, in seconds.
    """

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self.size: int = _FIRST_STEP

    def took(self, count: int, seconds: float) -> None:
        """Note that ``count`` letters took this long from their claim to their mark."""
        in_time = _SHARE * count * self._lease_s / seconds if seconds else math.inf
        # The time of a small step does not depend on the number of its letters.
        least = 1 if self.is_late(seconds) else min(_FIRST_STEP, self.size)
        self.size = max(least, int(min(_GROWTH * self.size, in_time)))

    def is_late(self, seconds: float) -> bool:
        """Whether a claim that was made this many seconds ago may expire before its letters are marked."""
        return seconds > _LATE * self._lease_s


def judged(guard: Guard, counts: Counts, canary: int) -> int:
    """How many of the newest endings :func:`why_stop` has to judge: at most a window, without those of the
    canary, whose successes would hide later failures."""
    ended = counts.succeeded + counts.failed
    return max(0, min(max(guard.window, guard.in_a_row), ended - canary))


def least_of(guard: Guard) -> int:
    """The least number of outcomes from which a failure ratio is computed: at most the size of a window."""
    return min(guard.least, guard.window)


def why_stop(guard: Guard, endings: Sequence[Sending]) -> str | None:
    """Why an operation with these ``endings``, newest first, must stop; None if it may continue."""
    if not guard.enabled:
        return None
    return (
        _failed_in_a_row(guard, endings)
        or _failed_too_often(guard, endings[: guard.window])
        or _failed_the_same_way(guard, endings[: guard.window])
    )


def why_no_more(canary: int, counts: Counts, endings: Sequence[Sending]) -> str | None:
    """Why no more letters may be sent after a canary of this many; None if they may be, or while that is
    undecided."""
    if canary and canary_is_out(canary, counts):
        failed = _failed(endings)
        if failed:
            return f"the canary failed: {_letters(failed)}"
        if counts.unknown:
            return f"{counts.unknown} of the canary have no outcome"
    return None


def canary_is_out(canary: int, counts: Counts) -> bool:
    """Whether at most the canary has been sent."""
    return counts.out <= canary


def canary_succeeded(canary: int, counts: Counts) -> bool:
    """Whether more than the canary may be sent. If more has been sent already, an earlier run saw it
    succeed."""
    return not canary_is_out(canary, counts) or counts.succeeded >= canary


def _failed_in_a_row(guard: Guard, endings: Sequence[Sending]) -> str | None:
    row = endings[: guard.in_a_row]
    if len(row) < guard.in_a_row or len(_failed(row)) < len(row):
        return None
    return f"{len(row)} in a row came back: {_letters(row)}"


def _failed_too_often(guard: Guard, endings: Sequence[Sending]) -> str | None:
    failed = _failed(endings)
    # Before the guard has enough outcomes, it assumes that all others succeed.
    if len(failed) < guard.ratio * max(len(endings), least_of(guard)):
        return None
    return f"{len(failed)} of the last {len(endings)} came back: {_letters(failed)}"


def _failed_the_same_way(guard: Guard, endings: Sequence[Sending]) -> str | None:
    failed = [ending for ending in _failed(endings) if ending.fingerprint]
    for fingerprint, count in Counter(ending.fingerprint for ending in failed).most_common(1):
        if count >= least_of(guard):
            same = [ending for ending in failed if ending.fingerprint == fingerprint]
            return f"{count} of the last {len(endings)} came back the same way: {_letters(same)}"
    return None


def _failed(endings: Sequence[Sending]) -> list[Sending]:
    return [ending for ending in endings if ending.state is SendingState.FAILED]


def _letters(failed: Sequence[Sending]) -> str:
    """The most frequent failure, and the letters that came back."""
    [(fingerprint, count)] = Counter(ending.fingerprint for ending in failed).most_common(1)
    example = next(ending for ending in failed if ending.fingerprint == fingerprint)
    most = "" if count == len(failed) else f"{times(count)} "
    ids = ", ".join(ending.task_id for ending in failed[:_NAMED])
    more = f" and {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
    group = f" (group {fingerprint})" if fingerprint else ""
    return f"{most}{example.why}{group}; letters {ids}{more}"


def times(count: int) -> str:
    """``count`` in words."""
    return "once" if count == 1 else f"{count} times"
