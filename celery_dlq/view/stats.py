"""Further reports, for people and as records: closed letters that are kept, messages of killed
workers, and the server that screens read from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from celery_dlq.model.worker import Lost, RecorderReport, ReportKind
from celery_dlq.recorder.files import Standing
from celery_dlq.store.keeping import Ages, CheckReport, Holding, Keeping, Pile, RoundReport
from celery_dlq.view.operations import named_values
from celery_dlq.view.records import as_record
from celery_dlq.view.text import Fact as Fact
from celery_dlq.view.text import byte_size, counted
from celery_dlq.view.times import age_names, duration, maybe_iso

_REPORT = ("worker", "host", "messages", "since", "why", "seen_at")

_MEANINGS: Mapping[ReportKind, str] = {
    ReportKind.STUCK: "cannot be recovered",
    ReportKind.WAITING: "not recovered yet",
    ReportKind.UNCOVERED: "run without a copy",
}


@dataclass(frozen=True)
class NamedPile:
    """Closed letters of one age."""

    name: str
    pile: Pile


def letters_of(holding: Holding) -> str:
    """Which closed letters these are."""
    if holding.where is None:
        return "all others"
    return named_values(holding.where.to_dict()) or "every closed letter"


def age_of(holding: Holding) -> str:
    """For how long they are kept."""
    return "ever" if holding.age is None else f"{holding.age.total_seconds() / 86_400:g} d"


def named_ages(ages: Ages) -> list[NamedPile]:
    """Closed letters by the name of their age, such as ``under 7d``; without empty ages."""
    names = age_names({bound: pile.letters for bound, pile in ages.items()})
    return [
        NamedPile(name, pile)
        for name, pile in zip(names, ages.values(), strict=True)
        if pile.letters
    ]


def retention_facts(found: RoundReport, now: datetime) -> Sequence[Fact]:
    """The results of the last round of retention."""
    kept, lag = found.kept, found.lag(now)
    return [
        ("Last round", found.ended_at),
        ("Removed", counted(found.removed, "letter")),
        ("Closed", said_pile(kept.every)),
        ("Expire in a day", counted(kept.within_day, "letter")),
        ("Expire in a week", counted(kept.within_week, "letter")),
        ("Next expires", None if lag else found.next_expires_at),
        ("Overdue", duration(lag.total_seconds()) if lag else None),
    ]


def archive_facts(found: Keeping) -> Sequence[Fact]:
    """The contents of the archive, and when it was last written and checked; empty without segments."""
    totals = found.archive
    if not totals.segments:
        return []
    letters = said_pile(Pile(letters=totals.letters, size=totals.size))
    checked = "never" if found.check is None else found.check.checked_at
    return [
        ("Archived", f"{letters} in {counted(totals.segments, 'segment')}"),
        ("Last segment", totals.last_at),
        ("Last check", checked),
        ("Problems", _problems(found.check)),
    ]


def said_pile(pile: Pile) -> str:
    """The number of letters and their size."""
    return f"{counted(pile.letters, 'letter')}, {byte_size(pile.size)}"


def _problems(check: CheckReport | None) -> str | None:
    if check is None or not check.damaged + check.harmless:
        return None
    return f"{check.damaged:,} that lose letters, {check.harmless:,} other"


def keeping_record(found: Keeping, now: datetime) -> dict[str, Any]:
    """The closed letters that are kept: ``retention`` is null before the first round, ``verified_at`` before
    the first check."""
    totals, check = found.archive, found.check
    return {
        "retention": None if found.round is None else _round_record(found.round, now),
        "archive": {
            "segments": totals.segments,
            "letters": totals.letters,
            "bytes": totals.size,
            "last_segment_at": maybe_iso(totals.last_at),
            "verified_at": None if check is None else maybe_iso(check.checked_at),
            "damaged": None if check is None else check.damaged,
        },
    }


def _round_record(found: RoundReport, now: datetime) -> dict[str, Any]:
    kept = found.kept
    return {
        "ended_at": maybe_iso(found.ended_at),
        "removed": found.removed,
        "letters": kept.every.letters,
        "bytes": kept.every.size,
        "ages": [
            {"up_to_s": bound if math.isfinite(bound) else None, **pile_record(pile)}
            for bound, pile in kept.ages.items()
        ],
        "within_day": kept.within_day,
        "within_week": kept.within_week,
        "next_expires_at": maybe_iso(found.next_expires_at),
        "lag_s": found.lag(now).total_seconds(),
        "entries": [*map(holding_record, found.holdings)],
    }


def pile_record(pile: Pile) -> dict[str, int]:
    """Letters and their bytes."""
    return {"letters": pile.letters, "bytes": pile.size}


def holding_record(holding: Holding) -> dict[str, Any]:
    """The closed letters of one entry of ``dlq_retention``; ``filter`` is null for those of none."""
    kept = holding.kept
    return {
        "filter": None if holding.where is None else holding.where.to_dict(),
        "keep_s": None if holding.age is None else holding.age.total_seconds(),
        **pile_record(kept.every),
        "expired": kept.expired.letters,
        "expired_bytes": kept.expired.size,
        "within_day": kept.within_day,
        "within_week": kept.within_week,
        "oldest_closed_at": maybe_iso(kept.oldest_closed_at),
    }


def keeping_rows(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The numbers of :func:`keeping_record` as rows, for CSV."""
    rows = []
    for part in ("retention", "archive"):
        for name, value in (record[part] or {}).items():
            if not isinstance(value, list):
                rows.append({"measure": part, "name": name, "value": value})
    ages = (record["retention"] or {}).get("ages", [])
    return rows + [
        {
            "measure": f"closed_{unit}",
            "name": f"{one['up_to_s'] or math.inf:.0f}",
            "value": one[unit],
        }
        for unit in ("letters", "bytes")
        for one in ages
    ]


@dataclass(frozen=True, kw_only=True)
class Losses:
    """The losses on all machines that the store knows, and the messages in the files of this one."""

    lost: Lost
    #: None if the files cannot be read.
    here: Standing | None


def losses_of(queue: Any) -> Losses:
    """The losses that the dead-letter queue ``queue`` knows now.

    :raises StoreError: the store failed.
    """
    lost = queue.store.recorder_reports.look(queue.store.now())
    return Losses(lost=lost, here=queue.recorder.standing())


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
    """The trouble that a report is about, and its cause."""
    return f"{_MEANINGS[report.kind]}: {report.why}"


def lost_record(found: Losses) -> dict[str, Any]:
    """The losses as a record: ``here`` is null if the files of this machine cannot be read."""
    lost, here = found.lost, found.here
    return {
        "lost_open": lost.open,
        "lost_arrived_24h": lost.arrived,
        "here": here and as_record(here),
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
    about = None if report.kind is ReportKind.UNCOVERED else report.about
    return {
        "kind": report.kind.value,
        "directory": about,
        **as_record(report, _REPORT, messages=report.messages or None),
    }
