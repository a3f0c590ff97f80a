"""Ends a regrouping for some groups: arrivals, decisions and tickets follow all letters that went to one
group. If the letters went to several groups, everything else stays where it was."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import case, delete, select, update
from sqlalchemy.engine import Connection

from celery_dlq.model.group import Group
from celery_dlq.model.regrouping import Becomes, Decided, Fate, fates_of, heirs_of, tickets_to_take
from celery_dlq.store.database import tables
from celery_dlq.store.groups.triage import UNDECIDED, group_from, is_group
from celery_dlq.store.regrouping.notes import unsettled, write_fates
from celery_dlq.store.rows.query import one_of
from celery_dlq.store.rows.rows import Row
from celery_dlq.store.rows.tally import move_arrivals, move_totals

group, trend, ticket = tables.group, tables.trend, tables.ticket

#: The columns of each decision, with the values of a group that has no such decision.
_COLUMNS: Mapping[Decided, Mapping[str, Any]] = {
    Decided.STATUS: UNDECIDED,
    Decided.OWNER: {"owner": ""},
    Decided.NOTE: {"note": None},
}

#: The rows of each group, the largest first.
_Rows = Mapping[str, Sequence[Row]]


def settle_groups(connection: Connection, groups: int) -> bool:
    """End the regrouping for the next groups; whether there were any.

    :param groups: how many at least; those that become one are settled together.
    """
    to = unsettled(connection)
    chosen = _next(to, groups)
    if not chosen:
        return False
    rows = _locked(connection, {*chosen, *(name for one in chosen for name in to[one])})
    letters = {name: sum(map(_letters, stored)) for name, stored in rows.items()}
    fates = fates_of({one: to[one] for one in chosen}, letters)
    follows = dict[str, set[Decided]]()
    for target, sources in _followed(fates).items():
        for what, name in _follow(connection, target, sources, rows):
            follows.setdefault(name, set()).add(what)
    for one in fates.values():
        if one.becomes is Becomes.SPLIT:
            _shift_end(connection, one.fingerprint, sum(one.to.values()))
    ends = (
        replace(one, follows=frozenset(follows.get(one.fingerprint, ()))) for one in fates.values()
    )
    write_fates(connection, ends)
    return True


def _next(to: Mapping[str, Mapping[str, int]], groups: int) -> list[str]:
    """The next groups, each with all others whose letters went to the same one."""
    by_target: dict[tuple[str, ...], list[str]] = {}
    for one, targets in sorted(to.items()):
        by_target.setdefault(tuple(sorted(targets)), []).append(one)
    chosen: list[str] = []
    for together in by_target.values():
        if len(chosen) >= groups:
            break
        chosen += together
    return chosen


def _locked(connection: Connection, names: Collection[str]) -> _Rows:
    """The rows of groups, locked in the order in which saves lock them."""
    these = one_of(connection, group.c.fingerprint, sorted(names))
    stored = select(group).where(these).order_by(*group.primary_key.columns).with_for_update()
    rows: dict[str, list[Row]] = {}
    for row in connection.execute(stored).mappings():
        rows.setdefault(row["fingerprint"], []).append(row)
    return {
        name: sorted(found, key=lambda row: -int(row["total_count"]))
        for name, found in rows.items()
    }


def _letters(row: Row) -> int:
    return int(row["open_count"] + row["resolved_count"] + row["discarded_count"])


def _followed(fates: Mapping[str, Fate]) -> dict[str, list[Fate]]:
    """The groups that took over all letters of others, with the fates of these."""
    found: dict[str, list[Fate]] = {}
    for fate in fates.values():
        if fate.becomes is not Becomes.SPLIT:
            (target,) = fate.to
            found.setdefault(target, []).append(fate)
    return found


def _follow(
    connection: Connection, target: str, fates: Sequence[Fate], rows: _Rows
) -> list[tuple[Decided, str]]:
    """Let everything about groups follow their letters; returns the decisions that did, each with the group
    that had it."""
    if not rows.get(target):
        return []  # its letters were deleted, together with it
    was = {fate.fingerprint: _as_before(rows[fate.fingerprint], fate) for fate in fates}
    heirs = heirs_of(group_from(rows[target][0]), list(was.values()))
    move_totals(connection, [(row, target) for name in was for row in rows[name]])
    _move_trends(connection, target, list(was))
    _take_over(connection, target, heirs, was, rows)
    for name, one in was.items():
        _shift_end(connection, name, one.total_count)
    return [*heirs.items(), *_move_tickets(connection, target, list(was))]


def _as_before(rows: Sequence[Row], fate: Fate) -> Group:
    """A group with the arrivals that it had before its letters went."""
    found = group_from(rows[0])
    total = sum(int(row["total_count"]) for row in rows) + sum(fate.to.values())
    return replace(found, total_count=total)


def _move_trends(connection: Connection, target: str, names: Sequence[str]) -> None:
    these = one_of(connection, trend.c.fingerprint, names)
    kept = select(trend.c.fingerprint, trend.c.hour, trend.c.count).where(these)
    moved = {
        (name, hour, target): int(number)
        for name, hour, number in connection.execute(kept)
        if number > 0
    }
    if moved:
        move_arrivals(connection, moved)
    connection.execute(delete(trend).where(these, trend.c.count == 0, trend.c.open_count == 0))


def _take_over(
    connection: Connection,
    target: str,
    heirs: Mapping[Decided, str],
    was: Mapping[str, Group],
    rows: _Rows,
) -> None:
    """Give a group the decisions that follow; the groups that had them lose them."""
    taken: dict[str, Any] = {}
    for what, name in heirs.items():
        row = rows[name][0]
        taken |= {column: row[column] for column in _COLUMNS[what]}
        _set(connection, name, _COLUMNS[what])
    status = heirs.get(Decided.STATUS)
    left = None if status is None else _end_of(rows[status][0], was[status])
    for row in _locked(connection, [target])[target] if taken else ():
        values = dict(taken)
        if left is not None:
            values["ignored_total"] = row["total_count"] + left
        connection.execute(update(group).where(is_group(row)).values(values))


def _end_of(row: Row, was: Group) -> int | None:
    """The further letters that end the ignoring of a group; None if no number does."""
    total = row["ignored_total"]
    return None if total is None else max(1, int(total) - was.total_count)


def _set(connection: Connection, name: str, values: Mapping[str, Any]) -> None:
    connection.execute(update(group).where(group.c.fingerprint == name).values(values))


def _shift_end(connection: Connection, name: str, arrivals: int) -> None:
    """Let the ignoring of a group end after as many further letters as before, although it has lost some."""
    ends = group.c.ignored_total - arrivals
    its = (group.c.fingerprint == name, group.c.ignored_total.is_not(None))
    end = case((ends < 1, 1), else_=ends)
    connection.execute(update(group).where(*its).values(ignored_total=end))


def _move_tickets(
    connection: Connection, target: str, names: Sequence[str]
) -> list[tuple[Decided, str]]:
    these = one_of(connection, ticket.c.fingerprint, [target, *names])
    stored = select(ticket.c.fingerprint, ticket.c.kind).where(these).order_by(ticket.c.at.desc())
    newest_first = [(name, kind) for name, kind in connection.execute(stored)]
    taken = tickets_to_take(target, newest_first)
    for name, kind in taken:
        its = (ticket.c.fingerprint == name, ticket.c.kind == kind)
        connection.execute(update(ticket).where(*its).values(fingerprint=target))
    return [(Decided.TICKET, name) for name, _kind in taken]
