"""What workers report about the flight recorder.

There is a row only while there is something to report, so an idle worker writes nothing. The row of a machine
that is gone is soon not shown any more, and later deleted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, func, select
from sqlalchemy.engine import Connection

from celery_dlq.codec import dump_json
from celery_dlq.errors import TaskLost
from celery_dlq.model.states import Reason
from celery_dlq.redact import clip, safe_text
from celery_dlq.store.database import clock, tables
from celery_dlq.store.database.transactions import StoreRole, reads, writes
from celery_dlq.store.lost import Lost, RecorderReport, ReportKind
from celery_dlq.store.rows.query import sum_of
from celery_dlq.store.rows.report_rows import write_reports

report, count, arrival = tables.report, tables.count, tables.arrival

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

_LOST = f"{TaskLost.__module__}.{TaskLost.__qualname__}"


class RecorderReports(StoreRole):
    """Messages of killed workers, and workers that cannot copy messages."""

    @reads
    def look(self, connection: Connection, now: datetime) -> Lost:
        """What is known now. Reads few rows.

        :param now: the time by the clock of the store.
        """
        return Lost(
            open=sum_of(connection, count.c.open_count, count.c.reason == Reason.LOST.value),
            arrived=_arrived_since(connection, now - _DAY),
            reports=_reports_since(connection, now - FADES),
        )

    @writes
    def note(self, connection: Connection, reports: Sequence[RecorderReport]) -> None:
        """Write ``reports``, except those that another worker has just written."""
        now, known = clock.now(connection), _rows(connection)
        details = {}
        # In one order, so that two workers do not wait for each other.
        for one in sorted(reports[:MOST], key=_name):
            name, detail = _name(one), _plain(one)
            row = known.get(name)
            if row is None or row.detail != dump_json(detail) or row.at < now - AGAIN:
                details[name] = detail
        if details:
            write_reports(connection, details, now)

    @writes
    def withdraw(self, connection: Connection, reports: Iterable[RecorderReport]) -> None:
        """Delete ``reports``, because they are not true any more."""
        names = sorted(map(_name, reports))
        connection.execute(delete(report).where(report.c.name.in_(names)))

    @writes
    def prune(self, connection: Connection, *, older_than_s: float) -> None:
        """Delete the reports that no worker has written again for ``older_than_s`` seconds."""
        before = clock.now(connection) - timedelta(seconds=older_than_s)
        connection.execute(delete(report).where(_is_of_recorder(), report.c.at < before))


def _is_of_recorder() -> Any:
    return report.c.name.startswith(_PREFIX, autoescape=True)


def _rows(connection: Connection) -> dict[str, Any]:
    return {row.name: row for row in connection.execute(select(report).where(_is_of_recorder()))}


def _reports_since(connection: Connection, since: datetime) -> tuple[RecorderReport, ...]:
    found = [_report_from(row) for row in _rows(connection).values() if row.at > since]
    kinds = [*ReportKind]
    return tuple(sorted(found, key=lambda one: (kinds.index(one.kind), one.since, one.about)))


def _arrived_since(connection: Connection, since: datetime) -> int:
    added = select(func.coalesce(func.sum(arrival.c.count), 0)).where(
        arrival.c.minute > since, arrival.c.exception_type == _LOST
    )
    return int(connection.execute(added).scalar_one())


def _name(one: RecorderReport) -> str:
    # The names of directories are longer than the column.
    about = hashlib.sha256(f"{one.kind.value} {safe_text(one.about)}".encode()).hexdigest()
    return _PREFIX + about[:40]


def _plain(one: RecorderReport) -> dict[str, Any]:
    return {
        "kind": one.kind.value,
        "about": clip(safe_text(one.about), NAME_LIMIT),
        "worker": clip(safe_text(one.worker), NAME_LIMIT),
        "host": clip(safe_text(one.host), NAME_LIMIT),
        "messages": one.messages,
        "since": one.since.isoformat(),
        "why": clip(safe_text(one.why), WHY_LIMIT),
    }


def _report_from(row: Any) -> RecorderReport:
    plain = json.loads(row.detail)
    changed = {"kind": ReportKind(plain["kind"]), "since": datetime.fromisoformat(plain["since"])}
    return RecorderReport(**{**plain, **changed}, seen_at=row.at)
