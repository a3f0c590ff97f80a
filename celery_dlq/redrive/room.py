"""How far a redrive may be ahead of the outcomes of what it has sent."""

from __future__ import annotations

from dataclasses import dataclass

from celery_dlq.operation import Counts, Orders, Pacing
from celery_dlq.redrive.guard import canary_succeeded, least_of


@dataclass(frozen=True)
class Room:
    """How many letters may be claimed, and what has to happen before it may be more."""

    size: int
    waits_for: str = ""


def room_of(orders: Orders, counts: Counts) -> Room:
    """The room that an operation has when its letters are where ``counts`` says."""
    left = max(0, counts.left - counts.sending)
    if not canary_succeeded(orders.pacing.canary, counts):
        return _with_canary(orders.pacing, counts, left)
    ahead = _ahead(orders, counts)
    if ahead is None or left <= ahead:
        return Room(left)
    return Room(max(0, ahead), f"the outcomes of {counts.sent + counts.sending}")


def _with_canary(pacing: Pacing, counts: Counts, left: int) -> Room:
    missing = pacing.canary - counts.out - counts.sending
    if pacing.max_in_flight is not None:
        missing = min(missing, pacing.max_in_flight - counts.sent - counts.sending)
    return Room(min(left, max(0, missing)), "the canary")


def _ahead(orders: Orders, counts: Counts) -> int | None:
    """How many more may be sent before an outcome comes; None for any number."""
    awaited, guard, pacing = counts.sent + counts.sending, orders.guard, orders.pacing
    limits = [pacing.max_in_flight] if pacing.max_in_flight is not None else []
    if guard.enabled:
        limits.append(guard.window)
    room = [limit - awaited for limit in limits]
    judged = counts.succeeded + counts.failed - pacing.canary
    if guard.enabled and judged < least_of(guard):
        # Until the guard has enough outcomes to judge by, those that came make no room.
        room.append(pacing.canary + guard.window - awaited - counts.succeeded - counts.failed)
    return min(room, default=None)
