"""Finds closed letters that have been kept long enough.

A search goes through the closed letters in the order of their last failure, in steps of a few thousand. So no
statement takes long, whichever letters are kept.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import reduce
from typing import Any

from sqlalchemy import ColumnElement, Subquery, and_, case, false, func, literal, or_, select, true
from sqlalchemy.engine import Connection

from celery_dlq.model.states import CLOSED_STATES, State
from celery_dlq.store.base import Expiry, LetterKey, Rows
from celery_dlq.store.database.dialects import dialect_of
from celery_dlq.store.database.namespaces import is_ours
from celery_dlq.store.database.tables import content, letter
from celery_dlq.store.database.transactions import StoreRole, reads
from celery_dlq.store.keeping import CLOSED_AGES, DAY, WEEK, Kept, Pile
from celery_dlq.store.letters.pages import Mark
from celery_dlq.store.rows.query import OF_LETTER, conditions, follows, in_states

_STATES = sorted(CLOSED_STATES)
_IN_ORDER = letter.c.last_failed_at, letter.c.id

#: The large values of a letter.
_LARGE = (
    content.c.body, content.c.headers, content.c.args, content.c.kwargs, content.c.traceback,
    content.c.log,
)  # fmt: skip


class Expiring(StoreRole):
    """Finds the letters that have expired."""

    @reads
    def find(self, expiries: Sequence[Expiry], after: str | None, step: int) -> Rows[LetterKey]:
        """The letters that have expired, among the next ``step`` closed letters. The first of ``expiries``
        that matches a letter counts.

        :param after: ``next`` of the previous step.
        """
        latest = max((one.before for one in expiries if one.before is not None), default=None)
        is_old = false() if latest is None else letter.c.last_failed_at < latest
        part = None if latest is None else _next_part(self.connection, after, step, is_old)
        if part is None:
            return Rows(rows=(), next=None)
        these, end = part
        has_expired = _by_expiry(
            self.connection,
            expiries,
            lambda one: false() if one.before is None else letter.c.closed_at < one.before,
            otherwise=false(),
        )
        columns = letter.c.task_id, letter.c.last_failed_at, letter.c.closed_at
        found = select(*columns).where(these, has_expired).order_by(*_IN_ORDER)
        keys = (LetterKey(**row) for row in self.connection.execute(found).mappings())
        return Rows(rows=tuple(keys), next=end)

    @reads
    def count(
        self, expiries: Sequence[Expiry], after: str | None, step: int, *, now: datetime
    ) -> tuple[dict[int, Kept], str | None]:
        """The next ``step`` closed letters by the index of the expiry that counts for them, or -1; and
        ``after`` for the next step, or None at the end.

        :param now: the moment at which the letters have these ages.
        """
        part = _next_part(self.connection, after, step, true())
        if part is None:
            return {}, None
        these, end = part
        numbers = iter(range(len(expiries)))
        number = _by_expiry(
            self.connection, expiries, lambda _: literal(next(numbers)), otherwise=literal(-1)
        )
        size = reduce(operator.add, map(dialect_of(self.connection).byte_count, _LARGE))
        columns = number.label("number"), letter.c.closed_at, size.label("size")
        each = select(*columns).join(content, OF_LETTER).where(these).subquery()
        return _added(self.connection, each, expiries, now), end


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
) -> tuple[ColumnElement[bool], str] | None:
    """The condition for the next closed letters that meet ``bound``, and the cursor of the last one."""
    (at, number), bound = _IN_ORDER, and_(is_ours(connection, letter), bound)
    for state, these in _rest(after):
        in_order = (
            select(at, number).where(these, bound).order_by(at, number).limit(step).subquery()
        )
        last = select(in_order).order_by(in_order.c.last_failed_at.desc(), in_order.c.id.desc())
        row = connection.execute(last.limit(1)).one_or_none()
        if row is not None:
            end = Mark(row.id, row.last_failed_at)
            # The first half alone bounds the index.
            is_reached = and_(at <= end.moment, or_(at < end.moment, number <= end.number))
            return and_(these, bound, is_reached), f"{state.value}.{end.cursor}"
    return None


def _rest(after: str | None) -> Iterator[tuple[State, ColumnElement[bool]]]:
    """The states whose closed letters come after the cursor, each with the condition for these letters."""
    reached, _, place = (after or "").partition(".")
    for state in _STATES:
        if state.value > reached:
            yield state, in_states([state])
        elif state.value == reached:
            mark = Mark.read(place)
            yield state, and_(in_states([state]), follows(_IN_ORDER, (mark.moment, mark.number)))


def _by_expiry(
    connection: Connection, expiries: Sequence[Expiry], value: Any, *, otherwise: ColumnElement[Any]
) -> ColumnElement[Any]:
    """The value of the first expiry that matches a letter."""
    cases = [
        (
            and_(in_states(one.where.states or CLOSED_STATES), *conditions(connection, one.where)),
            value(one),
        )
        for one in expiries
    ]
    return case(*cases, else_=otherwise) if cases else otherwise


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
