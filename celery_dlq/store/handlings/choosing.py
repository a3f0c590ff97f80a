"""Chooses the dead letters that a handler gets."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Select, and_, case, func, not_, or_, select
from sqlalchemy.engine import Connection

from celery_dlq.model.handling import LIVE, HandlingState
from celery_dlq.model.states import State
from celery_dlq.store.base import HandlerScope
from celery_dlq.store.database import tables
from celery_dlq.store.rows.query import conditions, count_rows, in_states
from celery_dlq.store.rows.rows import Row

letter, group, handling = tables.letter, tables.group, tables.handling

_HOUR = timedelta(hours=1)

_LIVE = sorted(state.value for state in LIVE)

#: The name of the verdict with which a handler passes a letter on.
_LEFT = "leave"


def chosen(
    connection: Connection,
    scope: HandlerScope,
    earlier: Sequence[HandlerScope],
    *,
    since: datetime | None,
    limit: int,
) -> Sequence[Row]:
    """The next letters of a handler, oldest failure first: those of its filter that are dead, that it has not
    had with this failure, and that no handler of ``earlier`` has to have first.

    :param since: only letters that failed then or later.
    """
    found = [in_states([State.DEAD]), *conditions(connection, scope.where), ~_was_handled(scope)]
    found += [~_belongs_to(connection, other) for other in earlier]
    if scope.once_per_group:
        found.append(~_group_was_handled(scope))
    if since is not None:
        found.append(letter.c.last_failed_at >= since)
    rows = connection.execute(_oldest(found, limit)).mappings().all()
    return _one_of_each_group(rows) if scope.once_per_group else rows


def room(connection: Connection, name: str, *, per_hour: int, most: int, now: datetime) -> int:
    """How many more letters the handler may get now: it is called ``per_hour`` times within an hour, and
    ``most`` letters wait for it at a time."""
    calls = handling.c.tries + case((handling.c.state == HandlingState.QUEUED.value, 1), else_=0)
    lately = and_(handling.c.handler == name, handling.c.queued_at > now - _HOUR)
    used = connection.execute(select(func.coalesce(func.sum(calls), 0)).where(lately)).scalar_one()
    waiting = handling.c.state.in_(_LIVE), handling.c.handler == name
    return max(0, min(per_hour - int(used), most - count_rows(connection, handling, *waiting)))


def _oldest(found: Sequence[ColumnElement[bool]], limit: int) -> Select[tuple[object, ...]]:
    columns = (letter.c.task_id, letter.c.fingerprint, letter.c.last_failed_at)
    in_order = letter.c.last_failed_at, letter.c.id
    return select(*columns).where(*found).order_by(*in_order).limit(limit)


def _of(scope: HandlerScope) -> ColumnElement[bool]:
    return and_(handling.c.handler == scope.name, handling.c.version == scope.version)


def _of_this_failure(scope: HandlerScope) -> ColumnElement[bool]:
    same = handling.c.task_id == letter.c.task_id, handling.c.failed_at == letter.c.last_failed_at
    return and_(*same, _of(scope))


def _was_handled(scope: HandlerScope) -> ColumnElement[bool]:
    return select(1).where(_of_this_failure(scope)).correlate(letter).exists()


def _belongs_to(connection: Connection, other: HandlerScope) -> ColumnElement[bool]:
    """Whether an earlier handler has to have the letter first: its filter matches, and it has not left it."""
    left = and_(_of_this_failure(other), handling.c.verdict == _LEFT)
    is_left = select(1).where(left).correlate(letter).exists()
    return and_(*conditions(connection, other.where), not_(is_left))


def _group_was_handled(scope: HandlerScope) -> ColumnElement[bool]:
    """Whether the handler has, or had, a letter of the same group. What it did before the group failed again
    does not count."""
    regressed = (
        select(func.max(group.c.regressed_at))
        .where(group.c.fingerprint == letter.c.fingerprint)
        .correlate(letter)
        .scalar_subquery()
    )
    done = and_(
        handling.c.state == HandlingState.DONE.value,
        or_(regressed.is_(None), handling.c.queued_at >= regressed),
    )
    same = handling.c.fingerprint == letter.c.fingerprint
    had = and_(same, _of(scope), or_(handling.c.state.in_(_LIVE), done))
    return select(1).where(had).correlate(letter).exists()


def _one_of_each_group(rows: Sequence[Row]) -> Sequence[Row]:
    first: dict[str, Row] = {}
    for row in rows:
        first.setdefault(row["fingerprint"], row)
    return list(first.values())
