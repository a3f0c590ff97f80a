"""What a redrive would do, and where it stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from celery_dlq.errors import FilterError
from celery_dlq.operation import Counts
from celery_dlq.redrive.checks import why_no_task
from celery_dlq.states import Reason, State
from celery_dlq.store.base import Filter, Store

#: Letters of a plan that are named one by one.
_NAMED_LIMIT = 20

#: Letters that a redrive takes only by their ids or by this reason, since sending them back without a
#: look does harm: what it says follows "they".
NAMED_ONLY: Mapping[Reason, str] = {
    Reason.UNSTORED: "ran to their end and would run again",
    Reason.MALFORMED: "could not be read and would come back",
}


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """A letter that is not sent, and why."""

    task_id: str
    task: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a redrive would do, by the store's counts. Nothing was changed to find out."""

    #: Letters that the filter finds, open ones in other hands included.
    matched: int
    #: Of those, how many would be sent.
    sendable: int
    #: Of those, how many another redrive holds, or are sent and awaited already.
    in_flight: int
    #: Of those that the filter finds, how many were sent already and would be sent again although their
    #: outcome is awaited.
    awaited: int
    #: Letters that can be sent, by task; a limit takes the oldest of them.
    by_task: Mapping[str, int]
    #: The first letters that cannot be sent.
    skipped: tuple[Skipped, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a running redrive stands."""

    #: Its id.
    operation: str
    counts: Counts
    #: What has to happen before more is sent, in words; empty while it sends.
    waits_for: str = ""


def make_plan(
    app: Any, store: Store, wanted: Filter, *, limit: int | None = None, to_task: str | None = None
) -> Plan:
    """Count the letters of ``wanted`` as a redrive would take them.

    :param to_task: what is run in place of each letter's own task.
    """
    matched, counts = store.count(wanted), store.count_by_task(redrivable(wanted))
    set_apart = _set_apart(store, wanted)
    refused = {task: why for task in counts if (why := why_no_task(app, to_task or task))}
    by_task = {task: count for task, count in counts.items() if task not in refused}
    unsendable = sum(counts[task] for task in refused)
    sendable = sum(by_task.values()) if limit is None else min(limit, sum(by_task.values()))
    in_flight = matched - sum(counts.values()) - sum(set_apart.values())
    awaited = _awaited(store, wanted) if sendable else 0
    return Plan(
        matched=matched,
        sendable=sendable,
        in_flight=in_flight,
        awaited=awaited,
        by_task=by_task,
        skipped=tuple(_examples(store, wanted, refused)),
        notes=(
            *(_why_apart(reason, count) for reason, count in set_apart.items() if count),
            *([why_twice(awaited)] if awaited else []),
            *_notes(in_flight, unsendable, sendable, limit),
        ),
    )


def redrivable(wanted: Filter) -> Filter:
    """``wanted``, narrowed to the letters that a redrive may take: dead ones, and redriven ones
    whose outcome the operator has given up on by naming that state; without those that it takes only
    when they are named (:data:`NAMED_ONLY`).

    :raises FilterError: it names only states that no redrive takes letters from.
    """
    states = wanted.states & {State.DEAD, State.REDRIVEN}
    if wanted.states and not states:
        named = ", ".join(sorted(state.value for state in wanted.states))
        raise FilterError(
            f"Letters that are {named} cannot be redriven; only dead or redriven ones can."
        )
    is_named = wanted.ids or wanted.reason
    apart = frozenset[Reason]() if is_named else frozenset(NAMED_ONLY)
    return replace(wanted, states=states or frozenset({State.DEAD}), without_reasons=apart)


def _set_apart(store: Store, wanted: Filter) -> Mapping[Reason, int]:
    """How many letters of ``wanted`` are left out because they are not named, by reason."""
    taken = redrivable(wanted)
    return {
        reason: store.count(replace(taken, reason=reason, without_reasons=frozenset()))
        for reason in sorted(taken.without_reasons)
    }


def _awaited(store: Store, wanted: Filter) -> int:
    taken = redrivable(wanted)
    return store.count_awaited(taken) if State.REDRIVEN in taken.states else 0


def why_twice(awaited: int) -> str:
    """What to think of before so many letters are sent whose outcome is awaited."""
    return f"{awaited} sent already, their outcome is awaited; sent again, they may run twice."


def _why_apart(reason: Reason, count: int) -> str:
    return (
        f"{count} {NAMED_ONLY[reason]}; "
        f"they are sent only by their ids or with --reason {reason.value}."
    )


def _examples(store: Store, wanted: Filter, refused: Mapping[str, str]) -> Iterator[Skipped]:
    left = _NAMED_LIMIT
    for task, why in refused.items():
        page = store.find(replace(redrivable(wanted), task=task), limit=left)
        yield from (Skipped(task_id=one.task_id, task=task, why=why) for one in page.letters)
        left -= len(page.letters)
        if not left:
            return


def _notes(in_flight: int, unsendable: int, sendable: int, limit: int | None) -> Iterator[str]:
    if in_flight:
        yield f"{in_flight} claimed or redriven already; left alone, their outcome is awaited or unknown."
    if unsendable:
        yield f"{unsendable} cannot be sent and stay dead."
    if limit is not None and sendable == limit:
        yield f"The limit of {limit} takes the oldest failures first."
