"""Reading the rollups: groups by cause, and the store at a glance."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from itertools import pairwise

from sqlalchemy import Column, ColumnElement, and_, case, func, or_, select
from sqlalchemy.engine import Connection

from celery_dlq.errors import FilterError
from celery_dlq.group import NEW_FOR, Group, GroupFilter, GroupStatus, Mark, hour_of
from celery_dlq.redact import safe_text
from celery_dlq.states import OPEN_STATES, Reason, State
from celery_dlq.store import tables
from celery_dlq.store.base import Filter, Stats
from celery_dlq.store.group_mark import GroupMark
from celery_dlq.store.query import (
    GROUP_FIELDS,
    Conditions,
    begins_with,
    group_conditions,
    in_states,
    is_parked,
    one_of,
)
from celery_dlq.store.rows import Row

letter, group, arrival, trend = tables.letter, tables.group, tables.arrival, tables.trend

#: Upper bounds, in seconds, of the ages that open letters are counted by.
AGE_BOUNDS: tuple[float, ...] = (60.0, 3_600.0, 86_400.0, 604_800.0, math.inf)

HOURS = 24

#: The columns of a group that every letter is counted in one of.
COUNTS = ("open_count", "resolved_count", "discarded_count")


def find_groups(
    connection: Connection,
    wanted: Filter,
    which: GroupFilter,
    now: datetime,
    *,
    limit: int,
    after: str | None,
) -> list[Group]:
    """Groups with open letters, most open letters first."""
    _refuse_others(wanted)
    found = [*group_conditions(connection, group, wanted), *_triage_conditions(which, now)]
    if wanted.since:
        found.append(group.c.last_seen_at >= wanted.since)
    if wanted.until:
        found.append(group.c.last_seen_at < wanted.until)
    if after is not None:
        found.append(_behind(GroupMark.read(after)))
    largest = group.c.open_count.desc(), group.c.last_seen_at.desc(), *group.primary_key.columns
    chosen = select(group).where(*found).order_by(*largest).limit(limit)
    return [group_from(row, now) for row in connection.execute(chosen).mappings()]


def _behind(mark: GroupMark) -> ColumnElement[bool]:
    """What comes after ``mark`` in the order of the list."""
    fewer, earlier = group.c.open_count < mark.open_count, group.c.last_seen_at < mark.last_seen_at
    behind = group.c.exception_type > mark.exception_type
    behind = or_(group.c.task > mark.task, and_(group.c.task == mark.task, behind))
    named = group.c.fingerprint == mark.fingerprint
    behind = or_(group.c.fingerprint > mark.fingerprint, and_(named, behind))
    behind = or_(earlier, and_(group.c.last_seen_at == mark.last_seen_at, behind))
    return or_(fewer, and_(group.c.open_count == mark.open_count, behind))


def read_group(connection: Connection, fingerprint: str, now: datetime) -> Group | None:
    """The group, or the largest one where people make fingerprints."""
    stored = select(group).where(group.c.fingerprint == safe_text(fingerprint))
    largest = stored.order_by(group.c.total_count.desc(), *group.primary_key.columns).limit(1)
    row = connection.execute(largest).mappings().one_or_none()
    return None if row is None else group_from(row, now)


def match_groups(connection: Connection, prefix: str, limit: int) -> list[str]:
    """Fingerprints that begin with ``prefix``, in their order."""
    matching = select(group.c.fingerprint).where(begins_with(group.c.fingerprint, prefix))
    ordered = matching.distinct().order_by(group.c.fingerprint).limit(limit)
    return list(connection.execute(ordered).scalars())


def read_trends(
    connection: Connection, fingerprints: Sequence[str], now: datetime, hours: int
) -> dict[str, tuple[int, ...]]:
    """Arrivals in each group by the hour, the hour of ``now`` last."""
    first = hour_of(now) - timedelta(hours=hours - 1)
    counts = {fingerprint: [0] * hours for fingerprint in fingerprints}
    counted = select(trend.c.fingerprint, trend.c.hour, trend.c.count).where(
        one_of(connection, trend.c.fingerprint, sorted(counts)), trend.c.hour >= first
    )
    for fingerprint, hour, number in connection.execute(counted) if counts else ():
        # A worker whose clock is ahead belongs to the hour that is passing.
        counts[fingerprint][min(hours - 1, (hour - first) // timedelta(hours=1))] += int(number)
    return {fingerprint: tuple(found) for fingerprint, found in counts.items()}


def group_from(row: Row, now: datetime | None = None) -> Group:
    """The group of a row; open again when it was to be ignored until a time before ``now``."""
    status = GroupStatus(row["status"])
    if now and status is GroupStatus.IGNORED and row["ignored_until"] is not None:
        status = status if now < row["ignored_until"] else GroupStatus.OPEN
    values = {item.name: row[item.name] for item in fields(Group)}
    return Group(**{**values, "status": status, "note": row["note"] or ""})


def read_stats(connection: Connection, now: datetime) -> Stats:
    """Depth, arrivals, ages."""
    by_state = count_states(connection)
    return Stats(
        depth=sum(by_state[state] for state in OPEN_STATES),
        by_state=by_state,
        by_task=_open_by(connection, group.c.task),
        by_exception=_open_by(connection, group.c.exception_type),
        by_reason=_by_reason(connection),
        arrivals=_arrivals(connection, now),
        oldest_open_at=oldest_open(connection),
        ages=_ages(connection, now),
    )


def _triage_conditions(which: GroupFilter, now: datetime) -> Conditions:
    shown = group.c.open_count > 0
    if which.emptied:
        shown = or_(shown, group.c.status != GroupStatus.OPEN.value)
    found: Conditions = [shown]
    if which.statuses:
        found.append(or_(*(_has_status(status, now) for status in sorted(which.statuses))))
    if which.marks:
        found.append(_has_status(GroupStatus.OPEN, now))
        found.append(or_(*(_bears(mark, now) for mark in sorted(which.marks))))
    if which.owner:
        found.append(group.c.owner == safe_text(which.owner))
    return found


def _has_status(status: GroupStatus, now: datetime) -> ColumnElement[bool]:
    kept = group.c.status == status.value
    over = and_(group.c.status == GroupStatus.IGNORED.value, group.c.ignored_until <= now)
    if status is GroupStatus.OPEN:
        return or_(kept, over)
    return and_(kept, or_(group.c.ignored_until.is_(None), group.c.ignored_until > now))


def _bears(mark: Mark, now: datetime) -> ColumnElement[bool]:
    if mark is Mark.REGRESSED:
        return group.c.regressed_at.is_not(None)
    return and_(group.c.regressed_at.is_(None), group.c.first_seen_at > now - NEW_FOR)


def _refuse_others(wanted: Filter) -> None:
    others = sorted(wanted.given - GROUP_FIELDS - {"since", "until"})
    if others:
        raise FilterError(
            f"Groups are not kept by {' or '.join(others)}; narrow them by task, exception, group, "
            "since or until, or use: celery -A <app> dlq list"
        )


def count_states(connection: Connection) -> dict[State, int]:
    """How many letters are in each state."""
    sums = [func.coalesce(func.sum(group.c[name]), 0) for name in COUNTS]
    opened, resolved, discarded = (
        int(number) for number in connection.execute(select(*sums)).one()
    )
    # Few letters are on their way at a time; the many that wait are what is left.
    moving = _count(connection, [State.CLAIMED, State.REDRIVEN])
    claimed = min(moving, _held(connection))
    return {
        State.DEAD: opened - moving,
        State.CLAIMED: claimed,
        State.REDRIVEN: moving - claimed,
        State.RESOLVED: resolved,
        State.DISCARDED: discarded,
        State.PARKED: _parked(connection),
    }


def _held(connection: Connection) -> int:
    """Letters in claims. A few may have ended already, before the claim: to find these, all that were
    redriven would have to be read."""
    held = select(func.coalesce(func.sum(tables.claim.c.letters), 0))
    return int(connection.execute(held).scalar_one())


def _count(connection: Connection, states: Iterable[State]) -> int:
    counted = select(func.count()).select_from(letter).where(in_states(states))
    return int(connection.execute(counted).scalar_one())


def _parked(connection: Connection) -> int:
    waiting = select(func.count()).select_from(tables.parked).where(is_parked())
    return int(connection.execute(waiting).scalar_one())


def _open_by(connection: Connection, column: Column[str]) -> dict[str, int]:
    total = func.sum(group.c.open_count)
    counted = select(column, total).where(group.c.open_count > 0).group_by(column)
    rows = connection.execute(counted.order_by(total.desc(), column))
    return {name: int(number) for name, number in rows}


def _by_reason(connection: Connection) -> dict[Reason, int]:
    total = func.sum(tables.count.c.open_count)
    counted = select(tables.count.c.reason, total).group_by(tables.count.c.reason)
    rows = connection.execute(counted.having(total > 0).order_by(total.desc()))
    return {Reason(name): int(number) for name, number in rows}


def oldest_open(connection: Connection) -> datetime | None:
    """The first failure among the open letters."""
    # One state after the other, as they are written: the index is in the order of time within one.
    firsts = [
        select(func.min(letter.c.last_failed_at)).where(letter.c.state == state.value)
        for state in (State.DEAD, State.REDRIVEN)
    ]
    moments = [connection.execute(first).scalar_one() for first in firsts]
    return min((at for at in moments if at is not None), default=None)


def _ages(connection: Connection, now: datetime) -> dict[float, int]:
    """Open letters by age. Whole hours are counted already; letters are counted in those hours only
    that a bound falls into."""
    edges = [now - timedelta(seconds=bound) for bound in AGE_BOUNDS[:-1]]
    opened = trend.c.open_count
    before = [case((trend.c.hour < hour_of(edge), opened), else_=0) for edge in edges]
    sums = [func.coalesce(func.sum(part), 0) for part in (opened, *before)]
    total, *whole = (int(number) for number in connection.execute(select(*sums)).one())
    older = [
        hours + _failed_between(connection, hour_of(edge), edge)
        for hours, edge in zip(whole, edges, strict=True)
    ]
    counts = [more - fewer for more, fewer in pairwise([total, *older, 0])]
    return dict(zip(AGE_BOUNDS, counts, strict=True))


def _failed_between(connection: Connection, first: datetime, last: datetime) -> int:
    at = letter.c.last_failed_at
    counted = select(func.count()).where(in_states(OPEN_STATES), at >= first, at <= last)
    return int(connection.execute(counted).scalar_one())


def _arrivals(connection: Connection, now: datetime) -> tuple[int, ...]:
    """Arrivals by hour, counted back from ``now``, oldest hour first."""
    hours = [0] * HOURS
    per_minute = (
        select(arrival.c.minute, func.sum(arrival.c.count))
        .where(arrival.c.minute > now - timedelta(hours=HOURS))
        .group_by(arrival.c.minute)
    )
    for minute, number in connection.execute(per_minute):
        # A worker whose clock is ahead belongs to the hour that is passing.
        ago = max(0, (now - minute) // timedelta(hours=1))
        hours[HOURS - 1 - ago] += int(number)
    return tuple(hours)
