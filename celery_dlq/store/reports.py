"""The last report of each work that is done again and again: a round of retention, a check of the archive,
and what workers report about the flight recorder.

A round goes through all closed letters, which takes seconds in a large store. Screens and metrics read its
report instead of counting the letters.

A report about the flight recorder has a row only while there is something to report, so an idle worker writes
nothing. The row of a machine that is gone is soon not shown any more, and later deleted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.engine import Connection

from celery_dlq.base.codec import dump_json, read_record, record_of
from celery_dlq.base.redact import clip, safe_text
from celery_dlq.errors import TaskLost
from celery_dlq.model.states import Reason
from celery_dlq.model.worker import Lost, RecorderReport, ReportKind
from celery_dlq.store.archiving import totals_of
from celery_dlq.store.database import clock
from celery_dlq.store.database.namespaces import is_ours
from celery_dlq.store.database.tables import arrival, cell, report
from celery_dlq.store.database.transactions import StoreRole, reads, writes
from celery_dlq.store.keeping import CheckReport, Holding, Keeping, RoundReport
from celery_dlq.store.rows.audit import write_audit, write_reports
from celery_dlq.store.rows.query import sum_of

#: The names of the reports.
_ROUND, _CHECK = "retention", "archive check"

#: Workers report once a minute. A report that has not changed is written again after ``AGAIN``, and is not
#: shown any more after ``FADES``: its worker, or its machine, is gone.
AGAIN, FADES = timedelta(minutes=5), timedelta(minutes=15)

#: The most reports that one worker writes at a time. More directories are on one volume only after a fault of
#: the whole fleet.
MOST = 100

#: Characters of the names, and of the cause, in a report. They come from files and from the system.
NAME_LIMIT, WHY_LIMIT = 200, 500

_DAY = timedelta(days=1)

#: The names of the rows begin with this. Other reports are in the same table.
_PREFIX = "recorder."
_IS_OF_RECORDER = report.c.name.startswith(_PREFIX, autoescape=True)

_LOST = f"{TaskLost.__module__}.{TaskLost.__qualname__}"


class Reports(StoreRole):
    """The last reports."""

    @reads
    def keeping(self) -> Keeping:
        """The closed letters that are kept, by the last reports. Reads few rows."""
        is_kept = report.c.name.in_((_ROUND, _CHECK))
        stored = self.connection.execute(select(report).where(self.ours(report), is_kept))
        found = {row.name: {"at": row.at, **json.loads(row.detail)} for row in stored}
        last, check = found.get(_ROUND), found.get(_CHECK)
        if last:
            last["holdings"] = tuple(read_record(Holding, one) for one in last["holdings"])
        return Keeping(
            round=RoundReport(ended_at=last.pop("at"), **last) if last else None,
            archive=totals_of(self.connection),
            check=CheckReport(checked_at=check.pop("at"), **check) if check else None,
        )

    @writes
    def note_round(self, holdings: Sequence[Holding], *, removed: int) -> None:
        """Write the report of a round of retention that has just ended.

        :param holdings: what it left in the store.
        :param removed: how many letters it has deleted or archived.
        """
        found = {"removed": removed, "holdings": list(map(record_of, holdings))}
        write_reports(self.connection, {_ROUND: found}, clock.now(self.connection))

    @writes
    def note_check(
        self, *, who: str, segments: int, letters: int, size: int, damaged: int, harmless: int
    ) -> None:
        """Write the report of a check of the archive that has just ended; audited. The numbers are those of
        :class:`~celery_dlq.store.keeping.CheckReport`."""
        now = clock.now(self.connection)
        problems = {"damaged": damaged, "harmless": harmless}
        found = {"segments": segments, "letters": letters, "size": size, **problems}
        write_reports(self.connection, {_CHECK: found}, now)
        detail = {"segments": segments, **problems}
        write_audit(self.connection, who=who, act="verify", count=letters, at=now, detail=detail)


class RecorderReports(StoreRole):
    """Messages of killed workers, and workers that cannot copy messages."""

    @reads
    def look(self, now: datetime) -> Lost:
        """The messages of killed workers that are known now. Reads few rows.

        :param now: the time by the clock of the store.
        """
        lately = [arrival.c.minute > now - _DAY, arrival.c.exception_type == _LOST]
        return Lost(
            open=sum_of(self.connection, cell.c.open_count, cell.c.reason == Reason.LOST.value),
            arrived=sum_of(self.connection, arrival.c.count, *lately),
            reports=_reports_since(self.connection, now - FADES),
        )

    @writes
    def note(self, reports: Sequence[RecorderReport]) -> None:
        """Write ``reports``, except those that another worker has just written."""
        now, known = clock.now(self.connection), _rows(self.connection)
        details = {}
        # In one order, so that two workers do not wait for each other.
        for one in sorted(reports[:MOST], key=_name):
            name, detail = _name(one), _detail(one)
            row = known.get(name)
            if row is None or row.detail != dump_json(detail) or row.at < now - AGAIN:
                details[name] = detail
        if details:
            write_reports(self.connection, details, now)

    @writes
    def withdraw(self, reports: Iterable[RecorderReport]) -> None:
        """Delete ``reports``, because they are not true any more."""
        names = sorted(map(_name, reports))
        self.connection.execute(delete(report).where(self.ours(report), report.c.name.in_(names)))

    @writes
    def prune(self, *, older_than_s: float) -> None:
        """Delete the reports that no worker has written again for ``older_than_s`` seconds."""
        before = clock.now(self.connection) - timedelta(seconds=older_than_s)
        old = delete(report).where(self.ours(report), _IS_OF_RECORDER, report.c.at < before)
        self.connection.execute(old)


def _rows(connection: Connection) -> dict[str, Any]:
    ours = select(report).where(is_ours(connection, report), _IS_OF_RECORDER)
    return {row.name: row for row in connection.execute(ours)}


def _reports_since(connection: Connection, since: datetime) -> tuple[RecorderReport, ...]:
    found = [
        replace(read_record(RecorderReport, json.loads(row.detail)), seen_at=row.at)
        for row in _rows(connection).values()
        if row.at > since
    ]
    kinds = [*ReportKind]
    return tuple(sorted(found, key=lambda one: (kinds.index(one.kind), one.since, one.about)))


def _name(one: RecorderReport) -> str:
    # The names of directories are longer than the column.
    about = hashlib.sha256(f"{one.kind.value} {safe_text(one.about)}".encode()).hexdigest()
    return _PREFIX + about[:40]


def _detail(one: RecorderReport) -> dict[str, Any]:
    lengths = dict.fromkeys(("about", "worker", "host"), NAME_LIMIT) | {"why": WHY_LIMIT}
    texts = {name: clip(safe_text(getattr(one, name)), most) for name, most in lengths.items()}
    return {**record_of(one, "seen_at"), **texts}
