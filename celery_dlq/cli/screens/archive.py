"""The screens of the archive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from celery_dlq.archive.files import Manifest
from celery_dlq.archive.finding import Finding
from celery_dlq.archive.segment import moment
from celery_dlq.cli.screens.operation import Command
from celery_dlq.cli.screens.render import Block, Column, Facts, Field, Part, Value, table_of
from celery_dlq.codec import dump_json
from celery_dlq.view.text import byte_size

_SEGMENT_FIELDS: Sequence[Field] = (
    (Column("SEGMENT", rigid=True), lambda one: one.segment),
    (Column("LETTERS", right=True, rigid=True), lambda one: one.facts.letters),
    (Column("SIZE", right=True, rigid=True), lambda one: byte_size(one.facts.size)),
    (Column("FIRST FAILURE", from_width=80), lambda one: _moment(one.facts.failed.from_)),
    (Column("LAST FAILURE"), lambda one: _moment(one.facts.failed.until)),
    (Column("ARCHIVED", from_width=100), lambda one: one.made_at),
)

_FINDING_FIELDS: Sequence[Field] = (
    (Column("PROBLEM", rigid=True), lambda finding: finding.problem.value),
    (Column("FILE", fold=True), lambda finding: finding.key),
    (Column("MEANING", fold=True), lambda finding: finding.reason),
)

#: The facts of a letter, by its fields.
_FACTS = {
    "Task": "task", "Id": "task_id", "State": "state", "Reason": "reason", "Group": "fingerprint",
    "Queue": "queue", "Route": "route", "Worker": "worker", "Release": "release",
    "Attempts": "attempt_count", "Redrives": "redrive_count", "Closed by": "closed_by",
    "Closed because": "closed_reason",
}  # fmt: skip
_TIMES = {
    "First failed": "first_failed_at", "Last failed": "last_failed_at", "Closed": "closed_at",
}  # fmt: skip


def segments_table(segments: Sequence[Manifest], url: str) -> Part:
    """A table of segments."""
    return table_of(_SEGMENT_FIELDS, segments, url)


def findings_table(findings: Sequence[Finding]) -> Part:
    """A table of problems."""
    return table_of(_FINDING_FIELDS, findings)


def archived_parts(record: Mapping[str, Any], command: Command) -> list[Part]:
    """The parts of the screen of an archived letter, from its record."""
    letter, content = record["letter"], record["content"]
    facts = [(name, letter.get(field)) for name, field in _FACTS.items()]
    times: list[tuple[str, Value]] = [
        (name, _moment(letter.get(field) or "")) for name, field in _TIMES.items()
    ]
    error = f"{letter.get('exception_type', '')}: {letter.get('message', '')}"
    arguments = [(name, dump_json(content[name])) for name in ("args", "kwargs") if name in content]
    return [
        Facts("Archived letter", [*facts, *times, ("Segment", record["segment"])]),
        Block("Error", error),
        Facts("Arguments", arguments),
        *([Block("Traceback", content["traceback"].rstrip())] if content.get("traceback") else []),
        f"Next: {command('archive', 'restore', str(letter['task_id']))}",
    ]


def _moment(text: str) -> Value:
    return moment(text) if text else None
