"""Pages of a list of letters: the newest failure first, letters and parked retries in one order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, or_, select, union_all
from sqlalchemy.engine import Connection

from celery_dlq.errors import FilterError
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter, Page
from celery_dlq.store.database import tables
from celery_dlq.store.rows.query import (
    IS_CLAIMED,
    OF_LETTER,
    Conditions,
    conditions,
    in_states,
    is_parked,
)
from celery_dlq.store.rows.rows import bare, letter_from, parked_letter

letter, content, parked = tables.letter, tables.content, tables.parked

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
    found = {row["id"]: letter_from(row) for row in connection.execute(listed).mappings()}
    waiting = [-number for number in numbers if number < 0]
    if waiting:
        rows = connection.execute(select(parked).where(parked.c.id.in_(waiting))).mappings()
        found |= {-row["id"]: bare(parked_letter(row)) for row in rows}
    return found


def by_state(connection: Connection, wanted: Filter) -> Places:
    """Where the letters of ``wanted`` are: for each state the table, and all conditions on it. Indexes are
    in the order of time only within a state."""
    states = sorted(wanted.wanted_states)
    tables_of = {state: parked if state is State.PARKED else letter for state in states}
    # Some conditions depend on what the store has. They are looked up once for all states.
    found = {table: conditions(connection, wanted, table) for table in set(tables_of.values())}
    return [
        (table, [is_parked() if table is parked else in_states([state]), *found[table]])
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


def end_of_step(connection: Connection, places: Places, start: Mark | None) -> Mark | None:
    """The last letter of the next step; None if fewer letters are left."""
    ends = newest(connection, places, start, limit=1, skip=STEP - 1)
    return ends[0] if ends else None


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
