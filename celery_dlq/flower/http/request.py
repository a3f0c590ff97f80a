"""The names and values of a request, unchanged: Flower's methods escape them, and Tornado's strip them. The
filters among them have the names of the command line."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from tornado.httputil import HTTPServerRequest

from celery_dlq.base.known import unknown_name
from celery_dlq.errors import FilterError
from celery_dlq.model.states import Reason, State, Verdict
from celery_dlq.store.base import Argument, Filter
from celery_dlq.view import times

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: The given names and values; a name may have several values.
Given = Mapping[str, Sequence[str]]

#: Filters as names and values; a name may be in several of them.
Pairs = Sequence[tuple[str, str]]

#: Bytes of JSON at most.
BODY_LIMIT = 1_048_576

#: The value of a choice that is made. JSON's ``true`` arrives as it, too.
YES = "1"

#: Characters of a reason that are kept.
WHY_LIMIT = 500

#: Rows per page of the REST API by default, and at most.
USUAL_ROWS, MOST_ROWS = 50, 500

#: Digits of a number at most.
_DIGITS = 18

_Word = TypeVar("_Word", bound=Enum)


def query_values(request: HTTPServerRequest) -> Given:
    """The names and values of the query string.

    :raises FilterError: they are not UTF-8.
    """
    return _texts(request.query_arguments)


def form_values(request: HTTPServerRequest) -> Given:
    """The names and values of a form.

    :raises FilterError: they are not UTF-8.
    """
    return _texts(request.body_arguments)


def json_values(request: HTTPServerRequest) -> Given:
    """The names and values of a JSON object, like those of a form: numbers as text, lists as several values,
    true as ``1``, false and null as no value.

    :raises FilterError: the body is not a JSON object, or has other values.
    """
    if request.body and not request.headers.get("Content-Type", "").startswith("application/json"):
        raise FilterError("The body must be JSON, with Content-Type: application/json.")
    if len(request.body) > BODY_LIMIT:
        raise FilterError(
            f"The body has more than {BODY_LIMIT:,} bytes; use a filter instead of ids."
        )
    try:
        found = json.loads(request.body or b"{}")
    except (ValueError, RecursionError) as error:
        raise FilterError(f"The body is not valid JSON: {error}.") from error
    if not isinstance(found, dict):
        raise FilterError('The body must be a JSON object, such as {"task": "shop.charge"}.')
    return {name: list(_values(name, value)) for name, value in found.items()}


def _values(name: str, value: Any) -> Iterator[str]:
    for item in value if isinstance(value, list) else [value]:
        if item is True:
            yield YES
        elif isinstance(item, (str, int, float)) and item is not False:
            yield str(item)
        elif item is not None and item is not False:
            raise FilterError(
                f"{name} must be a text, a number, true or false, or a list of texts."
            )


def first_value(given: Given, name: str, default: str = "") -> str:
    """The first value of ``name``."""
    values = given.get(name) or (default,)
    return values[0]


def reason_in(given: Given) -> str:
    """The reason of an act; empty if none is given."""
    return first_value(given, "why").strip()[:WHY_LIMIT]


def nonblank(given: Given, name: str) -> list[str]:
    """The values of ``name`` without blank ones, which forms send."""
    return [value for value in given.get(name, ()) if value.strip()]


def single_value(given: Given, name: str) -> str | None:
    """The value of ``name``, or None if it is not given.

    :raises FilterError: it has several.
    """
    values = nonblank(given, name)
    if len(values) > 1:
        raise FilterError(f"{name} is given more than once; give it once.")
    return values[0] if values else None


def choice(given: Given, name: str) -> bool:
    """Whether the choice ``name`` is made.

    :raises FilterError: it has another value than :data:`YES`.
    """
    value = single_value(given, name)
    if value not in (None, YES):
        raise FilterError(f"{name} must be {YES}, or left out, not {value[:40]!r}.")
    return value is not None


def check_names(given: Given, known: Collection[str], what: str = "a filter") -> None:
    """Check that all names are known; ignoring a misspelt one would widen an act.

    :param what: what a name is, for the error.
    :raises FilterError: a name is unknown.
    """
    for name in given:
        if name not in known:
            raise FilterError(unknown_name(what, name, known))


def words_of(kind: type[_Word], name: str, given: Given) -> frozenset[_Word]:
    """The members of ``kind`` in the values of ``name``.

    :raises FilterError: a value is not a member.
    """
    return frozenset(word_of(kind, name, item) for item in given.get(name, ()) if item)


def word_of(kind: type[_Word], name: str, value: str) -> _Word:
    """The member of ``kind`` with a value.

    :raises FilterError: no member has this value.
    """
    try:
        return kind(value.strip().lower())
    except ValueError:
        known = (item.value for item in kind)
        raise FilterError(unknown_name(f"a {name}", value, known)) from None


def whole_number(name: str, text: str, most: int | None = None) -> int:
    """The number in the value ``text`` of ``name``.

    :raises FilterError: it is not a whole number from 1 to ``most``.
    """
    # Python refuses to read very long numbers.
    is_number = text.isascii() and text.isdigit() and len(text) <= _DIGITS and int(text) > 0
    if is_number and (most is None or int(text) <= most):
        return int(text)
    bounds = "above zero" if most is None else f"from 1 to {most}"
    raise FilterError(f"{name} must be a whole number {bounds}, not {text[:40]!r}.")


def limit_of(given: Given) -> int:
    """The requested number of rows.

    :raises FilterError: it is not a number, or is out of range.
    """
    text = first_value(given, "limit")
    return whole_number("limit", text, MOST_ROWS) if text else USUAL_ROWS


def _texts(arguments: Mapping[str, Sequence[bytes]]) -> dict[str, list[str]]:
    try:
        return {name: [value.decode() for value in values] for name, values in arguments.items()}
    except UnicodeDecodeError as error:
        raise FilterError("A value is not UTF-8; percent-encode it as UTF-8.") from error


#: Narrows a filter to the letters that an act takes.
Take = Callable[[Filter], Filter]

TEXTS = (
    "task", "exception", "queue", "group", "route", "worker", "release", "tag", "root", "rule", "operation",
    "search", "namespace",
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
    texts: dict[str, Any] = {name: single_value(given, name) for name in TEXTS}
    words: dict[str, Any] = {
        name: word_of(kind, name, value)
        for name, kind in WORDS.items()
        if (value := single_value(given, name))
    }
    ids = tuple(dict.fromkeys(given.get("id", ())))
    if "" in ids:
        # Ignoring it would widen an act to every letter.
        raise FilterError("An id is empty; give it a value, or leave it out.")
    if len(ids) > ID_LIMIT:
        raise FilterError(f"The request has more than {ID_LIMIT:,} ids; use a filter instead.")
    arguments, values = (nonblank(given, name) for name in REPEATED)
    if len(arguments) + len(values) > VALUE_LIMIT:
        raise FilterError(f"The request has more than {VALUE_LIMIT} values; leave some out.")
    return Filter(
        **texts,
        **words,
        ids=ids,
        args=tuple(map(Argument.read, arguments)),
        values=tuple(values),
        states=words_of(State, "state", given),
        since=moment_of("since", single_value(given, "since"), now),
        until=moment_of("until", single_value(given, "until"), now),
        held=choice(given, "held"),
    )


def pairs_in(given: Given, names: Iterable[str] = NAMES) -> Pairs:
    """The filters that are set, as names and values in the order of ``names``; without the empty fields of
    a form."""
    return [(name, value) for name in names for value in nonblank(given, name)]


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
    return wanted.before(store.until_now(take(wanted), now=store.now()))


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
    rows: Sequence[Any] = ()
    #: The cursor of the next page; empty on the last one.
    next: str | None = ""
    #: The names of the filters.
    names: ClassVar[Sequence[str]] = NAMES

    def value(self, name: str) -> str:
        """The value of a field."""
        return first_value(self.given, name)

    def has(self, name: str, value: str) -> bool:
        """Whether a choice is selected."""
        return value in self.given.get(name, ())

    @property
    def pairs(self) -> Pairs:
        """The filters that are set."""
        return pairs_in(self.given, self.names)

    @property
    def is_later(self) -> bool:
        """Whether this is not the first page."""
        return bool(self.value("after"))
