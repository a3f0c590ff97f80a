"""The list of letters, with filters and pages; and its search box, which reads one line as filters."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from celery_dlq.base.redact import LONGEST
from celery_dlq.errors import CeleryDLQError
from celery_dlq.flower.http.calls import look_at
from celery_dlq.flower.http.handler import ListHandler
from celery_dlq.flower.http.request import (
    NAMES,
    REPEATED,
    WORDS,
    YES,
    FilterForm,
    Given,
    Pairs,
    first_value,
    limit_of,
    pairs_in,
)
from celery_dlq.flower.http.site import Site
from celery_dlq.model.automation import HeldLetter
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.states import CLOSED_STATES, State
from celery_dlq.store.base import Filter, Number, Page
from celery_dlq.view import lookup, records, times
from celery_dlq.view.text import counted

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

#: Seconds for a search that reads letters one by one, and for counting them. Together they keep the page
#: below 300 ms.
SEARCH_PATIENCE_S = COUNT_PATIENCE_S = 0.15

#: Seconds for a search by the REST API. A program can wait longer than a person.
API_PATIENCE_S = 2.0

#: The numbers of letters that an act has just closed or deleted.
DONE = ("discarded", "deleted")

#: The name of the box.
BOX = "q"

#: The fields of a filter whose names are compared with those of letters.
_NAMED = ("task", "exception", "queue", "route", "release")

#: Closed letters in words, with their states; and names that no letter has, each with those that are near.
Beyond = tuple[tuple[str, Sequence[str]], Sequence[str]]


def read_line(line: str) -> tuple[Pairs, str]:
    """A line that a person typed, such as ``task:charge order_id=4711 bad currency``: its filters, and the
    words that belong to no filter. Quotes keep words together, and a word in quotes is a text."""
    pieces = [_understood(piece) for piece in _PIECE.findall(line)]
    pairs = [(name, value) for name, value in pieces if name]
    return pairs, " ".join(value for name, value in pieces if not name).strip()


def _understood(piece: str) -> tuple[str, str]:
    """The filter of a piece and its value; an empty name for a text."""
    named, argument = _FILTER.fullmatch(piece), _ARGUMENT.fullmatch(piece)
    if named and named[1] in NAMES:
        return named[1], named[2].replace('"', "")
    if argument:
        return "arg", argument[1] + argument[2].replace('"', "")
    return "", piece.replace('"', "")


def filter_of(store: Store, text: str) -> tuple[str, str]:
    """The filter that ``text`` means: the id of a letter; or a value, a task or an exception of letters;
    otherwise it is searched."""
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


@dataclass(frozen=True, kw_only=True)
class LettersView(FilterForm):
    """The values of the page. A row is a letter."""

    #: Letters from further back than :attr:`searched_to`.
    further: Sequence[DeadLetter] = ()
    #: Those that no automatic redrive sends again, by their ids.
    held: Mapping[str, HeldLetter] = field(default_factory=dict)
    #: The number of matching letters; None if counting takes too long.
    count: Number | None = None
    #: How far back the search came, if it ran out of time.
    searched_to: datetime | None = None
    #: Letters that failed first then or earlier may lack the values that were asked for.
    values_lack_to: datetime | None = None
    #: The states of the letters that match.
    states_shown: frozenset[State] = frozenset()
    #: If none matches: how many closed letters do, in words, with their states; and names that no letter has.
    beyond: Beyond = ("", ()), ()

    states: ClassVar = tuple(state.value for state in State)
    acts_done: ClassVar = DONE
    #: The fields that take one of several words, and these words.
    choices: ClassVar = {name: [word.value for word in kind] for name, kind in WORDS.items()}

    @property
    def heading(self) -> str:
        """The number of letters, as far as it is known."""
        if self.count is None and (self.is_later or self.searched_to):
            return f"{counted(len(self.rows) + len(self.further), 'letter')} on this page"
        known = self.count or Number(len(self.rows), more=True)
        number, more = known.count, known.more
        said = f"match{'es' if number == 1 and not more else ''}" if self.pairs else "open"
        if self.count and more:
            return f"{number:,}+ letters {said}"
        return f"{'More than ' if more else ''}{counted(number, 'letter')} {said}"

    @property
    def shows_closed(self) -> bool:
        """Whether closed letters may be among those that match."""
        return bool(self.states_shown & CLOSED_STATES)

    @property
    def shows_both(self) -> bool:
        """Whether closed and open letters may be among those that match."""
        return self.shows_closed and not self.states_shown <= CLOSED_STATES

    @property
    def to_delete(self) -> Pairs:
        """The query of the page that deletes all letters that match; only the closed ones if there may be
        both, because open letters are deleted apart from closed ones."""
        if not self.shows_closed:
            return [*self.pairs, ("open", YES)]
        others = [(name, value) for name, value in self.pairs if name != "state"]
        closed = sorted(self.states_shown & CLOSED_STATES)
        return [*others, *(("state", state.value) for state in closed)]

    @property
    def as_text(self) -> Pairs:
        """The filters, with a search for the only value or argument as a text; nothing if there are
        several."""
        found = [value for name, value in self.pairs if name in REPEATED]
        if len(found) != 1 or self.value("search"):
            return ()
        others = [pair for pair in self.pairs if pair[0] not in REPEATED]
        return [*others, ("search", found[0])]


class Letters(ListHandler):
    """``/dead-letters/letters?task=…&state=…``, with the filters of ``dlq list``, and the same in the REST
    API."""

    template, view = "letters", LettersView

    async def get(self) -> None:
        """A page of letters, newest failure first."""
        given = self.values()
        if not self.is_api and first_value(given, BOX).strip():
            self.redirect(await self._meant(given))
            return
        others = ("limit",) if self.is_api else (BOX, *DONE)
        wanted = self.filter_in(given, others=("after", *others))
        limit, after = limit_of(given), first_value(given, "after") or None
        patience_s = API_PATIENCE_S if self.is_api else SEARCH_PATIENCE_S
        page, lack_to = await self.site.ask(
            lambda store: (
                store.letters.find(wanted, limit=limit, after=after, patience_s=patience_s),
                values_lack_to(store, wanted),
            )
        )
        if not self.is_api:
            self.page("letters", await self._view(given, wanted, page, lack_to))
            return
        self.reply(
            {
                "letters": letter_records(self.site, page.letters),
                "next": page.next,
                "searched_to": times.iso(page.searched_to) if page.searched_to else None,
                "further": letter_records(self.site, page.further),
                "values_lack_to": times.iso(lack_to) if lack_to else None,
            }
        )

    async def _meant(self, given: Given) -> str:
        """The address of what was typed in the box, together with the other filters."""
        pairs, text = read_line(first_value(given, BOX))
        found = [*pairs_in(given), *pairs]
        if text:
            found.append(await self.site.ask(lambda store: filter_of(store, text)))
        if len(found) == 1 and found[0][0] == "id":
            return self.links.letter(found[0][1])
        return self.links.page("letters", query=found)

    async def _view(
        self, given: Given, wanted: Filter, page: Page, lack_to: datetime | None
    ) -> LettersView:
        """The values of the page."""
        ids = [letter.task_id for letter in (*page.letters, *page.further)]
        is_whole = not first_value(given, "after") and page.next is None
        view = LettersView(
            given=given,
            rows=page.letters,
            further=page.further,
            held=await self.site.ask(lambda store: store.automations.held(ids)) if ids else {},
            next=page.next,
            states_shown=wanted.wanted_states,
            searched_to=page.searched_to,
            values_lack_to=lack_to,
        )
        if not is_whole:
            return replace(view, count=await self._count(view.pairs, wanted))
        view = replace(view, count=Number(len(page.letters)))
        if ids or page.searched_to or not view.pairs:
            return view
        return replace(view, beyond=await self.site.ask(partial(beyond, wanted=wanted)))

    async def _count(self, pairs: Pairs, wanted: Filter) -> Number | None:
        """The number of matching letters, if counted in time. A late result is cached for the next page."""
        if wanted != wanted.indexed:
            # The count would read every letter.
            return None
        counting = asyncio.ensure_future(
            self.site.recall(("count", *pairs), lambda store: store.counts.for_screen(wanted))
        )
        try:
            return await asyncio.wait_for(asyncio.shield(counting), COUNT_PATIENCE_S)
        except (asyncio.TimeoutError, CeleryDLQError):
            # The page can still show the letters themselves, which an index finds.
            counting.add_done_callback(look_at)
            return None


def letter_records(site: Site, letters: Iterable[DeadLetter]) -> list[dict[str, Any]]:
    """Letters as the REST API has them in a list."""
    return [records.letter_record(letter, owner=site.owner_of(letter.route)) for letter in letters]


def beyond(store: Store, wanted: Filter) -> Beyond:
    """What may be meant by filters that no letter matches: closed letters, and names that are near."""
    closed: tuple[str, Sequence[str]] = ("", ())
    if not wanted.states:
        closed = lookup.closed_too(store, wanted, patience_s=SEARCH_PATIENCE_S)
    return closed, [*lookup.unknown_names(store, wanted, _NAMED)]


def values_lack_to(store: Store, wanted: Filter) -> datetime | None:
    """Letters that failed first then or earlier may lack the values that ``wanted`` asks for; None if none
    lacks them, or it asks for none."""
    return store.values.kept().since if wanted.asks_for_values else None
