"""The list of redrives, and a redrive as a row of a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from celery_dlq.errors import FilterError
from celery_dlq.flower.filters import Given
from celery_dlq.flower.html import charts
from celery_dlq.flower.http.handler import Page
from celery_dlq.flower.http.request import asked
from celery_dlq.model.operation import ENDED, Counts, OperationState, SendingState
from celery_dlq.redact import clip
from celery_dlq.store.base import Operation
from celery_dlq.view.operations import letters_said, outcome_text

#: Operations in the list.
_OPERATIONS = 50

#: Seconds for which the progress is cached.
FRESH_S = 2.0

_State = TypeVar("_State", OperationState, SendingState)


@dataclass(frozen=True, kw_only=True)
class OperationRow:
    """An operation in a list."""

    operation: Operation

    @property
    def chart(self) -> str:
        """The progress, as a chart."""
        return _progress(self.operation.counts)

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


class OperationsPage(Page):
    """``/dead-letters/operations?state=…``"""

    tab = "operations"

    async def get(self) -> None:
        """Show the newest operations."""
        chosen = chosen_states(asked(self.request), OperationState, others=())
        found = await self.site.recall(
            ("operations", *sorted(chosen)),
            lambda store: store.operations.find(states=chosen, limit=_OPERATIONS),
            FRESH_S,
        )
        self.page("operations", OperationsView(rows=operation_rows(found), chosen=chosen))


def _progress(counts: Counts) -> str:
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


def chosen_states(given: Given, kind: type[_State], *, others: Sequence[str]) -> frozenset[_State]:
    """The states in ``given``; empty if none is chosen.

    :param others: names that are allowed, but are not states.
    :raises FilterError: a name or a state is unknown.
    """
    for name in given:
        if name not in ("state", *others):
            raise FilterError(f"{clip(name, 40)!r} is not a filter here; use state.")
    try:
        return frozenset(kind(word) for word in given.get("state", ()) if word)
    except ValueError as error:
        known = ", ".join(state.value for state in kind)
        raise FilterError(f"{error}; use one of {known}.") from None
