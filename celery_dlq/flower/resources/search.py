"""The search box: what a person types in one line, as filters; and the filters of the list of letters that
people save under a name, for all users of Flower."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.errors import FilterError
from celery_dlq.flower.http.filters import NAMES, fields_of, pairs_of
from celery_dlq.flower.http.handler import Page
from celery_dlq.flower.http.problems import Refused
from celery_dlq.flower.http.request import Given, first, sent
from celery_dlq.model.states import State
from celery_dlq.redact import LONGEST, Redactor, clip
from celery_dlq.store.base import Filter
from celery_dlq.store.saved_filters import SavedFilter
from celery_dlq.view.lookup import is_secret

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

#: The act of the form that saves a filter.
SAVE = "save filter"


@dataclass(frozen=True, kw_only=True)
class Typed:
    """What a person typed."""

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


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A saved filter in the list of letters."""

    filter: SavedFilter
    #: Whether the list shows its letters now.
    is_shown: bool

    @property
    def pairs(self) -> Sequence[tuple[str, str]]:
        """Its values, for an address."""
        return pairs_of(self.filter.fields)


class SaveFilter(Page):
    """``POST /dead-letters/saved-filters``"""

    async def post(self) -> None:
        """Save the filter under a name, and show its letters."""
        given = self.sent_for(SAVE)
        fields, name = _shown_in(given), first(given, "name")
        wanted = self.filter_in(fields)
        check_no_secret(self.site.redactor, wanted)
        who = self.actor
        await self.site.act(lambda queue: queue.store.saved_filters.save(name, fields, who=who))
        self.see(self.links.page("letters", query=pairs_of(fields)))


class RemoveFilter(Page):
    """``POST /dead-letters/saved-filters/remove``"""

    async def post(self) -> None:
        """Remove the filter, and show the list with the same letters."""
        given = sent(self.request)
        name, fields, who = first(given, "name"), _shown_in(given), self.actor
        self.take_mark(given, removal_of(name))

        def remove(queue: DeadLetterQueue) -> bool:
            return queue.store.saved_filters.remove(name, fields, who=who)

        if not await self.site.act(remove):
            raise Refused(404, f"This filter is not saved as {clip(name, 40)!r} any more.")
        self.see(self.links.page("letters", query=pairs_of(fields)))


def _shown_in(given: Given) -> dict[str, list[str]]:
    """The filters of the list with the form."""
    return fields_of(parse_qs(first(given, "query")))


def removal_of(name: str) -> str:
    """The act of the form that removes a filter."""
    return f"remove filter {name}"


def check_no_secret(redactor: Redactor, wanted: Filter) -> None:
    """Check that ``wanted`` does not have the value of a redacted argument, which must not be stored, or of
    one without a name, which may be a secret.

    :raises FilterError: it does.
    """
    for argument in wanted.args:
        if is_secret(redactor, argument) or argument.is_by_position:
            raise FilterError(
                f"The values of {argument.path} are redacted, or may be secrets, so this filter cannot be "
                "saved; leave it out."
            )


def as_saved(found: Sequence[SavedFilter], fields: Given) -> list[Saved]:
    """The saved filters for a list with these fields."""
    return [Saved(filter=one, is_shown=pairs_of(one.fields) == pairs_of(fields)) for one in found]
