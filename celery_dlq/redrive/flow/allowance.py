"""How far an operation may send ahead of its outcomes: the canary, the guard's window, and the operator's
limit."""

from __future__ import annotations

from dataclasses import dataclass

from celery_dlq.model.operation import Counts, Orders, Pacing
from celery_dlq.redrive.flow.guard import canary_succeeded, least_of


@dataclass(frozen=True)
class SendAllowance:
    """How many letters may be claimed now, and what the operation waits for before it may claim more."""

    size: int
    waits_for: str = ""


def allowance_of(orders: Orders, counts: Counts) -> SendAllowance:
    """The allowance of an operation with these ``counts``."""
    if not canary_succeeded(orders.pacing.canary, counts):
        return _for_canary(orders.pacing, counts)
    ahead = _ahead(orders, counts)
    if ahead is None or counts.unclaimed <= ahead:
        return SendAllowance(counts.unclaimed)
    return SendAllowance(max(0, ahead), f"outcomes ({counts.in_flight} in flight)")


def _for_canary(pacing: Pacing, counts: Counts) -> SendAllowance:
    missing = pacing.canary - counts.out - counts.in_hand
    if pacing.max_in_flight is not None:
        missing = min(missing, pacing.max_in_flight - counts.in_flight)
    return SendAllowance(min(counts.unclaimed, max(0, missing)), "the canary")


def _ahead(orders: Orders, counts: Counts) -> int | None:
    """How many more may be sent before an outcome arrives; None for any number."""
    in_flight, guard, pacing = counts.in_flight, orders.guard, orders.pacing
    limits = [pacing.max_in_flight] if pacing.max_in_flight is not None else []
    if guard.enabled:
        limits.append(guard.window)
    room = [limit - in_flight for limit in limits]
    ended = counts.succeeded + counts.failed
    if guard.enabled and ended - pacing.canary < least_of(guard):
        # The guard cannot judge before it has enough outcomes, so outcomes do not make room until then.
        room.append(pacing.canary + guard.window - in_flight - ended)
    return min(room, default=None)
