"""The list of redrives, and the page of one with its progress and its buttons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from celery_dlq.errors import FilterError
from celery_dlq.flower.acts import move, reason_in
from celery_dlq.flower.filters import Given
from celery_dlq.flower.html import charts
from celery_dlq.flower.http.handler import Page
from celery_dlq.flower.http.problems import Refused
from celery_dlq.flower.http.request import asked, first, sent
from celery_dlq.flower.pages.pace import Pace, pace_of
from celery_dlq.model.operation import ENDED, Counts, OperationState, Sending, SendingState
from celery_dlq.model.states import State
from celery_dlq.redact import clip
from celery_dlq.store.base import Operation, Rows
from celery_dlq.view import lookup, times
from celery_dlq.view.filters import letters_said
from celery_dlq.view.operations import (
    TROUBLED,
    given_orders,
    outcome_text,
    run_by,
    why_text,
)
from celery_dlq.view.text import short_ids

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: Operations in the list, and letters per page.
_OPERATIONS, _LETTERS = 50, 50

#: Seconds for which the progress is cached.
_FRESH_S = 2.0

#: The acts that each state allows.
_ACTS: Mapping[OperationState, tuple[str, ...]] = {
    OperationState.PLANNED: ("pause", "cancel"),
    OperationState.RUNNING: ("pause", "cancel"),
    OperationState.PAUSED: ("resume", "cancel"),
}

_DONE = {
    "pause": "The operation stops after the current batch.",
    "resume": "A worker will continue the operation within seconds.",
    "cancel": "The operation was cancelled. Letters that were not sent are unchanged.",
}


_State = TypeVar("_State", OperationState, SendingState)


@dataclass(frozen=True, kw_only=True)
class OperationRow:
    """An operation in a list."""

    operation: Operation

    @property
    def chart(self) -> str:
        """The progress, as a chart."""
        return progress(self.operation.counts)

    @property
    def outcome(self) -> str:
        """The outcomes of the sent letters."""
        return outcome_text(self.operation.counts)

    @property
    def wanted(self) -> str:
        """Its letters, as a sentence."""
        return letters_said(self.operation.wanted)

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
    marks: Mapping[str, str]
    #: None before it has begun.
    pace: Pace | None = None
    done: str = ""
    later: bool = False
    states: Sequence[str] = tuple(state.value for state in SendingState)

    def why(self, sending: Sending) -> str:
        """Why a letter was skipped or failed, and how often its message was sent again."""
        return why_text(sending)

    @property
    def counts(self) -> Counts:
        """The numbers of its letters by state."""
        return self.operation.counts

    @property
    def orders(self) -> list[tuple[str, str]]:
        """The orders that differ from the defaults."""
        return given_orders(self.operation.orders)

    @property
    def run_by(self) -> str:
        """Who runs it, if it was left to workers."""
        return run_by(self.operation.orders)

    @property
    def sent_per_s(self) -> float | None:
        """Letters sent per second since it started; None before that."""
        operation = self.operation
        if operation.started_at is None:
            return None
        seconds = ((operation.ended_at or times.utc_now()) - operation.started_at).total_seconds()
        return self.counts.out / seconds if seconds > 0 else None

    @property
    def left_s(self) -> float | None:
        """Seconds until the last letter is sent, at the rate since it started; None if it is not running, or
        that cannot be said."""
        is_running = self.operation.state is OperationState.RUNNING
        if not (is_running and self.counts.left and self.sent_per_s):
            return None
        return self.counts.left / self.sent_per_s

    @property
    def its_letters(self) -> list[tuple[str, str]]:
        """The query of the list with the letters that it has taken, in whatever state they are now."""
        states = (("state", state.value) for state in State if state is not State.PARKED)
        return [("operation", self.operation.id), *states]

    @property
    def letters(self) -> list[tuple[str, Sending]]:
        """The letters of the page, each with a short id."""
        rows = self.sendings.rows
        return list(zip(short_ids([row.task_id for row in rows]), rows, strict=True))

    def has(self, state: str) -> bool:
        """Whether letters in a state are shown."""
        return SendingState(state) in self.chosen

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The chosen states, for an address."""
        return [("state", state.value) for state in sorted(self.chosen)]


def progress(counts: Counts) -> str:
    """The progress of an operation, as a chart."""
    parts = [
        charts.Part("succeeded", counts.succeeded, "succeeded"),
        charts.Part("failed again", counts.failed, "failed"),
        charts.Part("without an outcome", counts.unknown, "unknown"),
        charts.Part("awaited", counts.sent, "sent"),
        charts.Part("skipped", counts.skipped, "skipped"),
        charts.Part("left", counts.left, "left"),
    ]
    return charts.stack(parts, "Letters")


def operation_rows(operations: Sequence[Operation]) -> list[OperationRow]:
    """Operations as rows of a list."""
    return [OperationRow(operation=one) for one in operations]


class OperationsPage(Page):
    """``/dead-letters/operations?state=…``"""

    tab = "operations"

    async def get(self) -> None:
        """Show the newest operations."""
        chosen = _chosen(asked(self.request), OperationState, others=())
        found = await self.site.recall(
            ("operations", *sorted(chosen)),
            lambda store: store.operations.find(states=chosen, limit=_OPERATIONS),
            _FRESH_S,
        )
        self.page("operations", OperationsView(rows=operation_rows(found), chosen=chosen))


class OperationPage(Page):
    """``/dead-letters/operations/<id>?state=…&after=…``"""

    tab = "operations"

    async def get(self, prefix: str) -> None:
        """Show one operation; a prefix of its id redirects to the full id."""
        given = asked(self.request)
        chosen = _chosen(given, SendingState, others=("after", "done")) or TROUBLED
        after = first(given, "after") or None
        found, sendings, pace = await self.site.recall(
            ("operation", prefix, after, *sorted(chosen)),
            lambda store: _look(store, prefix, chosen, after),
            _FRESH_S,
        )
        if found.id != prefix:
            self.redirect(self.links.operation(found.id))
            return
        acts = _ACTS.get(found.state, ())
        view = OperationView(
            operation=found,
            sendings=sendings,
            chosen=chosen,
            pace=pace,
            marks={act: self.mark(f"{act} {found.id}") for act in acts},
            done=_DONE.get(first(given, "done"), ""),
            later=after is not None,
        )
        self.page("operation", view)


class OperationAct(Page):
    """``POST /dead-letters/operations/<id>/<act>``"""

    tab = "operations"

    async def post(self, operation_id: str, act: str) -> None:
        """Run the act, once per form."""
        if act not in _DONE:
            raise Refused(404, f"{clip(act, 40)} is not an act on operations.")
        given = sent(self.request)
        self.take_mark(given, f"{act} {operation_id}")
        who, why = self.actor, reason_in(given)
        await self.site.act(lambda queue: move(queue, operation_id, act, who, why))
        self.see(f"{self.links.operation(operation_id)}?done={act}")


def _look(
    store: Store, prefix: str, states: frozenset[SendingState], after: str | None
) -> tuple[Operation, Rows[Sending], Pace | None]:
    found, sendings = look_up(store, prefix, states, after)
    return found, sendings, pace_of(store, found, times.utc_now())


def look_up(
    store: Store, prefix: str, states: frozenset[SendingState], after: str | None
) -> tuple[Operation, Rows[Sending]]:
    """An operation, and a page of its letters.

    :raises UnknownOperation: no id matches.
    :raises AmbiguousId: several ids match.
    """
    found = lookup.operation(store, prefix)
    return found, store.sendings.of_operation(found.id, states=states, limit=_LETTERS, after=after)


def _chosen(given: Given, kind: type[_State], *, others: Sequence[str]) -> frozenset[_State]:
    for name in given:
        if name not in ("state", *others):
            raise FilterError(f"{clip(name, 40)!r} is not a filter here; use state.")
    try:
        return frozenset(kind(word) for word in given.get("state", ()) if word)
    except ValueError as error:
        known = ", ".join(state.value for state in kind)
        raise FilterError(f"{error}; use one of {known}.") from None
