"""The records of the archive for ``--format``. Their names are API and change only in a major release."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from celery_dlq.archive.finding import Finding
from celery_dlq.archive.manifest import Manifest
from celery_dlq.archive.reading import Found
from celery_dlq.redact import Redactor
from celery_dlq.view.times import iso

#: Parts of a message that are kept as JSON in a text.
_JSON = ("headers", "properties", "args", "kwargs")


def segment_record(manifest: Manifest) -> dict[str, Any]:
    """A segment in a list."""
    facts = manifest.facts
    return {
        "segment": manifest.segment,
        "chain": manifest.chain,
        "number": manifest.number,
        "replaces": manifest.replaces,
        "letters": facts.letters,
        "size": facts.size,
        "raw_size": facts.raw_size,
        "first_failed_at": facts.failed.from_ or None,
        "last_failed_at": facts.failed.until or None,
        "first_closed_at": facts.closed.from_ or None,
        "last_closed_at": facts.closed.until or None,
        "tasks": dict(facts.tasks),
        "schema": facts.schema,
        "software": manifest.software,
        "archived_at": iso(manifest.made_at),
    }


def finding_record(finding: Finding) -> dict[str, Any]:
    """A problem of one file."""
    return {"file": finding.key, "problem": finding.problem.value, "meaning": finding.reason}


def archived_record(found: Found, redactor: Redactor) -> dict[str, Any]:
    """An archived letter, without secrets, except in the body of its message."""
    line = found.line
    hidden = {name: redactor.hidden(value) for name, value in line.items() if name != "content"}
    return {
        "segment": found.manifest.segment,
        **hidden,
        "content": {
            name: _hidden_content(name, value, redactor) for name, value in line["content"].items()
        },
    }


def _hidden_content(name: str, value: Any, redactor: Redactor) -> Any:
    if not isinstance(value, str) or name == "body":
        return value
    if name == "traceback":
        return redactor.traceback(value)
    return redactor.hidden(_read(value) if name in _JSON else value)


def _read(text: str) -> Mapping[str, Any] | list[Any] | str:
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return read if isinstance(read, (dict, list)) else text
