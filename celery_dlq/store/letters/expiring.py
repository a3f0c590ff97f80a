"""Finds closed letters that have been kept long enough.

A search goes through the closed letters in the order of their last failure, in steps of a few thousand. So no
statement takes long, whichever letters are kept.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import reduce
from typing import Any

from sqlalchemy import ColumnElement, Subquery, and_, case, false, func, literal, or_, select, true
from sqlalchemy.engine import Connection

from celery_dlq.model.states import CLOSED_STATES, State
from celery_dlq.store.base import Expired, Expiry, LetterKey
from celery_dlq.store.database.dialects import dialect_of
from celery_dlq.store.database.tables import content, letter
from celery_dlq.store.database.transactions import StoreRole, reads
from celery_dlq.store.keeping import CLOSED_AGES, DAY, WEEK, Kept, Pile
from celery_dlq.store.rows.query import OF_LETTER, conditions, in_states

_STATES = sorted(CLOSED_STATES)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)

#: The large values of a letter.
_LARGE = (
    content.c.body, content.c.headers, content.c.args, content.c.kwargs, content.c.traceback,
    content.c.log,
)  # fmt: skip


@dataclass(frozen=True)
class _Place:
    """A place among the closed letters: state by state, in the order of the last failure."""

    state: State
    moment: datetime
    id: int

    @classmethod
    def read(cls, cursor: str) -> _Place:
        """The inverse of :attr:`cursor`."""
        state, micros, number = cursor.split(".")
        return cls(State(state), _EPOCH + int(micros) * _MICROSECOND, int(number))

    @property
    def cursor(self) -> str:
        """The text by which the next step finds the place."""
        return f"{self.state.value}.{(self.moment - _EPOCH) // _MICROSECOND}.{self.id}"

    @property
    def is_before(self) -> ColumnElement[bool]:
        """Whether the place is before a letter of its state. The first half alone bounds the index."""
        at = letter.c.last_failed_at
        return and_(at >= self.moment, or_(at > self.moment, letter.c.id > self.id))

    @property
    def is_reached(self) -> ColumnElement[bool]:
        """The opposite, written in the same way."""
        at = letter.c.last_failed_at
        return and_(at <= self.moment, or_(at < self.moment, letter.c.id <= self.id))


class Expiring(StoreRole):
    """Finds the letters that have expired."""

    @reads
    def find(
        self, connection: Connection, expiries: Sequence[Expiry], after: str | None, step: int
    ) -> Expired:
        """The letters that have expired, among the next ``step`` closed ones. The first of ``expiries`` that
        matches a letter counts for it.

        :param after: ``next`` of the previous step.
        """
        latest = max((one.before for one in expiries if one.before is not None), default=None)
        if latest is None:
            return Expired(keys=(), next=None)
        part = _next_part(connection, after, step, letter.c.last_failed_at < latest)
        if part is None:
            return Expired(keys=(), next=None)
        these, place = part
        has_expired = _by_expiry(
            connection,
            expiries,
            lambda one: false() if one.before is None else letter.c.closed_at < one.before,
            otherwise=false(),
        )
        columns = letter.c.task_id, letter.c.last_failed_at, letter.c.closed_at
        found = (
            select(*columns)
            .where(these, has_expired)
            .order_by(letter.c.last_failed_at, letter.c.id)
        )
        keys = (LetterKey(**row) for row in connection.execute(found).mappings())
        return Expired(keys=tuple(keys), next=place.cursor)

    @reads
    def count(
        self,
        connection: Connection,
        expiries: Sequence[Expiry],
        after: str | None,
        step: int,
        *,
        now: datetime,
    ) -> tuple[dict[int, Kept], str | None]:
        """The next ``step`` closed letters by the index of the expiry that counts for them, or -1; and
        ``after`` for the next step, or None at the end.

        :param now: the moment at which the letters have these ages.
        """
        part = _next_part(connection, after, step, true())
        if part is None:
            return {}, None
        these, place = part
        numbers = iter(range(len(expiries)))
        number = _by_expiry(
            connection, expiries, lambda _: literal(next(numbers)), otherwise=literal(-1)
        )
        each = (
            select(number.label("number"), letter.c.closed_at, _size(connection).label("size"))
            .join(content, OF_LETTER)
            .where(these)
            .subquery()
        )
        return _added(connection, each, expiries, now), place.cursor


def _added(
    connection: Connection, each: Subquery, expiries: Sequence[Expiry], now: datetime
) -> dict[int, Kept]:
    """The letters of ``each``, added up by number."""
    place = _place_of_age(each.c.closed_at, now).label("place")
    aged = select(each.c.number, each.c.closed_at, each.c.size, place).subquery()
    expired = _expire_within(aged, expiries, timedelta())
    added = select(
        aged.c.number,
        aged.c.place,
        func.count().label("letters"),
        func.sum(aged.c.size).label("size"),
        func.sum(expired).label("expired"),
        func.sum(expired * aged.c.size).label("expired_size"),
        func.sum(_expire_within(aged, expiries, DAY)).label("by_day"),
        func.sum(_expire_within(aged, expiries, WEEK)).label("by_week"),
        func.min(aged.c.closed_at).label("oldest_closed_at"),
    ).group_by(aged.c.number, aged.c.place)
    found: dict[int, Kept] = {}
    for row in connection.execute(added):
        found[row.number] = found.get(row.number, Kept.none()) + _kept(row)
    return found


def _size(connection: Connection) -> ColumnElement[int]:
    sizes = [dialect_of(connection).byte_count(column) for column in _LARGE]
    return reduce(operator.add, sizes)


def _place_of_age(closed_at: ColumnElement[datetime], now: datetime) -> ColumnElement[int]:
    """The place of a letter's age in :data:`CLOSED_AGES`."""
    *bounds, _rest = CLOSED_AGES
    younger = [
        (closed_at > now - timedelta(seconds=bound), literal(at)) for at, bound in enumerate(bounds)
    ]
    return case(*younger, else_=literal(len(bounds)))


def _expire_within(
    each: Subquery, expiries: Sequence[Expiry], ahead: timedelta
) -> ColumnElement[int]:
    """1 for a letter that expires within this time, or has expired; otherwise 0."""
    known = [
        and_(each.c.number == number, each.c.closed_at < one.before + ahead)
        for number, one in enumerate(expiries)
        if one.before is not None
    ]
    return case((or_(false(), *known), literal(1)), else_=literal(0))


def _next_part(
    connection: Connection, after: str | None, step: int, bound: ColumnElement[bool]
) -> tuple[ColumnElement[bool], _Place] | None:
    """The condition for the next closed letters that meet ``bound``, and the place of the last one."""
    for these in _rest(after):
        columns = letter.c.state, letter.c.last_failed_at, letter.c.id
        in_order = (
            select(*columns)
            .where(these, bound)
            .order_by(letter.c.last_failed_at, letter.c.id)
            .limit(step)
            .subquery()
        )
        last = (
            select(in_order)
            .order_by(in_order.c.last_failed_at.desc(), in_order.c.id.desc())
            .limit(1)
        )
        row = connection.execute(last).one_or_none()
        if row is not None:
            place = _Place(State(row.state), row.last_failed_at, row.id)
            return and_(these, bound, place.is_reached), place
    return None


def _rest(after: str | None) -> Iterator[ColumnElement[bool]]:
    """The conditions for the closed letters that are left, one for each state."""
    place = None if after is None else _Place.read(after)
    for state in _STATES:
        if place is None or state > place.state:
            yield in_states([state])
        elif state == place.state:
            yield and_(in_states([state]), place.is_before)


def _by_expiry(
    connection: Connection, expiries: Sequence[Expiry], value: Any, *, otherwise: ColumnElement[Any]
) -> ColumnElement[Any]:
    """The value of the first expiry that matches a letter."""
    cases = [(_matches(connection, one), value(one)) for one in expiries]
    return case(*cases, else_=otherwise) if cases else otherwise


def _matches(connection: Connection, expiry: Expiry) -> ColumnElement[bool]:
    states = expiry.where.states or CLOSED_STATES
    return and_(in_states(states), *conditions(connection, expiry.where))


def _kept(row: Any) -> Kept:
    expired = int(row.expired)
    return Kept(
        ages={
            **Kept.none().ages,
            CLOSED_AGES[row.place]: Pile(letters=row.letters, size=int(row.size)),
        },
        expired=Pile(letters=expired, size=int(row.expired_size)),
        within_day=int(row.by_day) - expired,
        within_week=int(row.by_week) - expired,
        oldest_closed_at=row.oldest_closed_at,
    )
