"""Acts on letters, for pages and for the REST API. A redrive is left to a worker."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.api.retention import check_reason, deletable
from celery_dlq.base.redact import clip
from celery_dlq.errors import FilterError, OperationError, OrdersError, RepairError
from celery_dlq.flower.http.request import (
    Given,
    Take,
    choice,
    first_value,
    reason_in,
    single_value,
    whole_number,
)
from celery_dlq.model.assignment import parse_assignment
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.operation import DEFAULT_ORDERS, Checking, Orders, Pacing, Repair
from celery_dlq.model.states import State
from celery_dlq.redrive.plan import redrivable
from celery_dlq.store.base import Filter, Operation
from celery_dlq.view import times
from celery_dlq.view.text import counted

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: The fields of a redrive's orders, in addition to the filter.
ORDERS = ("rate", "canary", "limit", "again", "why")

#: The fields of the changes of a redrive: assignments, one in a line; and the name of a repair.
SET, REPAIR = "set", "repair"

#: Asks for the plan of a redrive; and the mark of a form whose changes were shown.
PLAN, SEEN = "plan", "seen"

#: The most assignments of one redrive, and the most characters of one.
MOST_SET, SET_LIMIT = 20, 2_000

#: The characters that begin a JSON value which is not a number or a word.
_BEGINS_JSON = ("{", "[", '"')

#: The states from which letters can be discarded; and those that need not be named, if the filter finds them.
DISCARDABLE = (State.DEAD, State.REDRIVEN, State.PARKED)
_WITHOUT_NAME = (State.DEAD, State.PARKED)


@dataclass(frozen=True, kw_only=True)
class Reach:
    """The letters of an act."""

    #: The requested letters that the act takes.
    wanted: Filter
    #: Their number by task, the most first.
    by_task: Mapping[str, int]
    #: The number of requested letters that the act leaves alone.
    left_alone: int

    @property
    def count(self) -> int:
        """The number of letters that the act takes."""
        return sum(self.by_task.values())


def reach(store: Store, wanted: Filter, take: Take) -> Reach:
    """The letters of ``wanted`` that an act takes.

    :raises FilterError: the act cannot take letters in the given states.
    """
    taken = take(wanted)
    by_task = store.counts.by_task(taken)
    others = store.counts.letters(_requested(wanted, taken)) - sum(by_task.values())
    return Reach(wanted=taken, by_task=by_task, left_alone=max(0, others))


def discardable(wanted: Filter) -> Filter:
    """``wanted``, narrowed to the states from which letters can be discarded.

    :raises FilterError: it names only other states.
    """
    states = wanted.wanted_states & set(DISCARDABLE if wanted.states else _WITHOUT_NAME)
    if not states:
        named = ", ".join(sorted(state.value for state in wanted.states))
        raise FilterError(
            f"Letters that are {named} cannot be discarded; only dead, redriven or parked ones can."
        )
    return replace(wanted, states=states)


def _requested(wanted: Filter, taken: Filter) -> Filter:
    # With ids, letters in any other state are counted as left alone.
    if wanted.ids and not wanted.states:
        # Parked retries cannot be found by values.
        others = {State.PARKED} if wanted.asks_for_values else set[State]()
        return replace(wanted, states=frozenset(State) - others)
    return replace(wanted, states=wanted.wanted_states | taken.states)


def read_orders(given: Given) -> Orders:
    """The orders of a redrive.

    :raises OrdersError: the rate is invalid.
    :raises FilterError: another value is invalid, or is given more than once.
    """
    rate = (single_value(given, "rate") or "").strip()
    try:
        per_second = times.parse_rate(rate) if rate else None
    except ValueError as error:
        raise OrdersError(str(error)) from error
    checking = Checking(max_redrives=None) if choice(given, "again") else Checking()
    return Orders(
        pacing=Pacing(
            rate=per_second, canary=_number(given, "canary") or 0, limit=_number(given, "limit")
        ),
        checking=checking,
        why=reason_in(given),
    )


def read_repair(given: Given) -> Repair:
    """The changes that a redrive makes to each message.

    :raises RepairError: an assignment is invalid.
    :raises FilterError: several repairs are named.
    """
    lines = (line.strip() for line in re.split(r"\r\n|\r|\n", first_value(given, SET)))
    assignments = tuple(line for line in lines if line)
    if len(assignments) > MOST_SET:
        raise RepairError(
            f"Set arguments: {len(assignments):,} lines are more than {MOST_SET}; leave some out, or use "
            "a repair (@dlq.repair)."
        )
    for text in assignments:
        _check_assignment(text)
    return Repair(assignments=assignments, function=single_value(given, REPAIR) or None)


def orders_in(given: Given) -> Orders:
    """The orders of a redrive, with its changes.

    :raises OrdersError: a value is invalid.
    :raises RepairError: an assignment is invalid.
    """
    return replace(read_orders(given), repair=read_repair(given))


def _check_assignment(text: str) -> None:
    if len(text) > SET_LIMIT:
        raise RepairError(
            f"Set arguments: {clip(text, 60)} has more than {SET_LIMIT:,} characters; make it shorter, or "
            "edit the letters one by one."
        )
    found = parse_assignment(text, "Set arguments:")
    if found.written.startswith(_BEGINS_JSON) and found.value is found.written:
        # The command line would take it for a text; a person who begins it like this means JSON.
        raise RepairError(
            f"Set arguments: the value of {found.place} begins like JSON, but is not JSON: "
            f"{clip(found.written, 60)}. Fix it; a text is written in double quotes."
        )


def has_been_redriven_often(letter: DeadLetter) -> bool:
    """Whether a redrive of ``letter`` needs ``again``, because of its redrive limit."""
    limit = DEFAULT_ORDERS.checking.max_redrives
    return limit is not None and letter.redrive_count >= limit


def redrive_one(queue: DeadLetterQueue, task_id: str, given: Given, who: str) -> Operation:
    """Create an operation of one letter.

    :raises OperationError: the letter cannot be redriven in its state.
    :raises OrdersError: the orders are invalid.
    """
    found = reach(queue.store, only(task_id, State.DEAD, State.REDRIVEN), redrivable)
    check_some(found.count, task_id, "redriven")
    return leave_redrive(queue, found, read_orders(given), who)


def only(task_id: str, *states: State) -> Filter:
    """One letter, if it is in one of these states."""
    return Filter(ids=(task_id,), states=frozenset(states))


def check_some(count: int, task_id: str, done: str) -> None:
    """Check that an act on one letter has found it.

    :param done: the act, as a participle.
    :raises OperationError: it has not.
    """
    if not count:
        raise OperationError(
            f"The letter {task_id} cannot be {done} in its current state; reload its page."
        )


def leave_redrive(queue: DeadLetterQueue, found: Reach, orders: Orders, who: str) -> Operation:
    """Create an operation that a worker runs.

    :raises OrdersError: the orders are invalid, or do not fit these letters.
    """
    canary = orders.pacing.canary
    # This process may not have the tasks, so it cannot check how many letters will be sent.
    if canary > found.count:
        raise OrdersError(
            f"A canary of {canary:,} is more than {counted(found.count, 'letter')}; make it smaller."
        )
    return queue.redrives.start(found.wanted, who=who, orders=orders, detach=True)


def discard(queue: DeadLetterQueue, wanted: Filter, given: Given, who: str) -> int:
    """Discard letters; returns how many.

    :raises FilterError: there is no reason.
    """
    return queue.store.closing.discard(wanted, who=who, why=read_why(given), now=times.utc_now())


def read_why(given: Given) -> str:
    """The reason of a discard.

    :raises FilterError: there is no reason.
    """
    why = reason_in(given)
    if not why:
        raise FilterError("A discard needs a reason; say why these letters are not needed.")
    return why


def _number(given: Given, name: str) -> int | None:
    text = (single_value(given, name) or "").strip()
    return whole_number(name, text) if text else None


@dataclass(frozen=True, kw_only=True)
class Act:
    """An act on many letters, for its page and for the REST API."""

    #: The fields of a JSON object, in addition to the filter and the number of letters.
    fields: Sequence[str]
    #: The fields of the form that no other act has.
    form: Sequence[str] = ()
    #: Checks the fields, before letters are counted.
    check: Callable[[Given], object]
    #: How it narrows a filter; for a deletion, by whether open letters are to be deleted.
    take: Callable[[bool], Take]
    #: Makes the change, in a thread; returns the operation for a worker, or the number of letters. The last
    #: argument is whether the user agrees to delete open letters.
    run: Callable[[DeadLetterQueue, Reach, Given, str, bool], Operation | int]
    #: For an act without a worker: a noun, and the name of the number of letters in the answer.
    noun: str = ""
    done: str = ""


#: The acts on many letters, by name.
ACTS = {
    "redrive": Act(
        fields=(*ORDERS, REPAIR),
        form=(SET, REPAIR, PLAN, SEEN),
        check=read_orders,
        take=lambda _is_open: redrivable,
        run=lambda queue, found, given, who, _: leave_redrive(queue, found, orders_in(given), who),
    ),
    "discard": Act(
        fields=("why",),
        check=read_why,
        take=lambda _is_open: discardable,
        run=lambda queue, found, given, who, _: discard(queue, found.wanted, given, who),
        noun="discard",
        done="discarded",
    ),
    # Without the checkbox ``lose``, the form deletes no open letters.
    "delete": Act(
        fields=("why", "open"),
        form=("open", "lose"),
        check=lambda given: check_reason(reason_in(given), is_open=choice(given, "open")),
        take=lambda is_open: partial(deletable, is_open=is_open),
        run=lambda queue, found, given, who, is_open: queue.delete(
            found.wanted, who=who, why=reason_in(given), is_open=is_open
        ),
        noun="deletion",
        done="deleted",
    ),
}
