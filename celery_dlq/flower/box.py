"""The search box: what a person types in one line, as filters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from celery_dlq.flower.filters import NAMES
from celery_dlq.model.states import State
from celery_dlq.redact import LONGEST
from celery_dlq.store.base import Filter

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
