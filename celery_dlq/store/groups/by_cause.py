"""Groups of letters by cause: listed, read, triaged, and given tickets by handlers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, func, or_, select, update
from sqlalchemy.engine import Connection

from celery_dlq.base.redact import clip, hide_known, safe_text
from celery_dlq.errors import FilterError, UnknownGroup
from celery_dlq.model.automation import actor_of
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
from celery_dlq.model.handling import Escalate, GroupTicket, Handling, Ticket, TicketKind
from celery_dlq.model.states import State, Verdict
from celery_dlq.store.base import Filter
from celery_dlq.store.database.namespaces import narrow
from celery_dlq.store.database.sealing import read_shown, sealing_of
from celery_dlq.store.database.tables import group, letter, ticket, trend
from celery_dlq.store.database.transactions import StoreRole, reads, writes
from celery_dlq.store.groups import aliases
from celery_dlq.store.groups.triage import act_detail, decided, group_from, key_of, locked
from celery_dlq.store.rows import audit
from celery_dlq.store.rows.query import (
    GROUP_FIELDS,
    Conditions,
    group_conditions,
    is_of_group,
    newest_of,
    one_of,
)
from celery_dlq.store.rows.rows import fit, read_row, replace_rows
from celery_dlq.store.rows.tally import SAMPLE_LIMIT

#: The ids of the newest open letters of groups, or of closed ones if none is open.
_NEWEST = select(
    func.coalesce(
        *(
            newest_of(group.c.fingerprint, state, letter.c.id)
            .limit(1)
            .correlate(group)
            .scalar_subquery()
            for state in (State.DEAD, State.REDRIVEN, State.RESOLVED, State.DISCARDED)
        )
    )
).select_from(group)

_KEY = letter.c.fingerprint, letter.c.task, letter.c.exception_type


class Groups(StoreRole):
    """Groups of letters by the cause of their failure, and what people decide about them."""

    @reads
    def find(
        self,
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
        others = sorted(wanted.given - GROUP_FIELDS - {"route", "since", "until"})
        if others:
            raise FilterError(
                f"Groups are not kept by {' or '.join(others)}; narrow them by task, exception, group, "
                "route, since or until, or use: celery -A <app> dlq list"
            )
        found = [*group_conditions(self.connection, group, wanted), *_triage_conditions(which, now)]
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
        rows = self.connection.execute(chosen).mappings().all()
        found_groups = [group_from(self.connection, row, now) for row in rows]
        return _with_newest(self.connection, found_groups)

    @reads
    def get(self, fingerprint: str, *, now: datetime) -> Group | None:
        """The group with this fingerprint, or the group into which it was merged; or None. If a group has
        letters of several tasks or exception types, all are counted, under the largest."""
        name = safe_text(fingerprint)
        name = aliases.homes(self.connection, [name]).get(name) or name
        stored = select(group).where(group.c.fingerprint == name, self.ours(group))
        largest = stored.order_by(group.c.total_count.desc(), *group.primary_key.columns)
        rows = self.connection.execute(largest).mappings().all()
        found = [group_from(self.connection, row, now) for row in rows]
        return _summed(_with_newest(self.connection, found))

    @reads
    def merged(self, fingerprint: str) -> list[Alias]:
        """The groups that people merged into this one, and the places that were folded into it."""
        return aliases.aliases_of(self.connection, fingerprint)

    @reads
    def match(self, prefix: str, limit: int = 10) -> list[str]:
        """Up to ``limit`` groups whose fingerprints begin with ``prefix``, in their order. If a group was
        merged into another one, that one takes its place."""
        return aliases.matching(self.connection, prefix, limit)

    @reads
    def trends(
        self, fingerprints: Sequence[str], *, now: datetime, hours: int = 24
    ) -> Mapping[str, tuple[int, ...]]:
        """Arrivals in each group by the hour, the oldest first; the last is the hour of ``now``."""
        first = hour_of(now) - timedelta(hours=hours - 1)
        counts = {fingerprint: [0] * hours for fingerprint in fingerprints}
        counted = select(trend.c.fingerprint, trend.c.hour, trend.c.count).where(
            one_of(self.connection, trend.c.fingerprint, sorted(counts)), trend.c.hour >= first
        )
        for fingerprint, hour, number in self.connection.execute(counted) if counts else ():
            # Failures of a worker whose clock is ahead count for the current hour.
            counts[fingerprint][min(hours - 1, (hour - first) // timedelta(hours=1))] += int(number)
        return {fingerprint: tuple(found) for fingerprint, found in counts.items()}

    @writes
    def triage(self, fingerprint: str, act: GroupAct, *, who: str, now: datetime) -> Group:
        """Do ``act`` with a group; audited.

        :raises UnknownGroup: no group has this fingerprint.
        :raises TriageError: the groups cannot be merged, or not be split.
        """
        rows = locked(self.connection, fingerprint)
        if not rows:
            raise UnknownGroup
        narrow(self.connection, rows[0]["namespace"])
        if isinstance(act, Merge):
            act = replace(act, into=aliases.one_group(self.connection, act.into))
            aliases.merge(self.connection, fingerprint, act, who, now)
        elif isinstance(act, Split):
            aliases.split(self.connection, fingerprint, act)
        else:
            for row in rows:
                values = fit(group, decided(self.connection, row, act, who, now))
                is_it = is_of_group(group, key_of(row))
                self.connection.execute(update(group).where(is_it).values(values))
        audit.write_audit(
            self.connection, who=who, act=act.name, count=sum(row["open_count"] for row in rows),
            detail={"group": fingerprint, **act_detail(act)}, at=now,
        )  # fmt: skip
        return group_from(self.connection, locked(self.connection, fingerprint)[0])


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
    ids = connection.scalars(_NEWEST.where(named)).all() if found else ()
    known = sorted({one for one in ids if one is not None})
    shown = select(
        *_KEY,
        letter.c.message,
        letter.c.verdict,
        letter.c.rule,
        letter.c.task_id,
        letter.c.sealed_by,
    )
    these = shown.where(one_of(connection, letter.c.id, known))
    rows = read_shown(connection, letter, these) if known else ()
    newest = {key_of(row): row for row in rows}
    return [
        _as_newest(one, newest.get((one.fingerprint, one.task, one.exception_type)))
        for one in found
    ]


def _as_newest(found: Group, newest: Mapping[str, Any] | None) -> Group:
    if newest is None:
        return found
    message = clip(newest["message"], SAMPLE_LIMIT) if found.open_count else ""
    verdict, rule = Verdict(newest["verdict"]), newest["rule"]
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


#: The columns that a newer ticket of the same group replaces.
_REPLACED = ("url", "recipient", "why", "handler", "at")


class Tickets(StoreRole):
    """The tickets and escalations of groups. A group has at most one of each."""

    @reads
    def of_groups(self, fingerprints: Collection[str]) -> Mapping[str, tuple[GroupTicket, ...]]:
        """The tickets and escalations of these groups, by fingerprint; a ticket comes before an escalation.
        Groups without a ticket are left out."""
        if not fingerprints:
            return {}
        these = one_of(self.connection, ticket.c.fingerprint, sorted(fingerprints))
        stored = select(ticket).where(these).order_by(ticket.c.kind.desc())
        found: dict[str, tuple[GroupTicket, ...]] = {}
        for row in read_shown(self.connection, ticket, stored):
            of_group = found.get(row["fingerprint"], ())
            one = read_row(GroupTicket, row, url=hide_known(row["url"]), to=row["recipient"])
            found[row["fingerprint"]] = (*of_group, one)
        return found


def write_ticket(
    connection: Connection, handling: Handling, verdict: Ticket | Escalate, now: datetime
) -> None:
    """Give the group of a handling its ticket or escalation, in place of an earlier one; audited."""
    is_ticket, said = isinstance(verdict, Ticket), dict(vars(verdict))
    kind = TicketKind.TICKET if is_ticket else TicketKind.ESCALATION
    values = {
        "fingerprint": handling.fingerprint, "handler": handling.name, "at": now, "kind": kind.value,
        "url": said.get("url", ""), "recipient": said.get("to", ""), "why": said.get("why", ""),
    }  # fmt: skip
    sealed = sealing_of(connection).seal(ticket, fit(ticket, values))
    replace_rows(connection, ticket, [sealed], _REPLACED)
    why = str(said.pop("why", ""))
    audit.write_audit(
        connection, who=actor_of(handling.name), act="ticket" if is_ticket else "escalate", count=1,
        why=why, at=now,
        detail={"letter": handling.task_id, "group": handling.fingerprint, **said},
    )  # fmt: skip
