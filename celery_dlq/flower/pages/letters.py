"""The list of letters, with filters and pages."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from celery_dlq.errors import CeleryDLQError, FilterError
from celery_dlq.flower.filters import MOMENTS, NAMES, TEXTS, YES, Given, read_filter
from celery_dlq.flower.http.calls import look_at
from celery_dlq.flower.http.handler import Page
from celery_dlq.flower.http.request import asked, first
from celery_dlq.model.auto_redrive import HeldLetter
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.states import CLOSED_STATES, Reason, State
from celery_dlq.store.base import Filter
from celery_dlq.store.base import Page as PageOfLetters
from celery_dlq.view import times
from celery_dlq.view.records import attempts_of
from celery_dlq.view.text import counted, short_ids

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: Letters per page.
PAGE_SIZE = 50

#: Seconds for a search that reads letters one by one, and for counting them. Together they keep the page
#: below 300 ms.
SEARCH_PATIENCE_S = COUNT_PATIENCE_S = 0.15

#: The numbers of letters that an act has just closed or deleted.
DONE = ("discarded", "deleted")

_OTHERS = ("after", *DONE)

_NONE: Mapping[str, HeldLetter] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Row:
    """A letter in the list."""

    letter: DeadLetter
    short_id: str
    attempts: int
    #: Set if no automatic redrive sends it again.
    held: HeldLetter | None = None


@dataclass(frozen=True, kw_only=True)
class LettersView:
    """The values of the page."""

    #: The values of the form.
    given: Given
    #: The error in the form.
    problem: str = ""
    rows: Sequence[Row] = ()
    #: The number of matching letters; None if counting takes too long.
    count: int | None = 0
    #: The address of the next page.
    next: str = ""
    #: How far back the search came, if it ran out of time.
    searched_to: datetime | None = None
    #: The filters as pairs, for acts on all matching letters.
    pairs: Sequence[tuple[str, str]] = ()
    #: The states of the letters that match.
    shown: frozenset[State] = frozenset()
    later: bool = False

    reasons: Sequence[str] = tuple(reason.value for reason in Reason)
    states: Sequence[str] = tuple(state.value for state in State)
    texts: Sequence[str] = TEXTS
    moments: Sequence[str] = MOMENTS
    acts_done: Sequence[str] = DONE

    def value(self, name: str) -> str:
        """The value of a field."""
        return first(self.given, name)

    def has(self, name: str, value: str) -> bool:
        """Whether a choice is selected."""
        return value in self.given.get(name, ())

    @property
    def heading(self) -> str:
        """The number of letters, as far as it is known."""
        if self.count is None and (self.later or self.searched_to):
            return f"{counted(len(self.rows), 'letter')} on this page"
        number = len(self.rows) if self.count is None else self.count
        said = f"match{'es' if number == 1 else ''}" if self.narrowed else "open"
        return f"{'More than ' if self.count is None else ''}{counted(number, 'letter')} {said}"

    @property
    def shows_closed(self) -> bool:
        """Whether closed letters may be among those that match."""
        return bool(self.shown & CLOSED_STATES)

    @property
    def shows_both(self) -> bool:
        """Whether closed and open letters may be among those that match."""
        return self.shows_closed and not self.shown <= CLOSED_STATES

    @property
    def to_delete(self) -> Sequence[tuple[str, str]]:
        """The query of the page that deletes all letters that match; only the closed ones if there may be
        both, because open letters are deleted apart from closed ones."""
        if not self.shows_closed:
            return [*self.pairs, ("open", YES)]
        others = [(name, value) for name, value in self.pairs if name != "state"]
        return [*others, *(("state", state.value) for state in sorted(self.shown & CLOSED_STATES))]

    @property
    def narrowed(self) -> bool:
        """Whether any filter is set."""
        return bool(self.pairs)


class LettersPage(Page):
    """``/dead-letters/letters?task=…&state=…``, with the filters of ``dlq list``."""

    tab = "letters"

    async def get(self) -> None:
        """Show a page of letters."""
        given: Given = {}
        try:
            given = asked(self.request)
            wanted = read_filter(given, times.utc_now(), others=_OTHERS)
            view = await self._view(given, wanted)
        except FilterError as error:
            self.page("letters", LettersView(given=given, problem=str(error), count=None), 400)
            return
        self.page("letters", view)

    async def _view(self, given: Given, wanted: Filter) -> LettersView:
        after = first(given, "after") or None
        page, held = await self.site.ask(lambda store: look(store, wanted, after))
        whole = after is None and page.next is None
        count = len(page.letters) if whole else await self._count(given, wanted)
        pairs = [(name, item) for name, items in _set(given).items() for item in items]
        following = [*pairs, ("after", page.next)] if page.next else []
        return LettersView(
            given=given,
            rows=rows_of(page.letters, held),
            count=count,
            pairs=pairs,
            shown=wanted.wanted_states,
            next=self.links.page("letters", query=following) if following else "",
            searched_to=page.searched_to,
            later=after is not None,
        )

    async def _count(self, given: Given, wanted: Filter) -> int | None:
        """The number of matching letters, if counted in time. A late result is cached for the next page."""
        if wanted != wanted.indexed:
            # The count would read every letter.
            return None
        key = ("count", tuple((name, *items) for name, items in _set(given).items()))
        counting = asyncio.ensure_future(
            self.site.recall(key, lambda store: store.counts.letters(wanted))
        )
        try:
            return await asyncio.wait_for(asyncio.shield(counting), COUNT_PATIENCE_S)
        except (asyncio.TimeoutError, CeleryDLQError):
            # The page can still show the letters themselves, which an index finds.
            counting.add_done_callback(look_at)
            return None


def look(
    store: Store, wanted: Filter, after: str | None
) -> tuple[PageOfLetters, Mapping[str, HeldLetter]]:
    """A page of letters, and those of them that are held."""
    page = store.letters.find(wanted, limit=PAGE_SIZE, after=after, patience_s=SEARCH_PATIENCE_S)
    return page, store.auto_redrives.held([letter.task_id for letter in page.letters])


def rows_of(letters: Sequence[DeadLetter], held: Mapping[str, HeldLetter] = _NONE) -> list[Row]:
    """Letters as rows of a list.

    :param held: those of them that are held, by their task ids.
    """
    shorts = short_ids([letter.task_id for letter in letters])
    return [
        Row(
            letter=letter,
            short_id=short,
            attempts=attempts_of(letter),
            held=held.get(letter.task_id),
        )
        for short, letter in zip(shorts, letters, strict=True)
    ]


def _set(given: Given) -> Mapping[str, tuple[str, ...]]:
    """The filters that are set; empty fields of the form are left out."""
    found = {name: tuple(filter(str.strip, given.get(name, ()))) for name in NAMES}
    return {name: items for name, items in found.items() if items}
