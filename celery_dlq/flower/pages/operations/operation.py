"""The page of one redrive with its letters, its progress and its buttons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from celery_dlq.flower.acts import move, reason_in
from celery_dlq.flower.http.handler import Page
from celery_dlq.flower.http.problems import Refused
from celery_dlq.flower.http.request import asked, first, sent
from celery_dlq.flower.pages.operations.listing import FRESH_S, OperationRow, chosen_states
from celery_dlq.flower.pages.operations.pace import Pace, pace_of
from celery_dlq.model.operation import Counts, OperationState, Sending, SendingState
from celery_dlq.model.states import State
from celery_dlq.redact import clip
from celery_dlq.store.base import Operation, Rows
from celery_dlq.view import lookup, times
from celery_dlq.view.operations import TROUBLED, given_orders, why_text
from celery_dlq.view.text import short_ids

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: Letters per page.
_LETTERS = 50

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


class OperationPage(Page):
    """``/dead-letters/operations/<id>?state=…&after=…``"""

    tab = "operations"

    async def get(self, prefix: str) -> None:
        """Show one operation; a prefix of its id redirects to the full id."""
        given = asked(self.request)
        chosen = chosen_states(given, SendingState, others=("after", "done")) or TROUBLED
        after = first(given, "after") or None
        found, sendings, pace = await self.site.recall(
            ("operation", prefix, after, *sorted(chosen)),
            lambda store: _look(store, prefix, chosen, after),
            FRESH_S,
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
