"""People's decisions about groups, and how a letter that arrives changes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import bindparam, select, union, update
from sqlalchemy.engine import Connection

from celery_dlq.base.codec import dump_json
from celery_dlq.base.redact import safe_text
from celery_dlq.model.group import (
    Annotate,
    Arrivals,
    Assign,
    Group,
    GroupAct,
    GroupStatus,
    Ignore,
    Resolve,
    hour_of,
    is_first,
    opened_by,
    within_hour,
)
from celery_dlq.model.states import State
from celery_dlq.store.database.namespaces import is_ours
from celery_dlq.store.database.sealing import sealing_of
from celery_dlq.store.database.tables import group, letter, trend
from celery_dlq.store.groups import aliases
from celery_dlq.store.rows.query import is_of_group, newest_of, one_of
from celery_dlq.store.rows.rows import Row, read_row
from celery_dlq.store.rows.tally import GroupKey

#: Letters of a group, in each state, whose releases are looked at.
RELEASES_OF = 500

_HOUR = timedelta(hours=1)

#: The columns that every decision empties, unless it sets them itself.
UNDECIDED: dict[str, Any] = {
    "status": GroupStatus.OPEN.value, "status_at": None, "status_by": "", "ignored_until": None,
    "ignored_rate": None, "ignored_total": None, "resolved_in": "", "failed_in": None,
    "regressed_at": None,
}  # fmt: skip


_KEY = tuple(group.primary_key.columns)
_NAMED = group.c.fingerprint.in_(bindparam("fingerprints", expanding=True))

# Built once, because each save runs the first query. Few saves run the second one.
_STANDING = select(
    *_KEY, group.c.total_count, group.c.status, aliases.HAS_ALIAS.label("is_merged")
).where(_NAMED)
_WHOLE = select(group).where(_NAMED).order_by(*_KEY)


def review(
    connection: Connection, arrived: Mapping[GroupKey, Arrivals]
) -> tuple[tuple[Group, ...], tuple[Group, ...]]:
    """Open closed groups again if the letters in ``arrived`` require that; returns the new groups, and the
    groups that were opened again. Marks groups that were merged after the aliases of the letters were read.
    The letters have been counted already, which locked the rows of their groups. So only one transaction sees
    a group as new, and no merge is missed."""
    new: list[Group] = []
    regressed: list[Group] = []
    for row in _noteworthy(connection, arrived):
        found, arrivals = group_from(connection, row), arrived[key_of(row)]
        if is_first(found, arrivals):
            new.append(found)
        elif at := _opened_by(connection, row, found, arrivals):
            values = {**UNDECIDED, "regressed_at": at}
            is_it = is_of_group(group, key_of(row))
            connection.execute(update(group).where(is_it).values(values))
            regressed.append(group_from(connection, {**row, **values}))
    return tuple(new), tuple(regressed)


def group_from(connection: Connection, row: Row, now: datetime | None = None) -> Group:
    """The group of a row; open again if its ignoring has ended by ``now``."""
    [row] = sealing_of(connection).shown(group, [row])
    status = GroupStatus(row["status"])
    if now and status is GroupStatus.IGNORED and row["ignored_until"] is not None:
        status = status if now < row["ignored_until"] else GroupStatus.OPEN
    letters = sum(row[name] for name in ("open_count", "resolved_count", "discarded_count"))
    return read_row(Group, row, letter_count=letters, status=status, note=row["note"] or "")


def locked(connection: Connection, fingerprint: str) -> Sequence[Row]:
    """The rows of a group, the largest first, locked until the transaction ends. There are several rows only
    if custom fingerprints collide."""
    its = group.c.fingerprint == safe_text(fingerprint), is_ours(connection, group)
    stored = select(group).where(*its).with_for_update()
    largest = stored.order_by(group.c.total_count.desc(), *group.primary_key.columns)
    return connection.execute(largest).mappings().all()


def decided(
    connection: Connection, row: Row, act: GroupAct, who: str, now: datetime
) -> dict[str, Any]:
    """The columns that ``act`` changes in the row of a group."""
    if isinstance(act, Annotate):
        return {"note": act.note}
    if isinstance(act, Assign):
        return {"owner": act.owner}
    closed = {**UNDECIDED, "status_at": now, "status_by": who}
    if isinstance(act, Ignore):
        total = None if act.count is None else row["total_count"] + act.count
        ends = {"ignored_until": act.until, "ignored_rate": act.rate, "ignored_total": total}
        return {**closed, "status": GroupStatus.IGNORED.value, **ends}
    if isinstance(act, Resolve):
        failed_in = _failed_in(connection, row, act.release) if act.release else None
        fix = {"resolved_in": act.release, "failed_in": failed_in}
        return {**closed, "status": GroupStatus.RESOLVED.value, **fix}
    return closed


def act_detail(act: GroupAct) -> dict[str, object]:
    """The detail of ``act`` in the audit."""
    given = {name: value for name, value in vars(act).items() if value is not None}
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in given.items()
    }


def _noteworthy(connection: Connection, arrived: Mapping[GroupKey, Arrivals]) -> list[Row]:
    """The groups that may be new, or about which a person has decided something."""
    if not arrived:
        return []
    names = {"fingerprints": sorted({fingerprint for fingerprint, *_ in arrived})}
    standing = connection.execute(_STANDING, names).mappings().all()
    merged = {row["fingerprint"] for row in standing if row["is_merged"]}
    if merged:
        aliases.mark(connection, one_of(connection, group.c.fingerprint, sorted(merged)))
    keys = {
        key
        for row in standing
        if (key := key_of(row)) in arrived
        and (row["status"] != GroupStatus.OPEN.value or row["total_count"] == arrived[key].count)
    }
    if not keys:
        return []
    stored = connection.execute(_WHOLE, names).mappings()
    return [row for row in stored if key_of(row) in keys]


def _opened_by(
    connection: Connection, row: Row, found: Group, arrivals: Arrivals
) -> datetime | None:
    failed_in = frozenset(json.loads(row["failed_in"] or "[]"))
    rated = found.ignored_rate is not None
    in_hour = _within_hour(connection, found.fingerprint, arrivals.latest) if rated else 0.0
    return opened_by(found, arrivals, failed_in=failed_in, in_hour=in_hour)


def _within_hour(connection: Connection, fingerprint: str, at: datetime) -> float:
    hour = hour_of(at)
    counted = select(trend.c.hour, trend.c.count).where(
        trend.c.fingerprint == fingerprint, trend.c.hour.in_([hour - _HOUR, hour])
    )
    counts = {moment: int(count) for moment, count in connection.execute(counted)}
    return within_hour(counts.get(hour - _HOUR, 0), counts.get(hour, 0), at)


def _failed_in(connection: Connection, row: Row, fixed_in: str) -> str:
    """The releases of the group's newest letters, except for the one with the fix, as JSON."""
    newest = [
        select(newest_of(row["fingerprint"], state, letter.c.release).limit(RELEASES_OF).subquery())
        for state in State
        if state is not State.PARKED
    ]
    releases = set(connection.scalars(union(*newest)))
    # If no release is known, an old worker looks like a new one.
    return dump_json(sorted(releases - {"", fixed_in}))


def key_of(row: Row) -> GroupKey:
    """The primary key of the row of a group."""
    return row["fingerprint"], row["task"], row["exception_type"]
