"""Redrives: the list; one with its letters, its progress, and how it went over time; and its buttons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.base.redact import clip
from celery_dlq.flower import charts
from celery_dlq.flower.http.handler import Api, Page
from celery_dlq.flower.http.problems import Refused
from celery_dlq.flower.http.request import first, limit_of, reason_in, words_of
from celery_dlq.model.operation import ENDED, OperationState, Sending, SendingState
from celery_dlq.model.states import State
from celery_dlq.redrive.pacing import canary_succeeded
from celery_dlq.store.base import Operation, Rows
from celery_dlq.store.hiding import hide_operation
from celery_dlq.view import lookup, records, times
from celery_dlq.view.operations import TROUBLED, outcome_text, why_text
from celery_dlq.view.text import short_ids

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: Columns of a chart, and the shortest time of one.
_COLUMNS, _SHORTEST = 40, timedelta(seconds=1)

#: The fewest letters of an operation with charts; the bar of the progress says all about fewer.
_CHARTED = 100

#: A chart of a shorter time has seconds under it.
_BY_SECOND = timedelta(minutes=10)


@dataclass(frozen=True, kw_only=True)
class PaceRow:
    """One of the charts."""

    kind: str
    label: str
    bins: Sequence[charts.Bin]
    #: The most letters in a column of any of the charts.
    most: int

    @property
    def total(self) -> int:
        """Its letters."""
        return sum(found.count for found in self.bins)

    @property
    def chart(self) -> str:
        """Its columns."""
        return charts.columns(self.bins, self.label, most=self.most)

    @property
    def scale(self) -> Sequence[int]:
        """The numbers beside the chart, from the top."""
        return [charts.scale(self.most)[1], 0]


@dataclass(frozen=True, kw_only=True)
class Pace:
    """The numbers of letters by time."""

    #: The beginning of each column, and the end of the last one.
    edges: Sequence[datetime]
    ended: Mapping[SendingState, Sequence[int]]

    @property
    def rows(self) -> list[PaceRow]:
        """The charts; one without letters is left out."""
        found = (("succeeded", SendingState.SUCCEEDED), ("failed again", SendingState.FAILED))
        most = max(max(counts) for counts in self.ended.values())
        return [
            PaceRow(kind=state.value, label=label, bins=self._bins(self.ended[state]), most=most)
            for label, state in found
            if any(self.ended[state])
        ]

    @property
    def labels(self) -> Sequence[datetime]:
        """The moments under the charts."""
        return [self.edges[0], self.edges[-1]]

    @property
    def is_short(self) -> bool:
        """Whether the moments need seconds."""
        return self.edges[-1] - self.edges[0] < _BY_SECOND

    def _bins(self, counts: Sequence[int]) -> list[charts.Bin]:
        spans = pairwise(self.edges)
        return [charts.Bin(*span, count) for span, count in zip(spans, counts, strict=True)]


def pace_of(store: Store, operation: Operation, now: datetime) -> Pace | None:
    """Read how an operation went; None before it has begun, and of few letters.

    :param now: by the store's clock.
    """
    if operation.started_at is None or operation.counts.planned < _CHARTED:
        return None
    edges = _edges(operation.started_at, _end(store, operation, now))
    return Pace(edges=edges, ended=store.sendings.endings_by_time(operation.id, edges))


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


#: Operations in the list.
_OPERATIONS = 50

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


@dataclass(frozen=True, kw_only=True)
class OperationRow:
    """An operation in a list."""

    operation: Operation

    @property
    def parts(self) -> list[charts.Part]:
        """The numbers of its letters by state, the ones with an outcome first."""
        counts = self.operation.counts
        return [
            charts.Part("succeeded", counts.succeeded, "succeeded"),
            charts.Part("failed again", counts.failed, "failed"),
            charts.Part("without an outcome", counts.unknown, "unknown"),
            charts.Part("awaited", counts.sent, "sent"),
            charts.Part("skipped", counts.skipped, "skipped"),
            charts.Part("left", counts.left, "left"),
        ]

    @property
    def chart(self) -> str:
        """The progress, as a chart."""
        return charts.stack(self.parts, "Letters")

    @property
    def phases(self) -> list[tuple[str, str, str]]:
        """The canary, and the other letters; empty without a canary. Each has a name, how far it has come,
        and the end of the CSS class of its key."""
        counts, canary = self.operation.counts, self.operation.orders.pacing.canary
        others = counts.planned - canary
        if not canary:
            return []
        has_passed, is_over = canary_succeeded(canary, counts), self.operation.state in ENDED
        if has_passed:
            sent = max(0, counts.out - canary)
            kind = "succeeded" if sent >= others else "failed" if is_over else "sent"
            first = ("Canary", f"all {canary:,} succeeded", "succeeded")
            second = ("The others", f"{sent:,} of {others:,} sent", kind)
        else:
            said = outcome_text(counts) or ("none sent" if is_over else "not sent yet")
            kind = "failed" if is_over or counts.failed or counts.unknown else "sent"
            first = ("Canary", f"{counts.out:,} of {canary:,} sent: {said}", kind)
            waits = "not sent" if is_over else "wait for the canary"
            second = ("The others", f"{others:,} {waits}", "left")
        return [first, second] if others > 0 else [first]

    @property
    def is_live(self) -> bool:
        """Whether its numbers may still change."""
        return self.operation.state not in ENDED or self.operation.counts.sent > 0


@dataclass(frozen=True, kw_only=True)
class OperationsView:
    """The values of the list."""

    rows: Sequence[OperationRow]
    chosen: frozenset[OperationState]
    limit: int = _OPERATIONS
    states: Sequence[str] = tuple(state.value for state in OperationState)

    def has(self, state: str) -> bool:
        """Whether a state is chosen."""
        return OperationState(state) in self.chosen

    @property
    def is_live(self) -> bool:
        """Whether the page refreshes itself."""
        return any(row.operation.state not in ENDED for row in self.rows)


@dataclass(frozen=True, kw_only=True)
class OperationView(OperationRow):
    """The values of the page of one operation."""

    sendings: Rows[Sending]
    #: The states of the letters that are shown.
    chosen: frozenset[SendingState]
    #: None before it has begun.
    pace: Pace | None = None
    done: str = ""
    later: bool = False
    states: Sequence[str] = tuple(state.value for state in SendingState)

    @property
    def acts(self) -> Sequence[str]:
        """The acts that its state allows."""
        return _ALLOWED.get(self.operation.state, ())

    @property
    def sent_per_s(self) -> float | None:
        """Letters sent per second since it started; None before that."""
        operation = self.operation
        if operation.started_at is None:
            return None
        seconds = ((operation.ended_at or times.utc_now()) - operation.started_at).total_seconds()
        return operation.counts.out / seconds if seconds > 0 else None

    @property
    def left_s(self) -> float | None:
        """Seconds until the last letter is sent, at the rate since it started; None if it is not running, or
        that cannot be said."""
        is_running, left = (
            self.operation.state is OperationState.RUNNING,
            self.operation.counts.left,
        )
        return left / self.sent_per_s if is_running and left and self.sent_per_s else None

    @property
    def its_letters(self) -> list[tuple[str, str]]:
        """The query of the list with the letters that it has taken, in whatever state they are now."""
        states = (("state", state.value) for state in State if state is not State.PARKED)
        return [("operation", self.operation.id), *states]

    @property
    def letters(self) -> list[tuple[str, Sending, str]]:
        """The letters of the page, each with a short id, and why it was skipped or failed, and how often its
        message was sent again."""
        rows = self.sendings.rows
        shorts = short_ids([row.task_id for row in rows])
        return list(zip(shorts, rows, map(why_text, rows), strict=True))

    def has(self, state: str) -> bool:
        """Whether letters in a state are shown."""
        return SendingState(state) in self.chosen

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The chosen states, for an address."""
        return [("state", state.value) for state in sorted(self.chosen)]


class OperationsPage(Page):
    """``/dead-letters/operations?state=…``"""

    tab = "operations"

    async def get(self) -> None:
        """Show the newest operations."""
        chosen = words_of(OperationState, "state", self.asked("state"))
        found = await self.site.recall(
            ("operations", *sorted(chosen)),
            lambda store: store.operations.find(states=chosen, limit=_OPERATIONS),
            FRESH_S,
        )
        rows = [OperationRow(operation=one) for one in found]
        self.page("operations", OperationsView(rows=rows, chosen=chosen))


class OperationPage(Page):
    """``/dead-letters/operations/<id>?state=…&after=…``"""

    tab = "operations"

    async def get(self, prefix: str) -> None:
        """Show one operation; a prefix of its id redirects to the full id."""
        given = self.asked("state", "after", "done")
        chosen = words_of(SendingState, "state", given) or TROUBLED
        after = first(given, "after") or None

        def look(store: Store) -> tuple[Operation, Rows[Sending], Pace | None]:
            found, sendings = _look(store, prefix, chosen, after, _LETTERS)
            return found, sendings, pace_of(store, found, times.utc_now())

        found, sendings, pace = await self.site.recall(
            ("operation", prefix, after, *sorted(chosen)), look, FRESH_S
        )
        if found.id != prefix:
            self.redirect(self.links.operation(found.id))
            return
        view = OperationView(
            operation=found,
            sendings=sendings,
            chosen=chosen,
            pace=pace,
            done=ACTS.get(first(given, "done"), ""),
            later=after is not None,
        )
        self.page("operation", view)


class OperationAct(Page):
    """``POST /dead-letters/operations/<id>/<act>``"""

    tab = "operations"

    async def post(self, operation_id: str, act: str) -> None:
        """Run the act, once per form."""
        if act not in ACTS:
            raise Refused(404, f"{clip(act, 40)} is not an act on operations.")
        why, who = reason_in(self.sent_for(f"operation {operation_id}")), self.actor
        await self.site.act(lambda queue: _move(queue, operation_id, act, who, why))
        self.see(f"{self.links.operation(operation_id)}?done={act}")


class Operations(Api):
    """``GET /api/dead-letters/operations``"""

    async def get(self) -> None:
        """Operations, newest first."""
        given = self.asked("state", "limit")
        states, limit = words_of(OperationState, "state", given), limit_of(given)
        found = await self.site.ask(lambda store: store.operations.find(states=states, limit=limit))
        self.reply({"operations": [records.operation_record(operation) for operation in found]})


class OneOperation(Api):
    """``GET /api/dead-letters/operations/{id}``"""

    async def get(self, prefix: str) -> None:
        """One operation, with a page of its letters."""
        given = self.asked("state", "limit", "after")
        states, limit = words_of(SendingState, "state", given), limit_of(given)
        after = first(given, "after") or None
        found, rows = await self.site.ask(lambda store: _look(store, prefix, states, after, limit))
        self.reply({**records.whole_operation_record(found, rows.rows), "next": rows.next})


class Move(Api):
    """``POST /api/dead-letters/operations/{id}/<act>``: pause, resume or cancel."""

    async def post(self, prefix: str) -> None:
        """Run the act."""
        act, why, who = self.act, self.sent_reason(), self.actor

        def carry_out(queue: DeadLetterQueue) -> Operation:
            found = lookup.operation(queue.store, prefix)
            return hide_operation(_move(queue, found.id, act, who, why), queue.redactor)

        self.reply(records.operation_record(await self.site.act(carry_out)))


def _move(queue: DeadLetterQueue, operation_id: str, act: str, who: str, why: str) -> Operation:
    """Pause or cancel an operation, or let a worker continue it.

    :raises UnknownOperation: the id is unknown.
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
