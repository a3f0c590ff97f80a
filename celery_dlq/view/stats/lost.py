"""Messages of killed workers, for people and as records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from celery_dlq.recorder import Standing
from celery_dlq.store.lost import Lost, RecorderReport, ReportKind
from celery_dlq.view.text import counted
from celery_dlq.view.times import iso, maybe_iso

#: A named value; an empty one is not shown.
Fact = tuple[str, "str | datetime | None"]

_MEANINGS: Mapping[ReportKind, str] = {
    ReportKind.STUCK: "cannot be recovered",
    ReportKind.WAITING: "not recovered yet",
    ReportKind.UNCOVERED: "run without a copy",
}


@dataclass(frozen=True, kw_only=True)
class Losses:
    """What the store knows of all machines, and what is in the files of this one."""

    lost: Lost
    #: None if the files cannot be read.
    here: Standing | None


def losses_of(queue: Any) -> Losses:
    """What the dead-letter queue ``queue`` knows now.

    :raises StoreError: the store failed.
    """
    lost = queue.read_store.recorder_reports.look(queue.read_store.now())
    return Losses(lost=lost, here=queue.recorder_standing())


def lost_facts(found: Losses) -> Sequence[Fact]:
    """Lost letters, and messages that wait in the files of this machine; empty if nothing is
    lost and nothing waits."""
    lost, here = found.lost, found.here
    facts: list[Fact] = []
    if lost.open or lost.arrived:
        last_day = f"{lost.arrived:,} in the last 24 h"
        facts.append(("Lost", f"{counted(lost.open, 'open letter')}, {last_day}"))
    if here is None:
        facts.append(("Files here", "cannot be read"))
        return facts
    if here.unrecovered:
        facts.append(("Wait here", _waiting_here(here)))
        facts.append(("Oldest here", here.oldest_at))
    if here.uncounted:
        facts.append(("Not counted here", counted(here.uncounted, "directory", "directories")))
    return facts


def messages_of(report: RecorderReport) -> str:
    """The messages that a report is about; empty if they cannot be counted."""
    return counted(report.messages, "message") if report.messages else ""


def said_why(report: RecorderReport) -> str:
    """What is wrong, and why."""
    return f"{_MEANINGS[report.kind]}: {report.why}"


def lost_record(found: Losses) -> dict[str, Any]:
    """The same as a record: ``here`` is null if the files of this machine cannot be read."""
    lost, here = found.lost, found.here
    return {
        "lost_open": lost.open,
        "lost_arrived_24h": lost.arrived,
        "here": None if here is None else {**vars(here), "oldest_at": maybe_iso(here.oldest_at)},
        "reports": [_report_record(one) for one in lost.reports],
    }


def lost_rows(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The numbers of :func:`lost_record` as rows, for CSV."""
    values = {name: record[name] for name in ("lost_open", "lost_arrived_24h")}
    values |= {f"{name}_here": value for name, value in (record["here"] or {}).items()}
    kinds = [one["kind"] for one in record["reports"]]
    values |= {f"{kind.value}_reports": kinds.count(kind.value) for kind in ReportKind}
    return [{"measure": "recorder", "name": name, "value": value} for name, value in values.items()]


def _waiting_here(here: Standing) -> str:
    again = here.unrecovered - here.forgotten
    text = counted(here.unrecovered, "message")
    return f"{text}, of which the broker may deliver {again:,} again" if again else text


def _report_record(report: RecorderReport) -> dict[str, Any]:
    return {
        "kind": report.kind.value,
        "directory": None if report.kind is ReportKind.UNCOVERED else report.about,
        "worker": report.worker,
        "host": report.host,
        "messages": report.messages or None,
        "since": iso(report.since),
        "why": report.why,
        "seen_at": maybe_iso(report.seen_at),
    }
