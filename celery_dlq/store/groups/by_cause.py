"""Groups of letters by cause: listed, read, and triaged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, ScalarSelect, and_, func, or_, select, update
from sqlalchemy.engine import Connection

from celery_dlq.base.redact import clip, safe_text
from celery_dlq.errors import FilterError, UnknownGroup
from celery_dlq.model.group import (
    ANY_GROUP,
    NEW_FOR,
    Alias,
    Group,
    GroupAct,
    GroupFilter,
    GroupMark,
    GroupStatus,
    Mark,
    Merge,
    Split,
    hour_of,
)
from celery_dlq.model.states import State, Verdict
from celery_dlq.store.base import Filter
from celery_dlq.store.database.tables import group, letter, trend
from celery_dlq.store.database.transactions import StoreRole, reads, writes
from celery_dlq.store.groups import aliases
from celery_dlq.store.groups.triage import act_detail, decided, group_from, is_group, locked
from celery_dlq.store.rows import audit
from celery_dlq.store.rows.query import (
    GROUP_FIELDS,
    Conditions,
    group_conditions,
    one_of,
)
from celery_dlq.store.rows.rows import fit
from celery_dlq.store.rows.tally import SAMPLE_LIMIT


def _newest_in(state: State) -> ScalarSelect[int]:
    """The id of a group's newest letter in a state, which an index has in the order of time."""
    found = select(letter.c.id).where(
        letter.c.fingerprint == group.c.fingerprint, letter.c.state == state.value
    )
    newest_first = found.order_by(letter.c.last_failed_at.desc(), letter.c.id.desc())
    return newest_first.limit(1).correlate(group).scalar_subquery()


#: The ids of the newest open letters of groups, or of closed ones if none is open.
_NEWEST = select(
    func.coalesce(*map(_newest_in, (State.DEAD, State.REDRIVEN, State.RESOLVED, State.DISCARDED)))
).select_from(group)

_KEY = letter.c.fingerprint, letter.c.task, letter.c.exception_type


class Groups(StoreRole):
    """Groups of letters by the cause of their failure, and what people decide about them."""

    @reads
    def find(
        self,
        connection: Connection,
        wanted: Filter,
        *,
        now: datetime,
        limit: int = 50,
        after: str | None = None,
        which: GroupFilter = ANY_GROUP,
    ) -> list[Group]:
        """Groups with open letters, most open letters first. A group whose ignoring has ended by ``now`` is
        open.

        :param wanted: may narrow by task, exception, group, route, since and until (the last two are about
            the last failure in the group, as is the route).
        :param after: the cursor of the :class:`~celery_dlq.model.group.GroupMark` of the last
            group of the previous page.
        :raises FilterError: ``wanted`` narrows by another field, or ``after`` is not a cursor.
        """
        _refuse_others(wanted)
        found = [*group_conditions(connection, group, wanted), *_triage_conditions(which, now)]
        if wanted.route:
            found.append(group.c.route == safe_text(wanted.route))
        if wanted.since:
            found.append(group.c.last_seen_at >= wanted.since)
        if wanted.until:
            found.append(group.c.last_seen_at < wanted.until)
        if after is not None:
            found.append(_behind(GroupMark.read(after)))
        largest = (
            group.c.open_count.desc(), group.c.last_seen_at.desc(), *group.primary_key.columns
        )  # fmt: skip
        chosen = select(group).where(*found).order_by(*largest).limit(limit)
        rows = connection.execute(chosen).mappings().all()
        return _with_newest(connection, [group_from(row, now) for row in rows])

    @reads
    def get(self, connection: Connection, fingerprint: str, *, now: datetime) -> Group | None:
        """The group with this fingerprint, or into which it was merged; or None. If it has letters of several
        tasks or exception types, all are counted, under the largest."""
        name = safe_text(fingerprint)
        name = aliases.homes(connection, [name]).get(name) or name
        stored = select(group).where(group.c.fingerprint == name)
        largest = stored.order_by(group.c.total_count.desc(), *group.primary_key.columns)
        rows = connection.execute(largest).mappings().all()
        return _summed(_with_newest(connection, [group_from(row, now) for row in rows]))

    @reads
    def merged(self, connection: Connection, fingerprint: str) -> list[Alias]:
        """The groups that were merged into this one, and the place whose groups were folded into it."""
        return aliases.aliases_of(connection, fingerprint)

    @reads
    def match(self, connection: Connection, prefix: str, limit: int = 10) -> list[str]:
        """Up to ``limit`` fingerprints that begin with ``prefix``, in their order. If a group was merged into
        another one, that one takes its place."""
        return aliases.matching(connection, prefix, limit)

    @reads
    def trends(
        self, connection: Connection, fingerprints: Sequence[str], *, now: datetime, hours: int = 24
    ) -> Mapping[str, tuple[int, ...]]:
        """Arrivals in each group by the hour, the oldest first; the last is the hour of ``now``."""
        first = hour_of(now) - timedelta(hours=hours - 1)
        counts = {fingerprint: [0] * hours for fingerprint in fingerprints}
        counted = select(trend.c.fingerprint, trend.c.hour, trend.c.count).where(
            one_of(connection, trend.c.fingerprint, sorted(counts)), trend.c.hour >= first
        )
        for fingerprint, hour, number in connection.execute(counted) if counts else ():
            # Failures of a worker whose clock is ahead count for the current hour.
            counts[fingerprint][min(hours - 1, (hour - first) // timedelta(hours=1))] += int(number)
        return {fingerprint: tuple(found) for fingerprint, found in counts.items()}

    @writes
    def triage(
        self, connection: Connection, fingerprint: str, act: GroupAct, *, who: str, now: datetime
    ) -> Group:
        """Do ``act`` with a group; audited.

        :raises UnknownGroup: no group has this fingerprint.
        :raises TriageError: the groups cannot be merged, or not be split.
        """
        rows = locked(connection, fingerprint)
        if not rows:
            raise UnknownGroup
        if isinstance(act, Merge):
            act = replace(act, into=aliases.one_group(connection, act.into))
            aliases.merge(connection, fingerprint, act, who, now)
        elif isinstance(act, Split):
            aliases.split(connection, fingerprint, act)
        else:
            for row in rows:
                values = fit(group, decided(connection, row, act, who, now))
                connection.execute(update(group).where(is_group(row)).values(values))
        audit.write_audit(
            connection, who=who, act=act.name, count=sum(row["open_count"] for row in rows),
            detail={"group": fingerprint, **act_detail(act)}, at=now,
        )  # fmt: skip
        return group_from(locked(connection, fingerprint)[0])


def _summed(rows: Sequence[Group]) -> Group | None:
    """The rows of one group as one, the largest first."""
    if not rows:
        return None
    return replace(
        rows[0],
        open_count=sum(row.open_count for row in rows),
        letter_count=sum(row.letter_count for row in rows),
        total_count=sum(row.total_count for row in rows),
        first_seen_at=min(row.first_seen_at for row in rows),
        last_seen_at=max(row.last_seen_at for row in rows),
    )


def _with_newest(connection: Connection, found: Sequence[Group]) -> list[Group]:
    """``found``, each with the verdict on its newest open letter, and with the message of that letter. The
    row has the message of the newest letter, which may have been repaired and closed."""
    named = one_of(connection, group.c.fingerprint, sorted({one.fingerprint for one in found}))
    ids = connection.execute(_NEWEST.where(named)).scalars().all() if found else ()
    known = sorted({one for one in ids if one is not None})
    shown = select(*_KEY, letter.c.message, letter.c.verdict, letter.c.rule)
    rows = connection.execute(shown.where(one_of(connection, letter.c.id, known))) if known else ()
    newest = {tuple(row[:3]): row for row in rows}
    return [
        _as_newest(one, newest.get((one.fingerprint, one.task, one.exception_type)))
        for one in found
    ]


def _as_newest(found: Group, newest: Any) -> Group:
    if newest is None:
        return found
    message = clip(newest.message, SAMPLE_LIMIT) if found.open_count else ""
    verdict, rule = Verdict(newest.verdict), newest.rule
    return replace(found, message=message or found.message, verdict=verdict, rule=rule)


def _behind(mark: GroupMark) -> ColumnElement[bool]:
    """The groups after ``mark`` in the order of the list."""
    fewer, earlier = group.c.open_count < mark.open_count, group.c.last_seen_at < mark.last_seen_at
    behind = group.c.exception_type > mark.exception_type
    behind = or_(group.c.task > mark.task, and_(group.c.task == mark.task, behind))
    named = group.c.fingerprint == mark.fingerprint
    behind = or_(group.c.fingerprint > mark.fingerprint, and_(named, behind))
    behind = or_(earlier, and_(group.c.last_seen_at == mark.last_seen_at, behind))
    return or_(fewer, and_(group.c.open_count == mark.open_count, behind))


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
    others = sorted(wanted.given - GROUP_FIELDS - {"route", "since", "until"})
    if others:
        raise FilterError(
            f"Groups are not kept by {' or '.join(others)}; narrow them by task, exception, group, "
            "route, since or until, or use: celery -A <app> dlq list"
        )
