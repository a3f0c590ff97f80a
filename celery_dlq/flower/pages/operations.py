"""Redrives: which there are, how far each is, and how it is stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from celery_dlq.errors import AmbiguousId, FilterError, UnknownOperation
from celery_dlq.flower import charts, words
from celery_dlq.flower.filters import Given
from celery_dlq.flower.handler import Page
from celery_dlq.flower.pages.act import REPLAYED
from celery_dlq.flower.problems import Refused
from celery_dlq.flower.request import asked, first, sent
from celery_dlq.operation import ENDED, Counts, OperationState, Sending, SendingState
from celery_dlq.queue import DeadLetterQueue
from celery_dlq.redact import clip
from celery_dlq.store.base import Operation, Rows, Store
from celery_dlq.view import times
from celery_dlq.view.operations import as_text, given_orders, outcome_text
from celery_dlq.view.text import short_ids

#: Operations of the list, and letters of a page.
_OPERATIONS, _LETTERS = 50, 50

#: Seconds for which the progress is shown as it is.
_FRESH_S = 2.0

#: Letters that a page of an operation begins with.
_TROUBLED = frozenset({SendingState.FAILED, SendingState.UNKNOWN, SendingState.SKIPPED})

#: What can be done in each state.
_ACTS: Mapping[OperationState, tuple[str, ...]] = {
    OperationState.PLANNED: ("pause", "cancel"),
    OperationState.RUNNING: ("pause", "cancel"),
    OperationState.PAUSED: ("resume", "cancel"),
}

_DONE = {
    "pause": "It stops after the batch in hand.",
    "resume": "A worker goes on with it within seconds.",
    "cancel": "It was cancelled; what was not sent is as it was.",
}


_State = TypeVar("_State", OperationState, SendingState)


@dataclass(frozen=True, kw_only=True)
class OperationRow:
    """An operation in a list."""

    operation: Operation

    @property
    def chart(self) -> str:
        """How far it is."""
        return progress(self.operation.counts)

    @property
    def outcome(self) -> str:
        """What became of the letters that were sent."""
        return outcome_text(self.operation.counts)

    @property
    def wanted(self) -> str:
        """Which letters it is about."""
        given = self.operation.wanted.to_dict().items()
        return ", ".join(
            f"{name.replace('_', ' ')} {words.said(name, as_text(value))}" for name, value in given
        )

    @property
    def is_live(self) -> bool:
        """Whether its numbers may change by themselves."""
        return self.operation.state not in ENDED or self.operation.counts.sent > 0


@dataclass(frozen=True, kw_only=True)
class OperationsView:
    """What the list shows."""

    rows: Sequence[OperationRow]
    chosen: frozenset[OperationState]
    limit: int = _OPERATIONS
    states: Sequence[str] = tuple(state.value for state in OperationState)

    def has(self, state: str) -> bool:
        """Whether a state is chosen."""
        return OperationState(state) in self.chosen

    @property
    def is_live(self) -> bool:
        """Whether the page is to be kept up to date."""
        return any(row.operation.state not in ENDED for row in self.rows)


@dataclass(frozen=True, kw_only=True)
class OperationView(OperationRow):
    """What the page of one shows."""

    sendings: Rows[Sending]
    #: The sendings' states that are shown.
    chosen: frozenset[SendingState]
    marks: Mapping[str, str]
    done: str = ""
    later: bool = False
    states: Sequence[str] = tuple(state.value for state in SendingState)

    @property
    def counts(self) -> Counts:
        """How many letters are where."""
        return self.operation.counts

    @property
    def orders(self) -> list[tuple[str, str]]:
        """The orders, as far as there are any."""
        return given_orders(self.operation.orders)

    @property
    def rate(self) -> float | None:
        """Letters a second since it was started; None before."""
        made = self.operation
        if made.started_at is None:
            return None
        seconds = ((made.ended_at or times.utc_now()) - made.started_at).total_seconds()
        return self.counts.out / seconds if seconds > 0 else None

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
        """What is chosen, as it stands in the address."""
        return [("state", state.value) for state in sorted(self.chosen)]


def progress(counts: Counts) -> str:
    """How far an operation is, as a chart."""
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
        """Show the newest."""
        chosen = _chosen(asked(self.request), OperationState, beside=())
        found = await self.site.recall(
            ("operations", *sorted(chosen)),
            lambda store: store.operations(states=chosen, limit=_OPERATIONS),
            _FRESH_S,
        )
        self.page("operations", OperationsView(rows=operation_rows(found), chosen=chosen))


class OperationPage(Page):
    """``/dead-letters/operations/<id>?state=…&after=…``"""

    tab = "operations"

    async def get(self, beginning: str) -> None:
        """Show one; a beginning of its id leads to the whole."""
        given = asked(self.request)
        chosen = _chosen(given, SendingState, beside=("after", "done")) or _TROUBLED
        after = first(given, "after") or None
        found, sendings = await self.site.recall(
            ("operation", beginning, after, *sorted(chosen)),
            lambda store: look_up(store, beginning, chosen, after),
            _FRESH_S,
        )
        if found.id != beginning:
            self.redirect(self.links.operation(found.id))
            return
        acts = _ACTS.get(found.state, ())
        view = OperationView(
            operation=found,
            sendings=sendings,
            chosen=chosen,
            marks={act: self.site.forms.mark(f"{act} {found.id}", self.actor) for act in acts},
            done=_DONE.get(first(given, "done"), ""),
            later=after is not None,
        )
        self.page("operation", view)


class OperationAct(Page):
    """``POST /dead-letters/operations/<id>/<act>``"""

    tab = "operations"

    async def post(self, operation_id: str, act: str) -> None:
        """Carry it out, once for each form."""
        if act not in _DONE:
            raise Refused(404, f"An operation cannot be told to {clip(act, 40)}.")
        given = sent(self.request)
        if not self.site.forms.take(first(given, "mark"), f"{act} {operation_id}", self.actor):
            raise Refused(409, REPLAYED)
        who = self.actor
        await self.site.act(lambda queue: carry_out(queue, operation_id, act, who))
        self.see(f"{self.links.operation(operation_id)}?done={act}")


def carry_out(queue: DeadLetterQueue, operation_id: str, act: str, who: str) -> Operation:
    """Stop an operation, or let a worker go on with it.

    :raises UnknownOperation: there is none with this id.
    :raises OperationError: it cannot do that in its state.
    """
    if act == "pause":
        return queue.pause(operation_id, who=who)
    if act == "cancel":
        return queue.cancel(operation_id, who=who)
    return queue.resume(operation_id, who=who, detach=True)


def look_up(
    store: Store, beginning: str, states: frozenset[SendingState], after: str | None
) -> tuple[Operation, Rows[Sending]]:
    """An operation, and letters of it.

    :raises UnknownOperation: there is none that begins like this.
    :raises AmbiguousId: there are several.
    """
    ids = store.match_operations(beginning, limit=2)
    if len(ids) > 1 and beginning not in ids:
        raise AmbiguousId(
            f"More than one operation begins with {clip(beginning, 40)!r}; give more characters."
        )
    found = store.operation(beginning if beginning in ids else ids[0]) if ids else None
    if found is None:
        raise UnknownOperation(
            f"No operation has the id {clip(beginning, 40)!r}, or one that begins like this."
        )
    return found, store.sendings(found.id, states=states, limit=_LETTERS, after=after)


def _chosen(given: Given, kind: type[_State], *, beside: Sequence[str]) -> frozenset[_State]:
    for name in given:
        if name not in ("state", *beside):
            raise FilterError(f"There is no filter {clip(name, 40)!r} here; there is state.")
    try:
        return frozenset(kind(word) for word in given.get("state", ()) if word)
    except ValueError as error:
        known = ", ".join(state.value for state in kind)
        raise FilterError(f"{error}; there are {known}.") from None
