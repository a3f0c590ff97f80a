"""The records of ``--format json``, ``jsonl`` and ``csv``. Their names are API and change only in a major
release. As CSV, they are safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from enum import Enum
from typing import Any

from celery_dlq.archive.reading import Finding, Found
from celery_dlq.base.codec import dump_json
from celery_dlq.base.redact import REDACTED, Redactor
from celery_dlq.model.automation import HeldLetter
from celery_dlq.model.group import Group
from celery_dlq.model.handling import GroupTicket, Handling
from celery_dlq.model.headers import trace_of
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.operation import Orders, Sending
from celery_dlq.recorder.files import ProcessFiles
from celery_dlq.redrive.letter.payload import linked_to
from celery_dlq.spool.look import SpoolFile
from celery_dlq.store.base import Change, Filter, Operation, Segment, Stats
from celery_dlq.view.letters import has_unread_body, page_of_trace, shown_body
from celery_dlq.view.operations import state_word
from celery_dlq.view.text import visible
from celery_dlq.view.times import iso

#: Names of fields, in the order of a record.
Names = Sequence[str]

#: Texts of an archived letter that this package does not write as JSON.
_PLAIN = ("message", "traceback", "log", "body")

#: A letter in a list.
_LETTER: Names = (
    "task_id", "task", "state", "reason", "verdict", "rule", "exception_type", "message", "fingerprint",
    "queue", "attempts", "first_failed_at", "last_failed_at", "worker", "release", "redrive_count", "due_at",
    "tags", "route", "owner", "args", "kwargs",
)  # fmt: skip
#: Further fields of a whole letter.
_LETTER_ORIGIN: Names = (
    "grouped", "traceback", "log", "pid", "root_id", "parent_id", "group_id", "correlation_id", "canvas",
    "errbacks", "lease_expires_at", "closed_at", "closed_by", "closed_reason",
)  # fmt: skip
_ENVELOPE: Names = (
    "exchange", "routing_key", "content_type", "content_encoding", "headers", "properties",
)  # fmt: skip
_OPERATION: Names = (
    "id", "state", "word", "cause", "who", "host", "app", "broker", "detached", "created_at",
    "started_at", "ended_at",
)  # fmt: skip
_OWNER: Names = ("worker", "host", "pid")
_LEFT: Names = ("state", "size", "written_at")


def as_record(one: Any, names: Names = (), **given: Any) -> dict[str, Any]:
    """The fields of the dataclass ``one`` as plain data.

    :param names: only these fields, in this order; empty means all.
    :param given: values that take the place of a field with this name, or follow the fields.
    """
    shown = names or [item.name for item in fields(one)]
    values = {name: given[name] if name in given else getattr(one, name) for name in shown}
    return {name: plain(value) for name, value in {**values, **given}.items()}


def plain(value: Any) -> Any:
    """``value`` as JSON has it: a time in ISO 8601, a member of an enumeration as its value. The items of a
    list and the values of a table stay as they are."""
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (Filter, Orders)):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {plain(name): item for name, item in value.items()}
    return list(value) if isinstance(value, tuple) else value


def attempts_of(letter: DeadLetter) -> int:
    """The number of failed runs of the letter's task."""
    return letter.attempt_count or len(letter.attempts)


def letter_record(letter: DeadLetter, *, owner: str) -> dict[str, Any]:
    """A letter in a list.

    :param owner: the owner of its route.
    """
    return as_record(letter, _LETTER, attempts=attempts_of(letter), owner=owner)


def whole_letter_record(
    letter: DeadLetter,
    redrives: Sequence[Sending],
    changes: Sequence[Change],
    *,
    owner: str,
    trace_url: str = "",
) -> dict[str, Any]:
    """A letter in full, without its body.

    :param owner: the owner of its route.
    :param trace_url: ``dlq_trace_url``.
    """
    envelope, linked = letter.envelope, linked_to(letter.envelope)
    return {
        **letter_record(letter, owner=owner),
        "explanation": as_record(letter.explanation),
        "attempt_history": [*map(as_record, letter.attempts)],
        "redrives": [*map(as_record, redrives)],
        "changes": [*map(change_record, changes)],
        **as_record(letter, _LETTER_ORIGIN, errbacks=linked.tasks),
        "trace_id": trace_of(envelope.headers),
        "trace_url": page_of_trace(letter, trace_url),
        **as_record(envelope, _ENVELOPE),
        "body_size": len(envelope.body),
        "body_unread": linked.unread or None,
        "body_shown": shown_body(envelope.body) if has_unread_body(letter) else None,
    }


def handled_record(handlings: Sequence[Handling], tickets: Sequence[GroupTicket]) -> dict[str, Any]:
    """The acts of automations on a letter, and the tickets of its group."""
    return {"handlings": [*map(as_record, handlings)], "tickets": [*map(as_record, tickets)]}


def held_record(held: HeldLetter | None) -> dict[str, Any] | None:
    """Which automatic redrive holds a letter, and why; None if none does."""
    return None if held is None else as_record(held, ("name", "why", "at"))


def group_record(group: Group, now: datetime, *, route_owner: str) -> dict[str, Any]:
    """A group, and its marks at ``now``.

    :param route_owner: the owner of its route.
    """
    marks = [mark.value for mark in group.marks(now)]
    return as_record(group, marks=marks, route_owner=route_owner)


def ticketed_group_record(
    group: Group, tickets: Sequence[GroupTicket], now: datetime, *, route_owner: str
) -> dict[str, Any]:
    """:func:`group_record`, with the tickets and escalations of the group."""
    return {
        **group_record(group, now, route_owner=route_owner),
        "tickets": [*map(as_record, tickets)],
    }


def stats_record(stats: Stats) -> dict[str, Any]:
    """The numbers of the whole store. ``up_to_s`` is null for ages above the highest bound."""
    counts = as_record(
        stats, ("depth", "oldest_open_at", "by_state", "by_task", "by_exception", "by_reason")
    )
    return {
        **counts,
        "arrivals_per_hour": list(stats.arrivals),
        "usual_arrivals_per_hour": stats.usual,
        "held": stats.held,
        "ages": [
            {"up_to_s": bound if math.isfinite(bound) else None, "count": count}
            for bound, count in stats.ages.items()
        ],
    }


def stats_rows(stats: Stats) -> list[dict[str, Any]]:
    """The numbers of :func:`stats_record` as rows, for CSV."""
    record, hours = stats_record(stats), len(stats.arrivals)
    usual = "" if stats.usual is None else f"{stats.usual:g}"
    rows = [
        ("depth", "", stats.depth),
        ("oldest_open_at", "", record["oldest_open_at"]),
        *(
            (measure, name, count)
            for measure in ("by_state", "by_task", "by_exception", "by_reason")
            for name, count in record[measure].items()
        ),
        *(
            ("arrivals_per_hour", f"{hours - place}h ago", count)
            for place, count in enumerate(stats.arrivals)
        ),
        ("usual_arrivals_per_hour", "", usual),
        ("held", "", stats.held),
        *(("ages", f"{bound:g}", count) for bound, count in stats.ages.items()),
    ]
    return [{"measure": measure, "name": name, "value": value} for measure, name, value in rows]


def spool_file_record(file: SpoolFile) -> dict[str, Any]:
    """A file of the spool."""
    return {
        "kind": "spool",
        "name": file.name,
        **dict.fromkeys(_OWNER),
        "holds": file.records,
        **as_record(file, _LEFT),
    }


def recorded_record(left: ProcessFiles) -> dict[str, Any]:
    """A worker process's directory of the flight recorder, with the names of a file of the spool."""
    owner = as_record(left.owner, _OWNER) if left.owner else dict.fromkeys(_OWNER)
    return {
        "kind": "recorder",
        "name": left.path.name,
        **owner,
        "holds": left.messages,
        **as_record(left, _LEFT),
    }


def operation_record(operation: Operation) -> dict[str, Any]:
    """An operation, and the counts of its letters."""
    return {
        **as_record(
            operation, _OPERATION, word=state_word(operation), app=operation.home.app,
            broker=operation.home.broker,
        ),
        **operation.counts.to_dict(),
        **as_record(operation, ("sent_again", "wanted", "orders")),
    }  # fmt: skip


def whole_operation_record(operation: Operation, sendings: Sequence[Sending]) -> dict[str, Any]:
    """An operation with some of its letters."""
    return {**operation_record(operation), "sendings": [*map(as_record, sendings)]}


def change_record(change: Change) -> dict[str, Any]:
    """A manual change of a letter's message."""
    return as_record(change, ("at", "who", "how", "diff"))


def segment_record(segment: Segment) -> dict[str, Any]:
    """A segment of the archive in a list."""
    facts = "letters", "size", "sha256", "first_failed_at", "last_failed_at", "archived_at"
    return {"segment": segment.id, **as_record(segment, ("state", *facts))}


def finding_record(finding: Finding) -> dict[str, Any]:
    """A problem of one file."""
    return {"file": finding.key, "problem": finding.problem.value, "meaning": finding.reason}


def archived_record(found: Found, redactor: Redactor) -> dict[str, Any]:
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


def csv_lines(rows: Iterable[Mapping[str, Any]], *, titled: bool = True) -> list[str]:
    """The lines of ``rows``, which have the same names.

    :param titled: whether the first line has the names.
    """
    paper = io.StringIO()
    writer = csv.writer(paper, lineterminator="\n")
    for row in rows:
        if titled:
            writer.writerow(row)
            titled = False
        writer.writerow(_cell(value) for value in row.values())
    return paper.getvalue().splitlines()


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, (int, float)):
        return value
    text = visible(value) if isinstance(value, str) else dump_json(value)
    # A spreadsheet would evaluate a text that starts like a formula, blanks or not (OWASP: CSV injection).
    return "'" + text if text.lstrip().startswith(_OF_FORMULAS) else text
