"""The page that compares two letters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from celery_dlq.errors import FilterError
from celery_dlq.flower import words
from celery_dlq.flower.http.handler import Page
from celery_dlq.flower.resources.letters import Row, rows_of
from celery_dlq.model.letter import DeadLetter
from celery_dlq.view import lookup
from celery_dlq.view.compare import Compared, compared, difference, own_tracebacks

if TYPE_CHECKING:
    from celery_dlq.store import Store


@dataclass(frozen=True, kw_only=True)
class CompareView:
    """The values of the page."""

    #: The two letters.
    rows: Sequence[Row]
    #: The names of a task's positional parameters.
    parameters: Callable[[str], Sequence[str]]

    @property
    def compared(self) -> list[Compared]:
        """Their arguments, and then the facts about them."""
        return compared([row.letter for row in self.rows], self.parameters, words.moment)

    @property
    def traceback(self) -> str:
        """The traceback of both; empty if they differ."""
        one, other = self._tracebacks
        return "\n".join(one) if one == other else ""

    @property
    def traceback_diff(self) -> str:
        """The change from the first traceback to the second, as lines of a diff."""
        return difference(*self._tracebacks)

    @property
    def _tracebacks(self) -> list[list[str]]:
        return own_tracebacks([row.letter for row in self.rows])


class ComparePage(Page):
    """``/dead-letters/compare?id=…&id=…``"""

    async def get(self) -> None:
        """Show two letters side by side."""
        ids = list(dict.fromkeys(self.asked("id", "selected").get("id", ())))
        if len(ids) != 2:
            raise FilterError(f"Select two letters to compare them, not {len(ids)}.")

        def look(store: Store) -> list[DeadLetter]:
            return [lookup.letter_to_show(store, task_id) for task_id in ids]

        letters = await self.site.ask(look)
        self.page("compare", CompareView(rows=rows_of(letters), parameters=self.site.parameters))
