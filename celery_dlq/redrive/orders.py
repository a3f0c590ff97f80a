"""Checks orders by themselves, and suggests a canary and a rate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from celery_dlq.errors import OrdersError
from celery_dlq.model.operation import Checking, Guard, Orders, Pacing, Repair

#: A redrive of at least this many letters gets a suggested canary of this many letters, and a rate that sends
#: them all in about this many seconds, at most this many a second.
_SUGGEST_FROM, _CANARY, _SPREAD_S, _FASTEST = 20, 5, 60, 50


def suggested_pacing(count: int) -> Mapping[str, str]:
    """A canary and a rate for a redrive of this many letters, as a user types them; empty for few
    letters."""
    rate = min(_FASTEST, math.ceil(count / _SPREAD_S))
    return {"canary": f"{_CANARY}", "rate": f"{rate}/s"} if count >= _SUGGEST_FROM else {}


def check_orders(orders: Orders) -> None:
    """Check everything that can be checked without looking for letters.

    :raises OrdersError: a number is wrong, or two orders contradict each other.
    """
    problems = [
        *_pacing_problems(orders.pacing),
        *_guard_problems(orders.guard),
        *_checking_problems(orders.checking),
        *_repair_problems(orders.repair),
    ]
    if problems:
        raise OrdersError(" ".join(problems))


def _pacing_problems(pacing: Pacing) -> Iterator[str]:
    if pacing.rate is not None and not 0 < pacing.rate < float("inf"):
        yield f"The rate must be above zero, not {pacing.rate!r}."
    if pacing.canary < 0:
        yield f"The canary must be a number of letters, not {pacing.canary!r}."
    for name in ("limit", "batch", "max_in_flight", "max_queue_depth"):
        value = getattr(pacing, name)
        if value is not None and value < 1:
            yield f"{name} must be 1 or more, not {value!r}."


def _guard_problems(guard: Guard) -> Iterator[str]:
    if not 0 < guard.ratio <= 1:
        yield f"The guard's ratio must be above 0 and at most 1, not {guard.ratio!r}."
    for name in ("window", "least", "in_a_row"):
        value = getattr(guard, name)
        if value < 1:
            yield f"The guard's {name} must be 1 or more, not {value!r}."


def _checking_problems(checking: Checking) -> Iterator[str]:
    if checking.max_redrives is not None and checking.max_redrives < 1:
        yield f"max_redrives must be 1 or more, not {checking.max_redrives!r}."
    if checking.max_age_s is not None and not checking.max_age_s > 0:
        yield f"max_age_s must be above zero, not {checking.max_age_s!r}."


def _repair_problems(repair: Repair) -> Iterator[str]:
    if repair.countdown_s is not None and repair.eta is not None:
        yield "A countdown and an eta contradict each other; leave one of them out."
    if repair.countdown_s is not None and not 0 <= repair.countdown_s < float("inf"):
        yield f"The countdown must be a time, not {repair.countdown_s!r} seconds."
    if repair.eta is not None and repair.eta.tzinfo is None:
        yield "The eta needs a time zone."
