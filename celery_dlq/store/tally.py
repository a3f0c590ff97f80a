"""The rollups, kept in the transaction that changes the letters: counts per group, arrivals per minute and
by group and hour, and counts by what monitoring asks for.

They are why depth, groups and rates never scan letters.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from sqlalchemy import Column, ColumnElement, Table, case
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.engine import Connection

from celery_dlq.group import Arrivals, hour_of
from celery_dlq.redact import clip
from celery_dlq.states import OPEN_STATES, State
from celery_dlq.store import tables

#: Characters of a group's example message.
SAMPLE_LIMIT = 500

#: The column of a group that counts the letters in a state.
COUNTED_IN = {
    State.DEAD: "open_count",
    State.CLAIMED: "open_count",
    State.REDRIVEN: "open_count",
    State.RESOLVED: "resolved_count",
    State.DISCARDED: "discarded_count",
}

_COUNTS = ("open_count", "resolved_count", "discarded_count", "total_count")
_CELL_COUNTS = ("open_count", "arrived_count", "succeeded_count", "failed_count")


#: The primary key of a group: fingerprint, task, exception type.
GroupKey = tuple[str, str, str]


@dataclass(frozen=True)
class Member:
    """A letter as a member of its group."""

    fingerprint: str
    task: str
    exception_type: str
    state: State
    last_failed_at: datetime
    queue: str
    reason: str
    message: str = ""
    release: str = ""

    @classmethod
    def of(cls, row: Mapping[Any, Any]) -> Member:
        """The member that a letter's row describes; its message and release are not needed once it is
        counted."""
        return cls(
            row["fingerprint"], row["task"], row["exception_type"], State(row["state"]),
            row["last_failed_at"], row["queue"], row["reason"], row.get("message", ""),
            row.get("release", ""),
        )  # fmt: skip

    @property
    def key(self) -> GroupKey:
        """The group's primary key."""
        return self.fingerprint, self.task, self.exception_type

    @property
    def cell(self) -> tuple[str, str, str, str]:
        """What its counts are kept by."""
        return self.task, self.queue, self.reason, self.exception_type


class Tally:
    """The changes of one transaction, added up and written at its end.

    At the end, because an error storm has one group, and whoever holds its row holds up the others.
    """

    def __init__(self) -> None:
        self._groups: dict[GroupKey, dict[str, Any]] = {}
        self._arrivals: dict[tuple[datetime, str, str], int] = {}
        self._cells: dict[tuple[str, str, str, str], dict[str, Any]] = {}
        self._trends: dict[tuple[str, datetime], dict[str, int]] = {}
        #: What has arrived in each group.
        self.arrivals: dict[GroupKey, Arrivals] = {}

    def arrive(self, before: Member | None, after: Member, *, redriven: bool = False) -> None:
        """A letter became dead: for the first time (``before`` is None) or again, which may be how a
        redrive ended."""
        self._move(before, after)
        self._group(after)["total_count"] += 1
        cell = self._cell(after)
        cell["arrived_count"] += 1
        cell["failed_count"] += redriven
        minute = after.last_failed_at.astimezone(timezone.utc).replace(second=0, microsecond=0)
        key = (minute, after.task, after.exception_type)
        self._arrivals[key] = self._arrivals.get(key, 0) + 1
        self._trend(after)["count"] += 1
        self.arrivals.setdefault(after.key, Arrivals()).add(after.last_failed_at, after.release)

    def change(self, before: Member, after: Member) -> None:
        """A letter changed its state or its group without another arrival. Its one arrival moves to
        the new group with it."""
        self._move(before, after)
        if before.key != after.key:
            self._group(before)["total_count"] -= 1
            self._group(after)["total_count"] += 1

    def succeed(self, before: Member, *, redriven: bool) -> None:
        """A letter's message ran successfully, which may be how a redrive ended."""
        after = replace(before, state=State.RESOLVED)
        self.change(before, after)
        self._cell(after)["succeeded_count"] += redriven

    def write(self, connection: Connection) -> None:
        """Add everything to the tables, in the order of their keys, so that writers queue up."""
        groups = [row for _, row in sorted(self._groups.items())]
        _add(connection, tables.group, groups)
        arrivals = [
            {"minute": minute, "task": task, "exception_type": kind, "count": count}
            for (minute, task, kind), count in sorted(self._arrivals.items())
        ]
        _add(connection, tables.arrival, arrivals)
        cells = [row for _, row in sorted(self._cells.items()) if any(map(row.get, _CELL_COUNTS))]
        _add(connection, tables.count, cells)
        trends = [
            {"fingerprint": fingerprint, "hour": hour, **counts}
            for (fingerprint, hour), counts in sorted(self._trends.items())
            if any(counts.values())
        ]
        _add(connection, tables.trend, trends)

    def _move(self, before: Member | None, after: Member) -> None:
        if before is not None:
            self._group(before)[COUNTED_IN[before.state]] -= 1
            self._cell(before)["open_count"] -= before.state in OPEN_STATES
            self._trend(before)["open_count"] -= before.state in OPEN_STATES
        self._group(after)[COUNTED_IN[after.state]] += 1
        self._cell(after)["open_count"] += after.state in OPEN_STATES
        self._trend(after)["open_count"] += after.state in OPEN_STATES

    def _group(self, member: Member) -> dict[str, Any]:
        row = self._groups.get(member.key)
        if row is None:
            row = self._groups[member.key] = _new_group(member)
        row["first_seen_at"] = min(row["first_seen_at"], member.last_failed_at)
        row["last_seen_at"] = max(row["last_seen_at"], member.last_failed_at)
        return row

    def _trend(self, member: Member) -> dict[str, int]:
        key = member.fingerprint, hour_of(member.last_failed_at)
        return self._trends.setdefault(key, {"count": 0, "open_count": 0})

    def _cell(self, member: Member) -> dict[str, Any]:
        row = self._cells.get(member.cell)
        if row is None:
            row = self._cells[member.cell] = _new_cell(member)
        return row


def _new_group(member: Member) -> dict[str, Any]:
    return {
        "fingerprint": member.fingerprint,
        "task": member.task,
        "exception_type": member.exception_type,
        "message": clip(member.message, SAMPLE_LIMIT),
        **dict.fromkeys(_COUNTS, 0),
        "first_seen_at": member.last_failed_at,
        "last_seen_at": member.last_failed_at,
    }


def _new_cell(member: Member) -> dict[str, Any]:
    names = "\0".join(member.cell).encode("utf-8", "surrogatepass")
    return {
        "id": hashlib.blake2b(names, digest_size=32).hexdigest(),
        "task": member.task,
        "queue": member.queue,
        "reason": member.reason,
        "exception_type": member.exception_type,
        **dict.fromkeys(_CELL_COUNTS, 0),
        "first_seen_at": member.last_failed_at,
    }


def _plus(stored: ColumnElement[Any], given: ColumnElement[Any]) -> ColumnElement[Any]:
    return stored + given


def _least(stored: ColumnElement[Any], given: ColumnElement[Any]) -> ColumnElement[Any]:
    return case((given < stored, given), else_=stored)


def _greatest(stored: ColumnElement[Any], given: ColumnElement[Any]) -> ColumnElement[Any]:
    return case((given > stored, given), else_=stored)


#: How a row that is there takes up another one.
_CHANGES: Mapping[Table, Mapping[str, Any]] = {
    tables.group: {
        **dict.fromkeys(_COUNTS, _plus),
        "first_seen_at": _least,
        "last_seen_at": _greatest,
    },
    tables.arrival: {"count": _plus},
    tables.trend: {"count": _plus, "open_count": _plus},
    tables.count: dict.fromkeys(_CELL_COUNTS, _plus),
}


def _add(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    if rows:
        statement = _insert_or_add(connection.dialect.name, table)
        # One row is the usual case, for which drivers have a shorter way.
        connection.execute(statement, rows if len(rows) > 1 else rows[0])


@functools.cache  # making it takes as long as many a server takes to execute it
def _insert_or_add(dialect: str, table: Table) -> Any:
    """An insert that adds to the row that is there already; one statement, so that two writers
    with a new group need no second try."""
    if dialect == "mysql":
        insert = mysql.insert(table)
        return insert.on_duplicate_key_update(_changed(table, insert.inserted))
    upsert = (postgresql if dialect == "postgresql" else sqlite).insert(table)
    keys: list[Column[Any]] = list(table.primary_key.columns)
    return upsert.on_conflict_do_update(index_elements=keys, set_=_changed(table, upsert.excluded))


def _changed(table: Table, given: Any) -> dict[str, Any]:
    return {name: change(table.c[name], given[name]) for name, change in _CHANGES[table].items()}
