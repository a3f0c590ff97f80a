"""Acts on letters, as pages and REST carry them out. A redrive is left to a worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from celery_dlq.errors import FilterError, OrdersError
from celery_dlq.flower.filters import Given
from celery_dlq.flower.request import first
from celery_dlq.operation import Checking, Orders, Pacing
from celery_dlq.queue import DeadLetterQueue
from celery_dlq.redrive.plan import redrivable
from celery_dlq.states import State
from celery_dlq.store.base import Filter, Operation, Store
from celery_dlq.view import times

#: Names of a redrive's orders, beside the filter.
ORDERS = ("rate", "canary", "limit", "again")

#: The states that a discard takes letters from; all but the first only when they are named.
_DISCARDABLE = (State.DEAD, State.REDRIVEN, State.PARKED)

#: Characters of a reason that are taken.
WHY_LIMIT = 500


@dataclass(frozen=True, kw_only=True)
class Reach:
    """Which letters an act is about."""

    #: Those that the act takes of what was asked for.
    wanted: Filter
    #: How many there are, by task, most first.
    by_task: Mapping[str, int]
    #: Letters that were asked for and are left alone.
    left_alone: int

    @property
    def count(self) -> int:
        """How many letters the act is about."""
        return sum(self.by_task.values())


def reach(store: Store, act: str, wanted: Filter) -> Reach:
    """Which letters ``act`` takes of ``wanted``.

    :raises FilterError: it takes none from the states that are named.
    """
    taken = takeable(act, wanted)
    by_task = store.count_by_task(taken)
    others = store.count(_in_any_state(wanted)) - sum(by_task.values())
    return Reach(wanted=taken, by_task=by_task, left_alone=max(0, others))


def takeable(act: str, wanted: Filter) -> Filter:
    """``wanted``, narrowed to the states and reasons from which ``act`` takes letters.

    :raises FilterError: it takes none from the states that are named.
    """
    if act == "redrive":
        return redrivable(wanted)
    states = wanted.states & set(_DISCARDABLE)
    if wanted.states and not states:
        named = ", ".join(sorted(state.value for state in wanted.states))
        raise FilterError(
            f"Letters that are {named} cannot be discarded; only dead, redriven or parked ones can."
        )
    return replace(wanted, states=states or frozenset({State.DEAD}))


def _in_any_state(wanted: Filter) -> Filter:
    # Who names letters one by one is told of each that is left alone.
    return replace(wanted, states=frozenset(State)) if wanted.ids and not wanted.states else wanted


def read_orders(given: Given) -> Orders:
    """The orders of a redrive.

    :raises OrdersError: a value makes no sense.
    """
    rate = first(given, "rate").strip()
    try:
        per_second = times.parse_rate(rate) if rate else None
    except ValueError as error:
        raise OrdersError(str(error)) from error
    checking = Checking(max_redrives=None) if first(given, "again") else Checking()
    return Orders(
        pacing=Pacing(
            rate=per_second, canary=_number(given, "canary") or 0, limit=_number(given, "limit")
        ),
        checking=checking,
    )


def leave_redrive(queue: DeadLetterQueue, found: Reach, orders: Orders, who: str) -> Operation:
    """Make an operation that a worker carries out.

    :raises OrdersError: the orders make no sense, or not for these letters.
    """
    canary = orders.pacing.canary
    # This process may not know the tasks, and could not tell how many will be sent.
    if canary > found.count:
        raise OrdersError(
            f"A canary of {canary:,} is more than the {found.count:,} letters; make it smaller."
        )
    return queue.redrive(found.wanted, who=who, orders=orders, detach=True)


def discard(queue: DeadLetterQueue, wanted: Filter, why: str, who: str) -> int:
    """Close letters; returns how many."""
    return queue.store.discard(wanted, who=who, why=why, now=times.utc_now())


def read_why(given: Given) -> str:
    """Why letters are discarded.

    :raises FilterError: no reason is given.
    """
    why = first(given, "why").strip()
    if not why:
        raise FilterError("A discard needs a reason: say why nobody needs these letters.")
    return why[:WHY_LIMIT]


def _number(given: Given, name: str) -> int | None:
    text = first(given, name).strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and int(text[:18]) > 0 and len(text) <= 18):
        raise OrdersError(f"{name} must be a whole number above zero, not {text[:40]!r}.")
    return int(text)
