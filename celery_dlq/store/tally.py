"""The rollups, kept in the transaction that changes the letters: counts per group, arrivals per minute.

They are why depth, groups and rates never scan letters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from sqlalchemy import Column, ColumnElement, Table, case
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.engine import Connection

from celery_dlq.redact import clip
from celery_dlq.states import State
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


@dataclass(frozen=True)
class Member:
    """A letter as a member of its group."""

    fingerprint: str
    task: str
    exception_type: str
    state: State
    last_failed_at: datetime
    message: str = ""

    @classmethod
    def of(cls, row: Mapping[Any, Any]) -> Member:
        """The member that a letter's row describes; its message is not needed once it is counted."""
        return cls(
            row["fingerprint"], row["task"], row["exception_type"], State(row["state"]),
            row["last_failed_at"], row.get("message", ""),
        )  # fmt: skip

    @property
    def key(self) -> tuple[str, str, str]:
        """The group's primary key."""
        return self.fingerprint, self.task, self.exception_type


class Tally:
    """The changes of one transaction, added up and written at its end.

    At the end, because an error storm has one group, and whoever holds its row holds up the others.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str, str], dict[str, Any]] = {}
        self._arrivals: dict[tuple[datetime, str, str], int] = {}

    def arrive(self, before: Member | None, after: Member) -> None:
        """A letter became dead: for the first time (``before`` is None) or again."""
        self._move(before, after)
        self._group(after)["total_count"] += 1
        minute = after.last_failed_at.astimezone(timezone.utc).replace(second=0, microsecond=0)
        key = (minute, after.task, after.exception_type)
        self._arrivals[key] = self._arrivals.get(key, 0) + 1

    def change(self, before: Member, after: Member) -> None:
        """A letter changed its state or its group without another arrival. Its one arrival moves to
        the new group with it."""
        self._move(before, after)
        if before.key != after.key:
            self._group(before)["total_count"] -= 1
            self._group(after)["total_count"] += 1

    def write(self, connection: Connection) -> None:
        """Add everything to the tables, in the order of their keys, so that writers queue up."""
        groups = [row for _, row in sorted(self._groups.items())]
        _add(connection, tables.group, groups, _GROUP_CHANGES)
        arrivals = [
            {"minute": minute, "task": task, "exception_type": kind, "count": count}
            for (minute, task, kind), count in sorted(self._arrivals.items())
        ]
        _add(connection, tables.arrival, arrivals, {"count": _plus})

    def _move(self, before: Member | None, after: Member) -> None:
        if before is not None:
            self._group(before)[COUNTED_IN[before.state]] -= 1
        self._group(after)[COUNTED_IN[after.state]] += 1

    def _group(self, member: Member) -> dict[str, Any]:
        row = self._groups.setdefault(member.key, _new_group(member))
        row["first_seen_at"] = min(row["first_seen_at"], member.last_failed_at)
        row["last_seen_at"] = max(row["last_seen_at"], member.last_failed_at)
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


def _plus(stored: ColumnElement[Any], given: ColumnElement[Any]) -> ColumnElement[Any]:
    return stored + given


def _least(stored: ColumnElement[Any], given: ColumnElement[Any]) -> ColumnElement[Any]:
    return case((given < stored, given), else_=stored)


def _greatest(stored: ColumnElement[Any], given: ColumnElement[Any]) -> ColumnElement[Any]:
    return case((given > stored, given), else_=stored)


_GROUP_CHANGES = {
    **dict.fromkeys(_COUNTS, _plus),
    "first_seen_at": _least,
    "last_seen_at": _greatest,
}


def _add(
    connection: Connection, table: Table, rows: Sequence[dict[str, Any]], changes: Mapping[str, Any]
) -> None:
    if rows:
        connection.execute(_insert_or_add(connection.dialect.name, table, changes), rows)


def _insert_or_add(dialect: str, table: Table, changes: Mapping[str, Any]) -> Any:
    """An insert that adds to the row that is there already; one statement, so that two writers
    with a new group need no second try."""
    if dialect == "mysql":
        insert = mysql.insert(table)
        return insert.on_duplicate_key_update(_changed(table, insert.inserted, changes))
    upsert = (postgresql if dialect == "postgresql" else sqlite).insert(table)
    keys: list[Column[Any]] = list(table.primary_key.columns)
    return upsert.on_conflict_do_update(
        index_elements=keys, set_=_changed(table, upsert.excluded, changes)
    )


def _changed(table: Table, given: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: change(table.c[name], given[name]) for name, change in changes.items()}
