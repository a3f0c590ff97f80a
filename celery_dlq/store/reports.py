"""The last report of each work that is done again and again: a round of retention, and a check of the
archive.

A round goes through all closed letters, which takes seconds in a large store. Screens and metrics read its
report instead of counting the letters.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select
from sqlalchemy.engine import Connection

from celery_dlq.store.archive.segments import totals_of
from celery_dlq.store.database import clock, tables
from celery_dlq.store.database.transactions import StoreRole, reads, writes
from celery_dlq.store.filter import Filter
from celery_dlq.store.keeping import (
    CLOSED_AGES,
    CheckReport,
    Holding,
    Keeping,
    Kept,
    Pile,
    RoundReport,
)
from celery_dlq.store.rows.audit import write_audit
from celery_dlq.store.rows.report_rows import write_reports

report = tables.report

#: The names of the reports.
_ROUND, _CHECK = "retention", "archive check"


class Reports(StoreRole):
    """The last reports."""

    @reads
    def keeping(self, connection: Connection) -> Keeping:
        """What is kept of closed letters, by the last reports. Reads few rows."""
        is_kept = report.c.name.in_((_ROUND, _CHECK))
        rows = {row.name: row for row in connection.execute(select(report).where(is_kept))}
        return Keeping(
            round=_round_from(rows[_ROUND]) if _ROUND in rows else None,
            archive=totals_of(connection),
            check=_check_from(rows[_CHECK]) if _CHECK in rows else None,
        )

    @writes
    def note_round(
        self, connection: Connection, holdings: Sequence[Holding], *, removed: int
    ) -> None:
        """Write the report of a round of retention that has just ended.

        :param holdings: what it left in the store.
        :param removed: how many letters it has deleted or archived.
        """
        detail = {"removed": removed, "holdings": list(map(_plain_holding, holdings))}
        write_reports(connection, {_ROUND: detail}, clock.now(connection))

    @writes
    def note_check(
        self,
        connection: Connection,
        *,
        who: str,
        segments: int,
        letters: int,
        size: int,
        damaged: int,
        harmless: int,
    ) -> None:
        """Write the report of a check of the archive that has just ended; audited. The numbers are those of
        :class:`~celery_dlq.store.keeping.CheckReport`."""
        now = clock.now(connection)
        problems = {"damaged": damaged, "harmless": harmless}
        found = {"segments": segments, "letters": letters, "size": size, **problems}
        write_reports(connection, {_CHECK: found}, now)
        detail = {"segments": segments, **problems}
        write_audit(connection, who=who, act="verify", count=letters, at=now, detail=detail)


def _round_from(row: Any) -> RoundReport:
    detail = json.loads(row.detail)
    holdings = tuple(map(_holding_from, detail["holdings"]))
    return RoundReport(ended_at=row.at, removed=detail["removed"], holdings=holdings)


def _check_from(row: Any) -> CheckReport:
    return CheckReport(checked_at=row.at, **json.loads(row.detail))


def _plain_holding(holding: Holding) -> dict[str, Any]:
    kept, oldest = holding.kept, holding.kept.oldest_closed_at
    return {
        "where": None if holding.where is None else holding.where.to_dict(),
        "age_s": None if holding.age is None else holding.age.total_seconds(),
        # In the order of CLOSED_AGES, because JSON has no infinity.
        "ages": [vars(kept.ages[bound]) for bound in CLOSED_AGES],
        "expired": vars(kept.expired),
        "within_day": kept.within_day,
        "within_week": kept.within_week,
        "oldest_closed_at": None if oldest is None else oldest.isoformat(),
    }


def _holding_from(plain: Mapping[str, Any]) -> Holding:
    where, age_s, oldest = plain["where"], plain["age_s"], plain["oldest_closed_at"]
    return Holding(
        where=None if where is None else Filter.from_dict(where),
        age=None if age_s is None else timedelta(seconds=age_s),
        kept=Kept(
            ages={
                bound: Pile(**pile) for bound, pile in zip(CLOSED_AGES, plain["ages"], strict=True)
            },
            expired=Pile(**plain["expired"]),
            within_day=plain["within_day"],
            within_week=plain["within_week"],
            oldest_closed_at=None if oldest is None else datetime.fromisoformat(oldest),
        ),
    )
