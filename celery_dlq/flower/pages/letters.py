"""The letters that some filters find, page by page."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from celery_dlq.errors import CeleryDLQError, FilterError
from celery_dlq.flower.filters import MOMENTS, NAMES, TEXTS, Given, read_filter
from celery_dlq.flower.handler import Page
from celery_dlq.flower.request import asked, first
from celery_dlq.letter import DeadLetter
from celery_dlq.states import Reason, State
from celery_dlq.store.base import Filter
from celery_dlq.view import times
from celery_dlq.view.records import attempts_of
from celery_dlq.view.text import short_ids

#: Letters of a page.
PAGE_SIZE = 50

#: Seconds for which letters that are there wait for their number.
COUNT_PATIENCE_S = 0.5

#: ``discarded`` is what a discard has just done.
_BESIDE = ("after", "discarded")


@dataclass(frozen=True, kw_only=True)
class Row:
    """A letter in the list."""

    letter: DeadLetter
    short_id: str
    attempts: int


@dataclass(frozen=True, kw_only=True)
class LettersView:
    """What the page shows."""

    #: The form as it was filled in.
    given: Given
    #: What is wrong with it.
    problem: str = ""
    rows: Sequence[Row] = ()
    #: Letters that match; None when counting them takes too long.
    count: int | None = 0
    #: Where the next page is.
    next: str = ""
    #: The filters as pairs, for the acts on all that match.
    pairs: Sequence[tuple[str, str]] = ()
    later: bool = False

    reasons: Sequence[str] = tuple(reason.value for reason in Reason)
    states: Sequence[str] = tuple(state.value for state in State)
    texts: Sequence[str] = TEXTS
    moments: Sequence[str] = MOMENTS

    def value(self, name: str) -> str:
        """What a field holds."""
        return first(self.given, name)

    def has(self, name: str, value: str) -> bool:
        """Whether a choice is made."""
        return value in self.given.get(name, ())

    @property
    def narrowed(self) -> bool:
        """Whether any filter is set."""
        return bool(self.pairs)


class LettersPage(Page):
    """``/dead-letters/letters?task=…&state=…``: the filters are those of ``dlq list``."""

    tab = "letters"

    async def get(self) -> None:
        """Show a page of letters."""
        given: Given = {}
        try:
            given = asked(self.request)
            wanted = read_filter(given, times.utc_now(), beside=_BESIDE)
            view = await self._view(given, wanted)
        except FilterError as error:
            self.page("letters", LettersView(given=given, problem=str(error), count=None), 400)
            return
        self.page("letters", view)

    async def _view(self, given: Given, wanted: Filter) -> LettersView:
        after = first(given, "after") or None
        counting = asyncio.ensure_future(self._count(given, wanted))
        page = await self.site.ask(lambda store: store.find(wanted, limit=PAGE_SIZE, after=after))
        count = await _soon(counting)
        pairs = [(name, item) for name, items in _set(given).items() for item in items]
        following = [*pairs, ("after", page.next)] if page.next else []
        return LettersView(
            given=given,
            rows=rows_of(page.letters),
            count=count,
            pairs=pairs,
            next=self.links.page("letters", query=following) if following else "",
            later=after is not None,
        )

    async def _count(self, given: Given, wanted: Filter) -> int | None:
        key = ("count", tuple((name, *items) for name, items in _set(given).items()))
        try:
            return await self.site.recall(key, lambda store: store.count(wanted))
        except CeleryDLQError:
            # The letters themselves, which an index has, may be there all the same.
            return None


async def _soon(counting: asyncio.Future[int | None]) -> int | None:
    """The count, when it is there soon after the letters are. Later, it is there for the next page."""
    try:
        return await asyncio.wait_for(asyncio.shield(counting), COUNT_PATIENCE_S)
    except asyncio.TimeoutError:
        return None


def rows_of(letters: Sequence[DeadLetter]) -> list[Row]:
    """Letters as the rows of a list."""
    shorts = short_ids([letter.task_id for letter in letters])
    return [
        Row(letter=letter, short_id=short, attempts=attempts_of(letter))
        for short, letter in zip(shorts, letters, strict=True)
    ]


def _set(given: Given) -> Mapping[str, tuple[str, ...]]:
    """The filters that are set, without empty fields of the form."""
    found = {name: tuple(filter(str.strip, given.get(name, ()))) for name in NAMES}
    return {name: items for name, items in found.items() if items}
