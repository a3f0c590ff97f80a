"""How far an operation may send ahead of its outcomes: the canary, the guard's window, and the operator's
limit."""

from __future__ import annotations

from dataclasses import dataclass

from celery_dlq.model.operation import Counts, Guard, Orders, Pacing
from celery_dlq.redrive.flow.guard import canary_succeeded

#: How many letters a guarded redrive first sends ahead of their outcomes, and the seconds in which this
#: number doubles even if no outcome comes.
FIRST, DOUBLES_S = 10, 30.0


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
    return max(orders.pacing.canary, FIRST if orders.guard.enabled else 0)


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
    doubled = FIRST * 2 ** min(for_s / DOUBLES_S, 60)
    return min(guard.window, int(doubled) + counts.succeeded)
