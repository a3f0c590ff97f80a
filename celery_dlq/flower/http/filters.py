"""Filters in addresses, forms and JSON, with the names of the command line."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from celery_dlq.errors import FilterError
from celery_dlq.flower.http.request import (
    YES,
    Given,
    check_names,
    choice,
    filled,
    first,
    one,
    word_of,
    words_of,
)
from celery_dlq.model.states import Reason, State, Verdict
from celery_dlq.store.base import Argument, Filter
from celery_dlq.view import times

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: Narrows a filter to the letters that an act takes.
Take = Callable[[Filter], Filter]

TEXTS = (
    "task", "exception", "queue", "group", "route", "worker", "release", "tag", "root", "rule", "operation",
    "search",
)  # fmt: skip
MOMENTS = ("since", "until")
#: Fields that take one of several words.
WORDS: Mapping[str, type[Enum]] = {"reason": Reason, "verdict": Verdict}
#: Fields that may have several values, and mean letters that have all of them.
REPEATED = ("arg", "value")
NAMES = (*TEXTS, *REPEATED, *MOMENTS, *WORDS, "state", "held", "id")

#: The most ids in one request.
ID_LIMIT = 1_000

#: The most arguments and values in one request; the store looks each of them up.
VALUE_LIMIT = 20


def read_filter(
    given: Given, now: datetime, *, others: Collection[str] = (), names: Collection[str] = NAMES
) -> Filter:
    """The filter in ``given``. Empty values are ignored, because forms send them.

    :param others: names that are allowed, but are not filters.
    :param names: the filters that are allowed.
    :raises FilterError: a name or a value is invalid. No mistake may widen the filter to all letters.
    """
    check_names(given, (*names, *others))
    texts: dict[str, Any] = {name: one(given, name) for name in TEXTS}
    words: dict[str, Any] = {
        name: word_of(kind, name, value)
        for name, kind in WORDS.items()
        if (value := one(given, name))
    }
    ids = tuple(dict.fromkeys(given.get("id", ())))
    if "" in ids:
        # Ignoring it would widen an act to every letter.
        raise FilterError("An id is empty; give it a value, or leave it out.")
    if len(ids) > ID_LIMIT:
        raise FilterError(f"The request has more than {ID_LIMIT:,} ids; use a filter instead.")
    arguments, values = (filled(given, name) for name in REPEATED)
    if len(arguments) + len(values) > VALUE_LIMIT:
        raise FilterError(f"The request has more than {VALUE_LIMIT} values; leave some out.")
    return Filter(
        **texts,
        **words,
        ids=ids,
        args=tuple(map(Argument.read, arguments)),
        values=tuple(values),
        states=words_of(State, "state", given),
        since=moment_of("since", one(given, "since"), now),
        until=moment_of("until", one(given, "until"), now),
        held=choice(given, "held"),
    )


def fields_of(given: Given) -> dict[str, list[str]]:
    """The filters that are set; empty fields of the form are left out."""
    found = {name: filled(given, name) for name in NAMES}
    return {name: items for name, items in found.items() if items}


def pairs_of(fields: Given) -> list[tuple[str, str]]:
    """Filters as names and values, in the order of the form."""
    return [(name, item) for name in NAMES for item in fields.get(name, ())]


def to_pairs(wanted: Filter) -> Iterator[tuple[str, str]]:
    """``wanted`` as names and values, with full timestamps, and without the positions of arguments."""
    for name in TEXTS:
        value = getattr(wanted, name)
        if value:
            yield name, value
    yield from (("arg", str(argument)) for argument in wanted.args)
    yield from (("value", value) for value in wanted.values)
    for name in MOMENTS:
        moment = getattr(wanted, name)
        if moment:
            yield name, times.iso(moment)
    for name in WORDS:
        word = getattr(wanted, name)
        if word:
            yield name, word.value
    if wanted.held:
        yield "held", YES
    yield from (("state", state.value) for state in sorted(wanted.states))
    yield from (("id", task_id) for task_id in wanted.ids)


def frozen(store: Store, wanted: Filter, take: Take) -> Filter:
    """``wanted`` without letters that fail from now on, so that a confirmed number stays correct.

    :param take: which of them the act takes.
    :raises FilterError: the act cannot take letters in the given states.
    """
    return wanted.before(store.cut_off(take(wanted), now=store.now()))


def moment_of(name: str, text: str | None, now: datetime) -> datetime | None:
    """The moment in the value of ``name``; None without a value.

    :raises FilterError: it is not a moment.
    """
    try:
        return times.parse_moment(text, now) if text else None
    except ValueError as error:
        raise FilterError(f"{name}: {error}") from error


@dataclass(frozen=True, kw_only=True)
class FilterForm:
    """The values of a page with a form of filters, and with a list that has several pages."""

    given: Given
    #: The error in the form.
    problem: str = ""
    #: The filters that are set.
    pairs: Sequence[tuple[str, str]] = ()
    #: The cursor of the next page; empty on the last one.
    next: str = ""

    def value(self, name: str) -> str:
        """The value of a field."""
        return first(self.given, name)

    def has(self, name: str, value: str) -> bool:
        """Whether a choice is selected."""
        return value in self.given.get(name, ())

    @property
    def query(self) -> str:
        """The filters, as in an address."""
        return urlencode(self.pairs)

    @property
    def narrowed(self) -> bool:
        """Whether any filter is set."""
        return bool(self.pairs)

    @property
    def later(self) -> bool:
        """Whether this is not the first page."""
        return bool(self.value("after"))
