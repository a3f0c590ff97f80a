"""Filters as they stand in addresses, forms and JSON: the names are those of the command line."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from difflib import get_close_matches
from enum import Enum
from typing import Any, TypeVar

from celery_dlq.errors import FilterError
from celery_dlq.states import Reason, State
from celery_dlq.store.base import Filter
from celery_dlq.view import times

#: Names and values as they were given; a name may come several times.
Given = Mapping[str, Sequence[str]]

TEXTS = ("task", "exception", "queue", "group", "worker", "search")
MOMENTS = ("since", "until")
NAMES = (*TEXTS, *MOMENTS, "reason", "state", "id")

#: Letters that one request may name by their ids.
ID_LIMIT = 1_000

_Word = TypeVar("_Word", bound=Enum)


def read_filter(
    given: Given, now: datetime, *, beside: Collection[str] = (), names: Collection[str] = NAMES
) -> Filter:
    """The filter that ``given`` says. An empty value is none, as forms send it.

    :param beside: other names that may be there.
    :param names: the filters that may be there.
    :raises FilterError: a name or a value makes no sense; nothing is taken for "all letters".
    """
    check_names(given, (*names, *beside))
    texts: dict[str, Any] = {name: _one(given, name) for name in TEXTS}
    reason = _one(given, "reason")
    ids = tuple(dict.fromkeys(given.get("id", ())))
    if "" in ids:
        # Taken for none, it would widen an act to every letter.
        raise FilterError("An id is empty; give it a value, or leave it out.")
    if len(ids) > ID_LIMIT:
        raise FilterError(f"More than {ID_LIMIT:,} ids; use a filter instead.")
    return Filter(
        **texts,
        ids=ids,
        reason=_word(Reason, "reason", reason) if reason else None,
        states=words_of(State, "state", given),
        since=_moment(given, "since", now),
        until=_moment(given, "until", now),
    )


def to_pairs(wanted: Filter) -> Iterator[tuple[str, str]]:
    """``wanted`` as names and values, its times in full."""
    for name in TEXTS:
        value = getattr(wanted, name)
        if value:
            yield name, value
    for name in MOMENTS:
        moment = getattr(wanted, name)
        if moment:
            yield name, times.iso(moment)
    if wanted.reason:
        yield "reason", wanted.reason.value
    yield from (("state", state.value) for state in sorted(wanted.states))
    yield from (("id", task_id) for task_id in wanted.ids)


def frozen(wanted: Filter, now: datetime) -> Filter:
    """``wanted`` without letters that fail from now on, so that a number that is agreed to stays."""
    return replace(wanted, until=min(wanted.until, now) if wanted.until else now)


def check_names(given: Given, known: Collection[str]) -> None:
    """Check that only known names are there.

    :raises FilterError: there is another one. What is misspelt would widen an act.
    """
    for name in given:
        if name not in known:
            near = get_close_matches(name, sorted(known), n=1)
            named = f"there are {', '.join(known)}." if known else "there is none here."
            hint = f"did you mean {near[0]!r}?" if near else named
            raise FilterError(f"There is no filter {name[:80]!r}; {hint}")


def words_of(kind: type[_Word], name: str, given: Given) -> frozenset[_Word]:
    """The words of ``kind`` that are given under ``name``.

    :raises FilterError: one is none of them.
    """
    return frozenset(_word(kind, name, item) for item in given.get(name, ()) if item)


def _one(given: Given, name: str) -> str | None:
    values = [value for value in given.get(name, ()) if value.strip()]
    if len(values) > 1:
        raise FilterError(f"{name} is given more than once; leave one of them.")
    return values[0] if values else None


def _word(kind: type[_Word], name: str, value: str) -> _Word:
    try:
        return kind(value.strip().lower())
    except ValueError:
        known = ", ".join(item.value for item in kind)
        raise FilterError(f"{value[:80]!r} is no {name}; there are {known}.") from None


def _moment(given: Given, name: str, now: datetime) -> datetime | None:
    value = _one(given, name)
    try:
        return times.parse_moment(value, now) if value else None
    except ValueError as error:
        raise FilterError(f"{name}: {error}") from error
