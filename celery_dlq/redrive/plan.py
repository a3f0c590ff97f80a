"""What a redrive would do, what it is doing, and what it has done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from celery_dlq.letter import DeadLetter
from celery_dlq.redrive.checks import why_not
from celery_dlq.states import State
from celery_dlq.store.base import Filter, Store

#: Letters of a plan that are named one by one.
_NAMED_LIMIT = 20


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """A letter that is not sent, and why."""

    task_id: str
    task: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a redrive would do. Nothing was changed to find out."""

    #: Letters that the filter finds, open ones in other hands included.
    matched: int
    #: Of those, how many would be sent.
    sendable: int
    #: Of those, how many another redrive holds, or are sent and awaited already.
    in_flight: int
    by_task: Mapping[str, int]
    #: The first letters that cannot be sent.
    skipped: tuple[Skipped, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a running redrive stands."""

    total: int
    sent: int
    skipped: int
    #: Sent, but the worker's outcome came before the mark; nothing is wrong with them.
    lost_claims: int


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a redrive did."""

    planned: int
    #: Confirmed by the broker.
    sent: int
    skipped: tuple[Skipped, ...]
    #: Planned and not sent; they are as they were.
    unsent: int
    #: Handed to the broker without its confirmation. Their claim stands until its lease ends, and
    #: the worker's outcome settles those that did arrive.
    uncertain: int
    #: Stopped on request.
    interrupted: bool
    error: str | None


def make_plan(app: Any, store: Store, wanted: Filter, *, limit: int | None = None) -> Plan:
    """Look through the letters of ``wanted`` as a redrive would."""
    matched = store.count(wanted)
    takeable = redrivable(wanted)
    by_task, skipped, sendable = Counter[str](), list[Skipped](), 0
    for position, letter in enumerate(_letters(store, takeable)):
        if limit is not None and position >= limit:
            break
        why = why_not(app, letter)
        if why is None:
            sendable += 1
            by_task[letter.task] += 1
        else:
            skipped.append(Skipped(task_id=letter.task_id, task=letter.task, why=why))
    in_flight = matched - store.count(takeable)
    return Plan(
        matched=matched,
        sendable=sendable,
        in_flight=in_flight,
        by_task=dict(by_task.most_common()),
        skipped=tuple(skipped[:_NAMED_LIMIT]),
        notes=tuple(_notes(in_flight, len(skipped))),
    )


def redrivable(wanted: Filter) -> Filter:
    """``wanted``, narrowed to the letters that a redrive may take: dead ones, and redriven ones
    whose outcome the operator has given up on by naming that state."""
    states = wanted.states & {State.DEAD, State.REDRIVEN} or frozenset({State.DEAD})
    return replace(wanted, states=states)


def _letters(store: Store, wanted: Filter) -> Iterator[DeadLetter]:
    after = None
    while True:
        page = store.find(wanted, limit=500, after=after)
        yield from page.letters
        after = page.next
        if after is None:
            return


def _notes(in_flight: int, skipped: int) -> Iterator[str]:
    if in_flight:
        yield f"{in_flight} claimed or redriven already; left alone, their outcome is awaited."
    if skipped:
        yield f"{skipped} cannot be sent and stay dead."
