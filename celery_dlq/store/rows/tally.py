"""The rollups: counts per group, arrivals per minute, arrivals per group and hour, and counts for monitoring.

They change in the same transaction as the letters. Because of them, no query for depth, groups or rates scans
the letters.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, Table, and_, case, literal_column, or_, select
from sqlalchemy.engine import Connection

from celery_dlq.base.redact import clip
from celery_dlq.model.group import Arrivals, hour_of
from celery_dlq.model.states import OPEN_STATES, Reason, State
from celery_dlq.store.database import tables
from celery_dlq.store.database.dialects import dialect_of
from celery_dlq.store.database.dialects.dialect import Dialect
from celery_dlq.store.database.sealing import sealing_of

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

#: The columns of a row, by name.
_Columns: TypeAlias = Mapping[str, ColumnElement[Any]]

_COUNTS = ("open_count", "resolved_count", "discarded_count", "total_count")
_CELL_COUNTS = ("open_count", "arrived_count", "succeeded_count", "failed_count")


#: The primary key of a group: fingerprint, task, exception type.
GroupKey = tuple[str, str, str]

#: Letters are counted by these for monitoring: task, queue, reason, exception type, route, and namespace.
CellKey = tuple[str, ...]


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
    route: str = ""
    message: str = ""
    release: str = ""
    #: Kept with a group that is new.
    place: str = ""
    #: The key of its message: see the column of that name.
    sealed_by: str = ""
    namespace: str = ""

    @classmethod
    def of(cls, row: Mapping[Any, Any]) -> Member:
        """The member that a letter's row describes. A letter that is counted already needs no message and
        release."""
        return cls(
            row["fingerprint"], row["task"], row["exception_type"], State(row["state"]),
            row["last_failed_at"], row["queue"], row["reason"], row["route"],
            row.get("message", ""), row.get("release", ""), row.get("place", ""), row.get("sealed_by", ""),
            row["namespace"],
        )  # fmt: skip

    @property
    def key(self) -> GroupKey:
        """The group's primary key."""
        return self.fingerprint, self.task, self.exception_type

    @property
    def cell(self) -> CellKey:
        """The key of its counts for monitoring."""
        names = self.task, self.queue, self.reason, self.exception_type, self.route
        return (*names, self.namespace) if self.namespace else names


class Tally:
    """The changes of one transaction, added up and written at its end.

    In an error storm, all letters are in one group, and a transaction that has locked the group's row delays
    all others. So it is locked as late as possible.
    """

    def __init__(self) -> None:
        #: The rows of each table by their keys.
        self._rows: dict[Table, dict[Any, dict[str, Any]]] = {table: {} for table in _CHANGES}
        #: The arrivals in each group.
        self.arrivals: dict[GroupKey, Arrivals] = {}

    def arrive(self, before: Member | None, after: Member, *, redriven: bool = False) -> None:
        """Count a letter that died: for the first time (``before`` is None), or again.

        :param redriven: whether this was the end of a redrive.
        """
        self._move(before, after)
        self._group(after)["total_count"] += 1
        cell = self._cell(after)
        # It was counted when it began to wait.
        cell["arrived_count"] += after.reason != Reason.UNSENT.value
        cell["failed_count"] += redriven
        minute = after.last_failed_at.astimezone(timezone.utc).replace(second=0, microsecond=0)
        key = {"minute": minute, "task": after.task, "exception_type": after.exception_type}
        self._counts(tables.arrival, after, key)["count"] += 1
        self._trend(after)["count"] += 1
        self.arrivals.setdefault(after.key, Arrivals()).add(after.last_failed_at, after.release)

    def wait(self, member: Member) -> None:
        """Count a message that the broker did not take, for monitoring."""
        self._cell(member)["arrived_count"] += 1

    def change(self, before: Member, after: Member) -> None:
        """Count a letter that changed its state or its group without another arrival. One arrival moves to
        the new group with it."""
        self._move(before, after)
        if before.key != after.key:
            self._group(before)["total_count"] -= 1
            self._group(after)["total_count"] += 1

    def enter(self, after: Member) -> None:
        """Count a letter that was restored. Its arrival was counted before it was deleted."""
        self._move(None, after)

    def leave(self, before: Member) -> None:
        """Count a letter that was deleted, or is about to be counted elsewhere. Its arrival stays counted."""
        self._group(before)[COUNTED_IN[before.state]] -= 1
        self._cell(before)["open_count"] -= before.state in OPEN_STATES
        self._trend(before)["open_count"] -= before.state in OPEN_STATES

    def succeed(self, before: Member, *, redriven: bool) -> None:
        """Count a letter whose message ran successfully.

        :param redriven: whether this was the end of a redrive.
        """
        after = replace(before, state=State.RESOLVED)
        self.change(before, after)
        self._cell(after)["succeeded_count"] += redriven

    def write(self, connection: Connection) -> None:
        """Add everything to the tables, in the order of their keys, so that writers wait for each other and
        do not deadlock."""
        for table, rows in self._rows.items():
            sums = [name for name, add in _CHANGES[table].items() if add is _plus]
            # A group may have another message although its counts are the same.
            changed = [
                row
                for _, row in sorted(rows.items())
                if table is tables.group or any(map(row.get, sums))
            ]
            if table is tables.group:
                changed = [_sealed(connection, row) for row in changed]
            _add(connection, table, changed)

    def _move(self, before: Member | None, after: Member) -> None:
        if before is not None:
            self.leave(before)
        self._group(after)[COUNTED_IN[after.state]] += 1
        self._cell(after)["open_count"] += after.state in OPEN_STATES
        self._trend(after)["open_count"] += after.state in OPEN_STATES

    def _group(self, member: Member) -> dict[str, Any]:
        rows = self._rows[tables.group]
        row = rows.get(member.key)
        if row is None:
            row = rows[member.key] = _new_group(member)
        if member.last_failed_at >= row["last_seen_at"]:
            row["route"] = member.route
            if member.message:
                row["message"] = clip(member.message, SAMPLE_LIMIT)
                row["sealed_by"] = member.sealed_by
        row["first_seen_at"] = min(row["first_seen_at"], member.last_failed_at)
        row["last_seen_at"] = max(row["last_seen_at"], member.last_failed_at)
        return row

    def _trend(self, member: Member) -> dict[str, Any]:
        key = {"fingerprint": member.fingerprint, "hour": hour_of(member.last_failed_at)}
        return self._counts(tables.trend, member, key)

    def _cell(self, member: Member) -> dict[str, Any]:
        rows = self._rows[tables.cell]
        row = rows.get(member.cell)
        if row is None:
            row = rows[member.cell] = _new_cell(member)
        return row

    def _counts(self, table: Table, member: Member, key: dict[str, Any]) -> dict[str, Any]:
        rows, key = self._rows[table], {**key, "namespace": member.namespace}
        return rows.setdefault(tuple(key.values()), {**key, **dict.fromkeys(_CHANGES[table], 0)})


def move_arrivals(connection: Connection, moved: Mapping[tuple[str, datetime, str], int]) -> None:
    """Move arrivals by the hour to other groups, as far as they are kept. The rows of the groups are locked
    already.

    :param moved: arrivals by the former fingerprint, the hour, and the new fingerprint.
    """
    trend = tables.trend
    key = trend.c.fingerprint, trend.c.hour
    names, hours = ({key[place] for key in moved} for place in (0, 1))
    these = key[0].in_(sorted(names)), key[1].in_(sorted(hours))
    ordered = select(*key, trend.c.count).where(*these).order_by(*key).with_for_update()
    kept = {(name, hour): int(number) for name, hour, number in connection.execute(ordered)}
    rows: dict[tuple[str, datetime], int] = {}
    for (before, hour, after), wanted in sorted(moved.items()):
        number = min(wanted, kept.get((before, hour), 0))
        if number > 0:
            kept[before, hour] -= number
            for place, change in (((before, hour), -number), ((after, hour), number)):
                rows[place] = rows.get(place, 0) + change
    changes = [
        {"fingerprint": name, "hour": hour, "count": number, "open_count": 0}
        for (name, hour), number in sorted(rows.items())
    ]
    _add(connection, tables.trend, changes)


def _sealed(connection: Connection, row: dict[str, Any]) -> dict[str, Any]:
    """The row of a group with its example sealed, as that of the letter is."""
    sealed = sealing_of(connection).seal(tables.group, row)
    return {name: value for name, value in sealed.items() if name != "sealed_by"}


def _new_group(member: Member) -> dict[str, Any]:
    return {
        "fingerprint": member.fingerprint,
        "task": member.task,
        "exception_type": member.exception_type,
        "message": clip(member.message, SAMPLE_LIMIT),
        **dict.fromkeys(_COUNTS, 0),
        "first_seen_at": member.last_failed_at,
        "last_seen_at": member.last_failed_at,
        "route": member.route,
        "place": member.place,
        "sealed_by": member.sealed_by,
        "namespace": member.namespace,
    }


def _new_cell(member: Member) -> dict[str, Any]:
    names = "\0".join(member.cell).encode("utf-8", "surrogatepass")
    return {
        "id": hashlib.blake2b(names, digest_size=32).hexdigest(),
        "task": member.task,
        "queue": member.queue,
        "reason": member.reason,
        "exception_type": member.exception_type,
        "route": member.route,
        "namespace": member.namespace,
        **dict.fromkeys(_CELL_COUNTS, 0),
        "first_seen_at": member.last_failed_at,
    }


def _plus(name: str, stored: _Columns, given: _Columns) -> ColumnElement[Any]:
    return stored[name] + given[name]


def _least(name: str, stored: _Columns, given: _Columns) -> ColumnElement[Any]:
    return case((given[name] < stored[name], given[name]), else_=stored[name])


def _greatest(name: str, stored: _Columns, given: _Columns) -> ColumnElement[Any]:
    return case((given[name] > stored[name], given[name]), else_=stored[name])


def _newest(name: str, stored: _Columns, given: _Columns) -> ColumnElement[Any]:
    return case((_is_newest(stored, given), given[name]), else_=stored[name])


# Not a parameter: PyMySQL fills in those of the values only, when it writes several rows at once.
_NO_TEXT: ColumnElement[str] = literal_column("''")


def _newest_text(name: str, stored: _Columns, given: _Columns) -> ColumnElement[Any]:
    # A letter that is counted again, because its state changed, brings no message.
    is_wanted = and_(
        given[name] != _NO_TEXT, or_(_is_newest(stored, given), stored[name] == _NO_TEXT)
    )
    return case((is_wanted, given[name]), else_=stored[name])


def _is_newest(stored: _Columns, given: _Columns) -> ColumnElement[bool]:
    # Also right if the database has already set the moment to the greater one, as MySQL does.
    return given["last_seen_at"] >= stored["last_seen_at"]


#: How the columns of an existing row are combined with those of a new one.
_CHANGES: Mapping[Table, Mapping[str, Any]] = {
    tables.group: {
        **dict.fromkeys(_COUNTS, _plus),
        "first_seen_at": _least,
        "last_seen_at": _greatest,
        "route": _newest,
        "message": _newest_text,
    },
    tables.arrival: {"count": _plus},
    tables.trend: {"count": _plus, "open_count": _plus},
    tables.cell: dict.fromkeys(_CELL_COUNTS, _plus),
}


def _add(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    if rows:
        statement = _insert_or_add(dialect_of(connection), table)
        # Usually it is one row, which drivers write faster if it is not in a list.
        connection.execute(statement, rows if len(rows) > 1 else rows[0])


@functools.cache  # building it takes about as long as the server takes to execute it
def _insert_or_add(dialect: Dialect, table: Table) -> Any:
    """An insert that adds to the row if it exists already. It is one statement, so that two writers with the
    same new group need no second try."""
    changes, columns = _CHANGES[table].items(), dict(table.c.items())
    return dialect.upsert(
        table, lambda given: {name: add(name, columns, given) for name, add in changes}
    )
