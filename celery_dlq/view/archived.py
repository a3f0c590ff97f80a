"""The records of the archive for ``--format``. Their names are API and change only in a major release."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from celery_dlq.archive.files import Manifest
from celery_dlq.archive.finding import Finding
from celery_dlq.archive.reading import Found
from celery_dlq.redact import Redactor
from celery_dlq.view.times import iso

#: Texts that this package does not write as JSON.
_PLAIN = ("message", "traceback", "body")


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
    """An archived letter, without secrets, except in the bodies of messages."""
    line, content = found.line, found.line["content"]
    hidden = redactor.hidden(_opened(line))
    shown = {
        "traceback": redactor.traceback(content.get("traceback") or ""),
        "body": content.get("body"),
    }
    return {
        "segment": found.manifest.segment,
        **hidden,
        "content": {**hidden["content"], **shown},
    }


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
