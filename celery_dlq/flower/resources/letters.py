"""The list of letters, with filters and pages. Its search box reads one line as filters."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from celery_dlq.base.redact import LONGEST, clip
from celery_dlq.errors import CeleryDLQError, FilterError
from celery_dlq.flower.http.calls import look_at
from celery_dlq.flower.http.handler import Api, Page
from celery_dlq.flower.http.request import (
    NAMES,
    REPEATED,
    WORDS,
    YES,
    FilterForm,
    Given,
    asked,
    fields_of,
    filled,
    first,
    limit_of,
    pairs_of,
)
from celery_dlq.model.automation import HeldLetter
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.states import CLOSED_STATES, State
from celery_dlq.store.base import Filter, Number
from celery_dlq.store.base import Page as PageOfLetters
from celery_dlq.view import lookup, records, times
from celery_dlq.view.letters import argument_values
from celery_dlq.view.text import counted, short_ids

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: Characters of the shortest beginning of an id that opens the letter.
_SHORTEST_ID = 6

#: A word, or words in double quotes, also behind ``name:`` or ``path=``.
_PIECE = re.compile(r'(?:[^\s"]|"[^"]*"?)+')

_FILTER = re.compile(r"([a-z]+):(.+)", re.S)
_ARGUMENT = re.compile(r"([\w.-]+=)(?!=)(.+)", re.S)

#: All letters with values: those of parked retries are not kept.
_STORED = frozenset(State) - {State.PARKED}


@dataclass(frozen=True, kw_only=True)
class Typed:
    """The line that a person typed, as filters and a text."""

    #: Filters by the names of the command line.
    pairs: tuple[tuple[str, str], ...]
    #: The words that belong to no filter.
    text: str

    @classmethod
    def read(cls, line: str) -> Typed:
        """Read ``task:charge order_id=4711 bad currency``. Quotes keep words together, and a word in quotes
        is a text."""
        pieces = [_understood(piece) for piece in _PIECE.findall(line)]
        pairs = tuple((name, value) for name, value in pieces if name)
        return cls(pairs=pairs, text=" ".join(value for name, value in pieces if not name).strip())


def _understood(piece: str) -> tuple[str, str]:
    """The filter of a piece and its value; an empty name for a text."""
    named, argument = _FILTER.fullmatch(piece), _ARGUMENT.fullmatch(piece)
    if named and named[1] in NAMES:
        return named[1], _bare(named[2])
    if argument:
        return "arg", argument[1] + _bare(argument[2])
    return "", _bare(piece)


def _bare(text: str) -> str:
    return text.replace('"', "")


def filters_of(store: Store, typed: Typed) -> Iterator[tuple[str, str]]:
    """The filters that ``typed`` means, as names and values. A text that is the id of a letter, a value, a
    task or an exception of letters means that; another one is searched."""
    yield from typed.pairs
    if typed.text:
        yield _filter_of(store, typed.text)


def _filter_of(store: Store, text: str) -> tuple[str, str]:
    ids = store.letters.match(text, limit=2) if len(text) >= _SHORTEST_ID else []
    if text in ids:
        return "id", text
    if len(text) <= LONGEST and store.values.kept().are_kept and _has(store, values=(text,)):
        return "value", text
    if len(ids) == 1:
        return "id", ids[0]
    if _has(store, task=text):
        return "task", text
    return ("exception" if _has(store, exception=text) else "search"), text


def _has(store: Store, **wanted: Any) -> bool:
    """Whether a letter matches; without a search for one that only a search finds."""
    page = store.letters.find(Filter(**wanted, states=_STORED), limit=1, patience_s=0)
    return bool(page.letters or page.further)


#: Letters per page.
PAGE_SIZE = 50

#: Arguments in a row, and characters of each.
_ARGUMENTS, _ARGUMENT_WIDTH = 6, 40

#: Seconds for a search that reads letters one by one, and for counting them. Together they keep the page
#: below 300 ms.
SEARCH_PATIENCE_S = COUNT_PATIENCE_S = 0.15

#: Seconds for a search by the REST API. A program can wait longer than a person.
API_PATIENCE_S = 2.0

#: The numbers of letters that an act has just closed or deleted.
DONE = ("discarded", "deleted")

#: The name of the box.
BOX = "q"

_OTHERS = ("after", BOX, *DONE)

#: The fields of a filter whose names are compared with those of letters.
_NAMED = ("task", "exception", "queue", "route", "release")

#: Closed letters in words, with their states; and names that no letter has, each with those that are near.
Beyond = tuple[tuple[str, Sequence[str]], Sequence[str]]

_NOTHING: Beyond = ("", ()), ()


@dataclass(frozen=True, kw_only=True)
class Row:
    """A letter in the list."""

    letter: DeadLetter
    short_id: str
    attempts: int
    #: Set if no automatic redrive sends it again.
    held: HeldLetter | None = None
    #: The names of the task's positional parameters; empty if they are unknown.
    parameters: Sequence[str] = ()

    @property
    def arguments(self) -> str:
        """The first arguments of its call, each as filters name it; empty if they are unknown."""
        return ", ".join(
            clip(value if path.isdigit() else f"{path}={value}", _ARGUMENT_WIDTH)
            for path, value in argument_values(self.letter, self.parameters, _ARGUMENTS)
        )


@dataclass(frozen=True, kw_only=True)
class LettersView(FilterForm):
    """The values of the page."""

    rows: Sequence[Row] = ()
    #: Letters from further back than :attr:`searched_to`.
    further: Sequence[Row] = ()
    #: The number of matching letters; None if counting takes too long.
    count: Number | None = None
    #: How far back the search came, if it ran out of time.
    searched_to: datetime | None = None
    #: Letters that failed first then or earlier may lack the values that were asked for.
    values_lack_to: datetime | None = None
    #: The states of the letters that match.
    shown: frozenset[State] = frozenset()
    #: If none matches: how many closed letters do, in words, with their states; and names that no letter has.
    closed: tuple[str, Sequence[str]] = ("", ())
    near: Sequence[str] = ()

    states: Sequence[str] = tuple(state.value for state in State)
    acts_done: Sequence[str] = DONE

    def values(self, name: str) -> Sequence[str]:
        """The values of a field that may have several, and an empty one for another."""
        return [*filled(self.given, name), ""]

    @property
    def later(self) -> bool:
        """Whether this is not the first page."""
        return super().later and not self.problem

    @property
    def choices(self) -> Mapping[str, Sequence[str]]:
        """The fields that take one of several words, and these words."""
        return {name: [word.value for word in kind] for name, kind in WORDS.items()}

    @property
    def heading(self) -> str:
        """The number of letters, as far as it is known."""
        if self.count is None and (self.later or self.searched_to):
            return f"{counted(len(self.rows) + len(self.further), 'letter')} on this page"
        known = self.count or Number(len(self.rows), more=True)
        number, more = known.count, known.more
        said = f"match{'es' if number == 1 and not more else ''}" if self.narrowed else "open"
        if self.count and more:
            return f"{number:,}+ letters {said}"
        return f"{'More than ' if more else ''}{counted(number, 'letter')} {said}"

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
    def as_text(self) -> Sequence[tuple[str, str]]:
        """The filters, with a search for the only value or argument as a text; nothing if there are
        several."""
        found = [value for name, value in self.pairs if name in REPEATED]
        if len(found) != 1 or self.value("search"):
            return ()
        others = [pair for pair in self.pairs if pair[0] not in REPEATED]
        return [*others, ("search", found[0])]


class LettersPage(Page):
    """``/dead-letters/letters?task=…&state=…``, with the filters of ``dlq list``."""

    tab = "letters"

    async def get(self) -> None:
        """Show a page of letters."""
        given: Given = {}
        try:
            given = asked(self.request)
            if first(given, BOX).strip():
                self.redirect(await self._meant(given))
                return
            wanted = self.filter_in(given, others=_OTHERS)
            view = await self._view(given, wanted)
        except FilterError as error:
            self.page("letters", LettersView(given=given, problem=str(error), count=None), 400)
            return
        self.page("letters", view)

    async def _meant(self, given: Given) -> str:
        """The address of what was typed in the box, together with the other filters."""
        typed, others = Typed.read(first(given, BOX)), pairs_of(fields_of(given))
        pairs = await self.site.ask(lambda store: [*others, *filters_of(store, typed)])
        if len(pairs) == 1 and pairs[0][0] == "id":
            return self.links.letter(pairs[0][1])
        return self.links.page("letters", query=pairs)

    async def _view(self, given: Given, wanted: Filter) -> LettersView:
        after = first(given, "after") or None
        page, held, lack_to = await self.site.ask(lambda store: look(store, wanted, after))
        whole = after is None and page.next is None
        count = Number(len(page.letters)) if whole else await self._count(given, wanted)
        fields = fields_of(given)
        rows = rows_of([*page.letters, *page.further], held, self.site.parameters)
        is_empty = whole and not rows and not page.searched_to and bool(fields)
        closed, near = await self.site.ask(partial(beyond, wanted=wanted)) if is_empty else _NOTHING
        return LettersView(
            given=given,
            rows=rows[: len(page.letters)],
            further=rows[len(page.letters) :],
            count=count,
            pairs=pairs_of(fields),
            shown=wanted.wanted_states,
            closed=closed,
            near=near,
            next=page.next or "",
            searched_to=page.searched_to,
            values_lack_to=lack_to,
        )

    async def _count(self, given: Given, wanted: Filter) -> Number | None:
        """The number of matching letters, if counted in time. A late result is cached for the next page."""
        if wanted != wanted.indexed:
            # The count would read every letter.
            return None
        key = ("count", tuple((name, *items) for name, items in fields_of(given).items()))
        counting = asyncio.ensure_future(
            self.site.recall(key, lambda store: store.counts.for_screen(wanted))
        )
        try:
            return await asyncio.wait_for(asyncio.shield(counting), COUNT_PATIENCE_S)
        except (asyncio.TimeoutError, CeleryDLQError):
            # The page can still show the letters themselves, which an index finds.
            counting.add_done_callback(look_at)
            return None


class Letters(Api):
    """``GET /api/dead-letters``"""

    async def get(self) -> None:
        """A page of letters, newest failure first."""
        given = asked(self.request)
        wanted = self.filter_in(given, others=("limit", "after"))
        limit, after = limit_of(given), first(given, "after") or None
        page, lack_to = await self.site.ask(
            lambda store: (
                store.letters.find(wanted, limit=limit, after=after, patience_s=API_PATIENCE_S),
                values_lack_to(store, wanted),
            )
        )
        self.reply(
            {
                "letters": self._records(page.letters),
                "next": page.next,
                "searched_to": times.iso(page.searched_to) if page.searched_to else None,
                "further": self._records(page.further),
                "values_lack_to": times.iso(lack_to) if lack_to else None,
            }
        )

    def _records(self, letters: Iterable[DeadLetter]) -> list[dict[str, Any]]:
        return [
            records.letter_record(letter, owner=self.site.owner_of(letter.route))
            for letter in letters
        ]


def beyond(store: Store, wanted: Filter) -> Beyond:
    """What may be meant by filters that no letter matches: closed letters, and names that are near."""
    closed = (
        _NOTHING[0]
        if wanted.states
        else lookup.closed_too(store, wanted, patience_s=SEARCH_PATIENCE_S)
    )
    return closed, [*lookup.unknown_names(store, wanted, _NAMED)]


def look(
    store: Store, wanted: Filter, after: str | None
) -> tuple[PageOfLetters, Mapping[str, HeldLetter], datetime | None]:
    """A page of letters; those of them that are held; and ``values_lack_to``."""
    page = store.letters.find(wanted, limit=PAGE_SIZE, after=after, patience_s=SEARCH_PATIENCE_S)
    shown = [*page.letters, *page.further]
    held = store.automations.held([letter.task_id for letter in shown])
    return page, held, values_lack_to(store, wanted)


def values_lack_to(store: Store, wanted: Filter) -> datetime | None:
    """Letters that failed first then or earlier may lack the values that ``wanted`` asks for; None if none
    lacks them, or it asks for none."""
    return store.values.kept().since if wanted.asks_for_values else None


def rows_of(
    letters: Sequence[DeadLetter],
    held: Mapping[str, HeldLetter] | None = None,
    parameters: Callable[[str], Sequence[str]] = lambda _task: (),
) -> list[Row]:
    """Letters as rows of a list.

    :param held: those of them that are held, by their task ids.
    :param parameters: the names of a task's positional parameters.
    """
    shorts = short_ids([letter.task_id for letter in letters])
    return [
        Row(
            letter=letter,
            short_id=short,
            attempts=records.attempts_of(letter),
            held=(held or {}).get(letter.task_id),
            parameters=parameters(letter.task),
        )
        for short, letter in zip(shorts, letters, strict=True)
    ]
