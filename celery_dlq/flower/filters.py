"""Filters in addresses, forms and JSON, with the names of the command line."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from celery_dlq.errors import FilterError
from celery_dlq.known import unknown_name
from celery_dlq.model.states import Reason, State, Verdict
from celery_dlq.store.base import Argument, Filter
from celery_dlq.view import times

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: The given names and values; a name may have several values.
Given = Mapping[str, Sequence[str]]

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

#: The value of a choice that is made. JSON's ``true`` arrives as it, too.
YES = "1"

#: The most ids in one request.
ID_LIMIT = 1_000

#: The most arguments and values in one request; the store looks each of them up.
VALUE_LIMIT = 20

_Word = TypeVar("_Word", bound=Enum)


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
    words: dict[str, Any] = {name: _maybe_word(kind, name, given) for name, kind in WORDS.items()}
    ids = tuple(dict.fromkeys(given.get("id", ())))
    if "" in ids:
        # Ignoring it would widen an act to every letter.
        raise FilterError("An id is empty; give it a value, or leave it out.")
    if len(ids) > ID_LIMIT:
        raise FilterError(f"The request has more than {ID_LIMIT:,} ids; use a filter instead.")
    arguments, values = (_given(given, name) for name in REPEATED)
    if len(arguments) + len(values) > VALUE_LIMIT:
        raise FilterError(f"The request has more than {VALUE_LIMIT} values; leave some out.")
    return Filter(
        **texts,
        **words,
        ids=ids,
        args=tuple(map(Argument.read, arguments)),
        values=tuple(values),
        states=words_of(State, "state", given),
        since=_moment(given, "since", now),
        until=_moment(given, "until", now),
        held=choice(given, "held"),
    )


def fields_of(given: Given) -> dict[str, list[str]]:
    """The filters that are set; empty fields of the form are left out."""
    found = {name: [*filter(str.strip, given.get(name, ()))] for name in NAMES}
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


def check_names(given: Given, known: Collection[str]) -> None:
    """Check that all names are known; ignoring a misspelt one would widen an act.

    :raises FilterError: a name is unknown.
    """
    for name in given:
        if name not in known:
            raise FilterError(unknown_name("a filter", name, known))


def words_of(kind: type[_Word], name: str, given: Given) -> frozenset[_Word]:
    """The members of ``kind`` in the values of ``name``.

    :raises FilterError: a value is not a member.
    """
    return frozenset(_word(kind, name, item) for item in given.get(name, ()) if item)


def choice(given: Given, name: str) -> bool:
    """Whether the choice ``name`` is made.

    :raises FilterError: it has another value than :data:`YES`.
    """
    value = one(given, name)
    if value not in (None, YES):
        raise FilterError(f"{name} must be {YES}, or left out, not {value[:40]!r}.")
    return value is not None


def _given(given: Given, name: str) -> list[str]:
    return [value for value in given.get(name, ()) if value.strip()]


def one(given: Given, name: str) -> str | None:
    """The value of ``name``, or None if it is not given.

    :raises FilterError: it has several.
    """
    values = _given(given, name)
    if len(values) > 1:
        raise FilterError(f"{name} is given more than once; give it once.")
    return values[0] if values else None


def _maybe_word(kind: type[_Word], name: str, given: Given) -> _Word | None:
    value = one(given, name)
    return _word(kind, name, value) if value else None


def _word(kind: type[_Word], name: str, value: str) -> _Word:
    try:
        return kind(value.strip().lower())
    except ValueError:
        known = (item.value for item in kind)
        raise FilterError(unknown_name(f"a {name}", value, known)) from None


def _moment(given: Given, name: str, now: datetime) -> datetime | None:
    value = one(given, name)
    try:
        return times.parse_moment(value, now) if value else None
    except ValueError as error:
        raise FilterError(f"{name}: {error}") from error
