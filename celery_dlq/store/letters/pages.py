"""Pages of a list of letters: the newest failure first, letters and parked retries in one order. For what
no index has, letters are checked one by one, in steps: that is a search."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, or_, select, union_all
from sqlalchemy.engine import Connection

from celery_dlq.errors import FilterError
from celery_dlq.model.fingerprint import fixed_parts, variable_parts
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.states import State
from celery_dlq.model.terms import MESSAGE_LIMIT, hash_of_value
from celery_dlq.store.base import Filter, Page
from celery_dlq.store.database.namespaces import seen
from celery_dlq.store.database.sealing import read_shown, sealing_of
from celery_dlq.store.database.tables import content, group, letter, parked
from celery_dlq.store.rows.query import (
    IS_CLAIMED,
    IS_PARKED,
    OF_LETTER,
    Conditions,
    conditions,
    group_conditions,
    in_states,
    newest_of,
    one_of,
)
from celery_dlq.store.rows.rows import bare, letter_from, shown_parked
from celery_dlq.store.rows.terms import newest_with, newest_with_all

# A list does not need the other columns, which are large; WHOLE has them.
_LISTED = select(letter, content.c.args, content.c.kwargs, IS_CLAIMED).join(content, OF_LETTER)

#: Letters that are searched before the next look at the clock. So no statement takes so long that the
#: database ends it, however many letters there are, even if each is read from a disk.
STEP = 500

#: The largest number that every database takes as an id.
_LARGEST_NUMBER = 2**62

#: Tables, each with the conditions on its rows.
Places = Sequence[tuple[Table, Conditions]]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Mark:
    """A place in the order of the lists: the newest failure first."""

    #: As :func:`_number` gives it.
    number: int
    moment: datetime

    @classmethod
    def read(cls, cursor: str) -> Mark:
        """The inverse of :attr:`cursor`.

        :raises FilterError: it is not a cursor.
        """
        try:
            micros, number = (int(part) for part in cursor.split("."))
            # Larger numbers fit into no database.
            number = max(-_LARGEST_NUMBER, min(number, _LARGEST_NUMBER))
            return cls(number, _EPOCH + micros * _MICROSECOND)
        except (ValueError, OverflowError):
            raise FilterError(
                f"{cursor[:80]!r} is not a cursor; start again without --after."
            ) from None

    @property
    def cursor(self) -> str:
        """The text with which a caller asks for the next page."""
        return f"{(self.moment - _EPOCH) // _MICROSECOND}.{self.number}"


def page_of(connection: Connection, marks: Sequence[Mark], limit: int) -> Page:
    """The first ``limit`` letters of ``marks``; there is a next page when there are more."""
    letters = _listed(connection, [mark.number for mark in marks[:limit]])
    return Page(
        letters=tuple(letters[mark.number] for mark in marks[:limit] if mark.number in letters),
        next=marks[limit - 1].cursor if len(marks) > limit > 0 else None,
    )


def _listed(connection: Connection, numbers: Sequence[int]) -> dict[int, DeadLetter]:
    """The letters of ``numbers``, which :func:`_number` gives."""
    listed = _LISTED.where(letter.c.id.in_([number for number in numbers if number > 0]))
    found = {row["id"]: letter_from(row) for row in read_shown(connection, letter, listed)}
    waiting = [-number for number in numbers if number < 0]
    if waiting:
        rows = connection.execute(select(parked).where(parked.c.id.in_(waiting))).mappings()
        found |= {-row["id"]: bare(shown_parked(connection, row)) for row in rows}
    return found


def by_state(connection: Connection, wanted: Filter) -> Places:
    """Where the letters of ``wanted`` are: for each namespace and state the table, and all conditions on it.
    Indexes are in the order of time only within a state of a namespace."""
    names = seen(connection)
    if wanted.namespace is None and len(names) > 1:
        of_each = (by_state(connection, replace(wanted, namespace=name)) for name in names)
        return [place for places in of_each for place in places]
    states = sorted(wanted.wanted_states)
    tables_of = {state: parked if state is State.PARKED else letter for state in states}
    # Some conditions depend on what the store has. They are looked up once for all states.
    found = {table: conditions(connection, wanted, table) for table in set(tables_of.values())}
    return [
        (table, [IS_PARKED if table is parked else in_states([state]), *found[table]])
        for state, table in tables_of.items()
    ]


def newest(
    connection: Connection,
    places: Places,
    after: Mark | None,
    *,
    down_to: Mark | None = None,
    limit: int,
    skip: int = 0,
) -> list[Mark]:
    """The newest letters after one mark, down to and including another one, without the first ``skip``. There
    is one limited query for each place. Only the keys are read, because a planner without statistics of the
    table would join it to them in the wrong order."""
    parts: list[Select[Any]] = []
    for table, conditions_of in places:
        found = [*conditions_of, *_inside(table, after, down_to)]
        part = select(_number(table).label("number"), table.c.last_failed_at).where(*found)
        order = table.c.last_failed_at.desc(), _number(table).desc()
        parts.append(select(part.order_by(*order).limit(skip + limit).subquery()))
    keys = union_all(*parts).subquery()
    ordered = select(keys).order_by(keys.c.last_failed_at.desc(), keys.c.number.desc())
    return [Mark(*row) for row in connection.execute(ordered.limit(limit).offset(skip))]


def _number(table: Table) -> ColumnElement[int]:
    """Orders rows of the same time: the id, below zero for parked retries."""
    return -parked.c.id if table is parked else letter.c.id


def _inside(table: Table, after: Mark | None, down_to: Mark | None) -> Conditions:
    # Written so that the first half alone bounds the index; MySQL ignores row comparisons there.
    at, number, found = table.c.last_failed_at, _number(table), list[ColumnElement[bool]]()
    if after:
        found += [at <= after.moment, or_(at < after.moment, number < after.number)]
    if down_to:
        found += [at >= down_to.moment, or_(at > down_to.moment, number >= down_to.number)]
    return found


#: Seconds of a search before indexes are asked for letters from further back. If they know some, the search
#: stops there, because these are probably the letters that a person looks for.
QUICK_S = 0.15


def search(
    connection: Connection,
    wanted: Filter,
    steps: Places,
    start: Mark | None,
    *,
    limit: int,
    patience_s: float | None,
    monotonic: Callable[[], float],
) -> Page:
    """The page of ``wanted`` after ``start``.

    :param steps: where the letters are that are checked; an index has them in their order.
    :param limit: letters in a page.
    :param patience_s: see :meth:`~celery_dlq.store.letters.records.Letters.find`.
    """
    places = by_state(connection, wanted)
    until_s = math.inf if patience_s is None else patience_s
    further_from_s = math.inf if patience_s is None else min(patience_s, QUICK_S)
    began, found = monotonic(), list[Mark]()
    while True:
        # The last letter of the next step; none if fewer letters are left.
        end = next(iter(newest(connection, steps, start, limit=1, skip=STEP - 1)), None)
        left = limit + 1 - len(found)
        found += newest(connection, places, start, down_to=end, limit=left)
        if end is None or len(found) > limit:
            return page_of(connection, found, limit)
        taken_s, further = monotonic() - began, tuple[DeadLetter, ...]()
        if taken_s >= further_from_s:
            further, further_from_s = _further(connection, wanted, places, end, limit), math.inf
        if further or taken_s >= until_s:
            page = page_of(connection, found, limit)
            return replace(page, next=end.cursor, searched_to=end.moment, further=further)
        start = end


def _further(
    connection: Connection, wanted: Filter, places: Places, end: Mark, limit: int
) -> tuple[DeadLetter, ...]:
    """Letters after ``end`` that match, as far as indexes know them."""
    ids = sorted(likely(connection, wanted, limit))
    is_likely = one_of(connection, letter.c.id, ids)
    these = [(table, [*found, is_likely]) for table, found in places if table is letter and ids]
    marks = newest(connection, these, end, limit=limit) if these else []
    return page_of(connection, marks, limit).letters


#: Groups whose letters are taken: of those that contain the text, the ones that failed last.
_GROUPS = 10

#: Groups that are read to find them. Their words are compared here, because a database cannot tell the words
#: of a message from its variable parts.
_READ = 1_000


def likely(connection: Connection, wanted: Filter, limit: int) -> set[int]:
    """The ids of letters that probably match ``wanted``; few of them may not.

    :param limit: the most letters of one group and one state.
    """
    if not wanted.search:
        return newest_with_all(connection, wanted)
    texts = {wanted.search.strip(), *variable_parts(wanted.search)[:MESSAGE_LIMIT]}
    key = sealing_of(connection).hash_key
    found = {
        number
        for text in texts
        for number in newest_with(connection, hash_of_value(text, key), None)
    }
    parts = list(_of_groups(connection, wanted, wanted.search, limit))
    if parts:
        found.update(connection.scalars(union_all(*parts)))
    return found


def _of_groups(
    connection: Connection, wanted: Filter, text: str, limit: int
) -> Iterator[Select[Any]]:
    """The newest letters of each group that contains ``text``, by state."""
    for fingerprint in _groups_with(connection, wanted, text):
        for state in sorted(wanted.wanted_states - {State.PARKED}):
            yield select(newest_of(fingerprint, state, letter.c.id).limit(limit).subquery().c.id)


def _groups_with(connection: Connection, wanted: Filter, text: str) -> list[str]:
    named = (group.c.task, group.c.exception_type, group.c.message)
    contains = (column.icontains(text, autoescape=True) for column in named)
    rows = connection.execute(
        select(group.c.fingerprint, *named)
        .where(*group_conditions(connection, group, wanted), or_(*contains))
        .order_by(group.c.last_seen_at.desc())
        .limit(_READ)
    )
    lowered = text.lower()
    found = dict.fromkeys(
        row.fingerprint
        for row in rows
        for words in (row.task, row.exception_type, *fixed_parts(row.message))
        if lowered in words.lower()
    )
    return list(found)[:_GROUPS]
