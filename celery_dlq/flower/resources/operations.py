"""Redrives: the list; one with its letters, its progress, and how it went over time; and its buttons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.flower import charts
from celery_dlq.flower.http.handler import Handler
from celery_dlq.flower.http.request import FilterForm, first_value, limit_of, reason_in, words_of
from celery_dlq.model.operation import ENDED, OperationState, Sending, SendingState
from celery_dlq.model.states import State
from celery_dlq.store.base import Operation, Rows
from celery_dlq.store.hiding import hide_operation
from celery_dlq.view import lookup, records, times
from celery_dlq.view.operations import TROUBLED

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: Columns of a chart, and the shortest time of one.
_COLUMNS, _SHORTEST = 40, timedelta(seconds=1)

#: The fewest letters of an operation with charts; the bar of the progress says all about fewer.
_CHARTED = 100

#: Seconds for which the progress is cached.
FRESH_S = 2.0

#: Letters per page: two or three screens of a phone.
_LETTERS = 20

#: The acts that each state allows.
_ALLOWED: Mapping[OperationState, tuple[str, ...]] = {
    OperationState.PLANNED: ("pause", "cancel"),
    OperationState.RUNNING: ("pause", "cancel"),
    OperationState.PAUSED: ("resume", "cancel"),
}

#: The acts, each with the message after it.
ACTS = {
    "pause": "The operation stops after the current batch.",
    "resume": "A worker will continue the operation within seconds.",
    "cancel": "The operation was cancelled. Letters that were not sent are unchanged.",
}


class Operations(Handler):
    """``/dead-letters/operations?state=…``, and the same in the REST API."""

    tab = "operations"

    async def get(self) -> None:
        """The newest operations."""
        given = self.known_values("state", *(("limit",) if self.is_api else ()))
        chosen, limit = words_of(OperationState, "state", given), limit_of(given)

        def look(store: Store) -> list[Operation]:
            return store.operations.find(states=chosen, limit=limit)

        if self.is_api:
            found = await self.site.ask(look)
            self.reply({"operations": [*map(records.operation_record, found)]})
            return
        found = await self.site.recall(("operations", *sorted(chosen)), look, FRESH_S)
        is_live = any(one.state not in ENDED for one in found)
        self.page("operations", found, chosen=chosen, limit=limit, is_live=is_live)


class OneOperation(Handler):
    """``/dead-letters/operations/<id>?state=…&after=…``, and the same in the REST API."""

    tab = "operations"

    async def get(self, prefix: str) -> None:
        """One operation, with a page of its letters. On a page, a prefix of its id redirects to the full
        id."""
        given = self.known_values("state", "after", "limit" if self.is_api else "done")
        states, after = words_of(SendingState, "state", given), first_value(given, "after") or None
        if self.is_api:
            found, rows = await self.site.ask(
                lambda store: _look(store, prefix, states, after, limit_of(given))
            )
            self.reply({**records.whole_operation_record(found, rows.rows), "next": rows.next})
            return
        chosen = states or TROUBLED

        def look(store: Store) -> tuple[Operation, Rows[Sending], Sequence[Pace]]:
            found, rows = _look(store, prefix, chosen, after, _LETTERS)
            return found, rows, pace_of(store, found, times.utc_now())

        key = ("operation", prefix, after, *sorted(chosen))
        found, rows, pace = await self.site.recall(key, look, FRESH_S)
        if found.id != prefix:
            self.redirect(self.links.operation(found.id))
            return
        per_s, left_s = _speed(found)
        self.page(
            "operation",
            FilterForm(given=given, rows=rows.rows, next=rows.next),
            operation=found,
            chosen=chosen,
            pace=pace,
            per_s=per_s,
            left_s=left_s,
            acts=_ALLOWED.get(found.state, ()),
            # Letters that it has taken, in whatever state they are now.
            taken=[
                ("operation", prefix),
                *(("state", one.value) for one in State if one != State.PARKED),
            ],
            is_live=found.state not in ENDED or found.counts.sent > 0,
            done=ACTS.get(first_value(given, "done"), ""),
        )


class Move(Handler):
    """``POST /dead-letters/operations/<id>/<act>``, and the same in the REST API: pause, resume or cancel."""

    tab = "operations"

    async def post(self, prefix: str) -> None:
        """Run the act, once per form."""
        act, who = self.act, self.actor
        why = reason_in(self.act_values(f"operation {prefix}", "why"))

        def carry_out(queue: DeadLetterQueue) -> Operation:
            found = lookup.operation(queue.store, prefix)
            return hide_operation(_move(queue, found.id, act, who, why), queue.redactor)

        moved = await self.site.act(carry_out)
        if self.is_api:
            self.reply(records.operation_record(moved))
        else:
            self.see(f"{self.links.operation(moved.id)}?done={act}")


def _move(queue: DeadLetterQueue, operation_id: str, act: str, who: str, why: str) -> Operation:
    """Pause or cancel an operation, or let a worker continue it.

    :raises OperationError: the state of the operation does not allow it.
    """
    if act == "pause":
        return queue.redrives.pause(operation_id, who=who, why=why)
    if act == "cancel":
        return queue.redrives.cancel(operation_id, who=who, why=why)
    return queue.redrives.resume(operation_id, who=who, why=why, detach=True)


def _look(
    store: Store, prefix: str, states: frozenset[SendingState], after: str | None, limit: int
) -> tuple[Operation, Rows[Sending]]:
    """An operation, and a page of its letters.

    :raises UnknownOperation: no id matches.
    :raises AmbiguousId: several ids match.
    """
    found = lookup.operation(store, prefix)
    return found, store.sendings.of_operation(found.id, states=states, limit=limit, after=after)


def _speed(operation: Operation) -> tuple[float | None, float | None]:
    """Letters sent per second since an operation started, and the seconds until the last one is sent at this
    rate; None for what cannot be said."""
    if operation.started_at is None:
        return None, None
    seconds = ((operation.ended_at or times.utc_now()) - operation.started_at).total_seconds()
    per_s = operation.counts.out / seconds if seconds > 0 else None
    is_running = operation.state is OperationState.RUNNING and operation.counts.left
    return per_s, operation.counts.left / per_s if is_running and per_s else None


#: A chart: the state of its letters, its label, and its columns.
Pace = tuple[str, str, Sequence[charts.Bin]]


def pace_of(store: Store, operation: Operation, now: datetime) -> Sequence[Pace]:
    """How an operation went, as charts; none before it has begun, and of few letters.

    :param now: by the store's clock.
    """
    if operation.started_at is None or operation.counts.planned < _CHARTED:
        return []
    edges = _edges(operation.started_at, _end(store, operation, now))
    ended = store.sendings.endings_by_time(operation.id, edges)
    kinds = ((SendingState.SUCCEEDED, "succeeded"), (SendingState.FAILED, "failed again"))
    return [
        (state.value, label, charts.bins_of(edges, ended[state]))
        for state, label in kinds
        if any(ended[state])
    ]


def _end(store: Store, operation: Operation, now: datetime) -> datetime:
    """The end of the charts: now, or the last outcome if no more are awaited."""
    if operation.ended_at is None or operation.counts.sent:
        return now
    latest = store.sendings.recent_endings(operation.id, 1)
    return max([operation.ended_at, *(one.ended_at for one in latest if one.ended_at)])


def _edges(since: datetime, until: datetime) -> list[datetime]:
    # The clock of Flower may be behind that of the worker.
    until = max(since, until)
    step = max(_SHORTEST, (until - since) / _COLUMNS)
    # The end itself belongs to the last column.
    count = int((until - since) / step) + 1
    return [since + place * step for place in range(count + 1)]
