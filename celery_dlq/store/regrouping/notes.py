"""The rows that say how far a regrouping has come, and where the letters of each group went."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.engine import Connection

from celery_dlq.model.regrouping import Becomes, Decided, Fate, Kept, Regrouping
from celery_dlq.store.database import clock, tables
from celery_dlq.store.rows.query import begins_with, one_of
from celery_dlq.store.rows.report_rows import write_reports

report = tables.report

#: The name of the row of the regrouping, and the beginning of those of the groups.
_NAME, _PREFIX = "regrouping", "regrouping."
_NAME_LIMIT = 64


def read_progress(connection: Connection, *, is_locked: bool = False) -> Regrouping | None:
    """The last regrouping."""
    row = select(report).where(report.c.name == _NAME)
    found = connection.execute(row.with_for_update() if is_locked else row).one_or_none()
    if found is None:
        return None
    detail = json.loads(found.detail)
    del detail["audit"]
    return Regrouping(
        **{
            **detail,
            "began_at": datetime.fromisoformat(detail["began_at"]),
            "kept": {Kept(why): number for why, number in detail["kept"].items()},
        },
        idle=clock.now(connection) - found.at,
    )


def audit_row(connection: Connection) -> int:
    """The audit's row of the last regrouping."""
    row = select(report.c.detail).where(report.c.name == _NAME)
    return int(json.loads(connection.execute(row).scalar_one())["audit"])


def write_progress(connection: Connection, progress: Regrouping, audit: int) -> None:
    """Write how far ``progress`` has come.

    :param audit: its row in the audit.
    """
    detail = {name: value for name, value in vars(progress).items() if name != "idle"}
    kept = {why.value: number for why, number in progress.kept.items()}
    detail.update(began_at=progress.began_at.isoformat(), kept=kept, audit=audit)
    write_reports(connection, {_NAME: detail}, clock.now(connection))


def forget_groups(connection: Connection) -> None:
    """Forget where the letters of each group went."""
    connection.execute(delete(report).where(begins_with(report.c.name, _PREFIX)))


def add_moved(connection: Connection, moved: Mapping[tuple[str, str], int]) -> None:
    """Add the letters that went from one group to another."""
    names = sorted({_name_of(before) for before, _after in moved})
    stored = select(report.c.detail).where(one_of(connection, report.c.name, names))
    rows = [json.loads(detail) for detail in connection.execute(stored).scalars()] if names else []
    to = {row["group"]: row["to"] for row in rows}
    for (before, after), number in moved.items():
        targets = to.setdefault(before, {})
        targets[after] = targets.get(after, 0) + number
    _write(connection, ({"group": before, "to": targets} for before, targets in to.items()))


def unsettled(connection: Connection) -> dict[str, dict[str, int]]:
    """For each group whose fate is not written yet, the letters that went to each other one."""
    return {row["group"]: row["to"] for row in _groups(connection) if "becomes" not in row}


def write_fates(connection: Connection, fates: Iterable[Fate]) -> None:
    """Write the end of groups."""
    _write(
        connection,
        (
            {
                "group": one.fingerprint,
                "to": one.to,
                "left": one.left,
                "becomes": one.becomes.value,
                "follows": sorted(one.follows),
            }
            for one in fates
        ),
    )


def read_fates(connection: Connection) -> list[Fate]:
    """The ends of groups that were written."""
    return [
        Fate(
            fingerprint=row["group"],
            to=row["to"],
            left=row["left"],
            becomes=Becomes(row["becomes"]),
            follows=frozenset(map(Decided, row["follows"])),
        )
        for row in _groups(connection)
        if "becomes" in row
    ]


def _groups(connection: Connection) -> list[dict[str, Any]]:
    these = select(report.c.detail).where(begins_with(report.c.name, _PREFIX))
    ordered = these.order_by(report.c.name)
    return [json.loads(detail) for detail in connection.execute(ordered).scalars()]


def _write(connection: Connection, details: Iterable[Mapping[str, Any]]) -> None:
    rows = {_name_of(one["group"]): one for one in details}
    if rows:
        write_reports(connection, dict(sorted(rows.items())), clock.now(connection))


def _name_of(fingerprint: str) -> str:
    return f"{_PREFIX}{fingerprint}"[:_NAME_LIMIT]
