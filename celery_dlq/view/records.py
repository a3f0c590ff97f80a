"""The records of ``--format json``, ``jsonl`` and ``csv``. Their names are API and change only in a major
release. As CSV, they are safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from celery_dlq.archive.reading import ArchivedLetter, Finding
from celery_dlq.base.codec import dump_json
from celery_dlq.base.redact import REDACTED, Redactor
from celery_dlq.model.group import Group
from celery_dlq.model.handling import GroupTicket
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.operation import Sending
from celery_dlq.recorder.files import ProcessFiles
from celery_dlq.spool.look import SpoolFile
from celery_dlq.store.base import Operation, Segment, Stats
from celery_dlq.view.fields import as_record as as_record
from celery_dlq.view.fields import record_of
from celery_dlq.view.letters import LISTED
from celery_dlq.view.letters import attempts_of as attempts_of
from celery_dlq.view.operations import OPERATION
from celery_dlq.view.stats import by_age
from celery_dlq.view.text import visible

#: Texts of an archived letter that this package does not write as JSON.
_PLAIN = ("message", "traceback", "log", "body")

_OWNER = ("worker", "host", "pid")


def letter_record(letter: DeadLetter, *, owner: str) -> dict[str, Any]:
    """A letter in a list.

    :param owner: the owner of its route.
    """
    return record_of(LISTED, letter, owner=owner)


def group_record(
    group: Group, tickets: Sequence[GroupTicket], now: datetime, *, route_owner: str
) -> dict[str, Any]:
    """A group, its marks at ``now``, and its tickets and escalations.

    :param route_owner: the owner of its route.
    """
    marks = [mark.value for mark in group.marks(now)]
    listed = [*map(as_record, tickets)]
    return as_record(group, marks=marks, route_owner=route_owner, tickets=listed)


def stats_record(stats: Stats) -> dict[str, Any]:
    """The numbers of the whole store."""
    counts = ("depth", "oldest_open_at", "by_state", "by_task", "by_exception", "by_reason")
    return {
        **as_record(stats, counts),
        "arrivals_per_hour": list(stats.arrivals),
        "usual_arrivals_per_hour": stats.usual,
        "held": stats.held,
        "ages": by_age(stats.ages, lambda count: {"count": count}),
    }


def file_record(one: SpoolFile | ProcessFiles) -> dict[str, Any]:
    """A file of the spool, or a worker process's directory of the flight recorder."""
    owner, kind = None, "spool"
    if isinstance(one, SpoolFile):
        name, holds = one.name, one.records
    else:
        name, holds, owner, kind = one.path.name, one.messages, one.owner, "recorder"
    return {
        "kind": kind,
        "name": name,
        **(as_record(owner, _OWNER) if owner else dict.fromkeys(_OWNER)),
        "holds": holds,
        **as_record(one, ("state", "size", "written_at")),
    }


def operation_record(operation: Operation) -> dict[str, Any]:
    """An operation, and the counts of its letters."""
    return record_of(OPERATION, operation)


def whole_operation_record(operation: Operation, sendings: Sequence[Sending]) -> dict[str, Any]:
    """An operation with some of its letters."""
    return {**operation_record(operation), "sendings": [*map(as_record, sendings)]}


def segment_record(segment: Segment) -> dict[str, Any]:
    """A segment of the archive in a list."""
    facts = "letters", "size", "sha256", "first_failed_at", "last_failed_at", "archived_at"
    return {"segment": segment.id, **as_record(segment, ("state", *facts))}


def finding_record(finding: Finding) -> dict[str, Any]:
    """A problem of one file."""
    return {"file": finding.key, "problem": finding.problem.value, "meaning": finding.reason}


def archived_record(found: ArchivedLetter, redactor: Redactor) -> dict[str, Any]:
    """An archived letter, without secrets, except in the bodies of messages."""
    line, content = found.line, found.line["content"]
    opened = _opened(line)
    task, args = line["letter"].get("task") or "", opened["content"].get("args")
    opened["content"]["args"] = redactor.named(task, args, lambda _secret: REDACTED)
    hidden = redactor.hidden(opened)
    shown = {
        "traceback": redactor.traceback(content.get("traceback") or ""),
        "log": redactor.text(content.get("log") or ""),
        "body": content.get("body"),
    }
    return {"segment": found.segment.id, **hidden, "content": {**hidden["content"], **shown}}


def _opened(value: Any, name: str = "") -> Any:
    """``value`` with the tables and lists that it has as JSON in texts, because secrets are recognized by the
    names in them."""
    if isinstance(value, Mapping):
        return {key: _opened(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_opened(item) for item in value]
    return _read(value) if isinstance(value, str) and name not in _PLAIN else value


def _read(text: str) -> Any:
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return read if isinstance(read, (dict, list)) else text


#: The characters that a formula begins with, and their full-width forms.
_OF_FORMULAS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def csv_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of ``rows``, which are the same in all, and a line for each row; nothing without rows."""
    paper = io.StringIO()
    writer = csv.writer(paper, lineterminator="\n")
    writer.writerows(rows[:1])
    writer.writerows(map(_cell, row.values()) for row in rows)
    return paper.getvalue().splitlines()


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, (int, float)):
        return value
    text = visible(value) if isinstance(value, str) else dump_json(value)
    # A spreadsheet would evaluate a text that starts like a formula, blanks or not (OWASP: CSV injection).
    return "'" + text if text.lstrip().startswith(_OF_FORMULAS) else text
