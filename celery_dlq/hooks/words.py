"""Events in words, and as JSON. They are sent to other services, so they have no arguments and no
tracebacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime, timezone
from enum import Enum
from typing import Any

from celery_dlq.base.redact import clip, safe_text
from celery_dlq.hooks.event import Event, EventKind, EventValue
from celery_dlq.model.audit import AuditHead
from celery_dlq.model.automation import AutoStatus
from celery_dlq.model.group import Group
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.worker import Stall

#: The most characters of an exception's message: in a line for people, and in JSON.
LINE_LIMIT, DATA_LIMIT = 300, 2_000

_LETTER_FIELDS = (
    "task_id", "task", "state", "reason", "verdict", "rule", "exception_type", "message", "fingerprint",
    "queue", "first_failed_at", "last_failed_at", "worker", "release", "redrive_count", "root_id",
    "parent_id", "group_id", "correlation_id", "canvas", "tags", "route", "closed_at", "closed_by",
    "closed_reason",
)  # fmt: skip
_OPERATION_FIELDS = (
    "id", "state", "cause", "who", "host", "detached", "created_at", "started_at", "ended_at",
)  # fmt: skip


def headline(event: Event) -> str:
    """The event in two or three words."""
    return _HEADLINES[event.kind]


def line(event: Event) -> str:
    """One line of text for people, whatever characters a letter has."""
    return f"{headline(event)}: {details(event)}"


def details(event: Event) -> str:
    """The part of :func:`line` after the colon."""
    owner = f" of {event.route_owner}" if event.route_owner else ""
    route = f", route {event.route}{owner}" if event.route else ""
    return flat(subject(event.shown) + route)


def subject(value: EventValue) -> str:
    """The subject of the event, as text that may have any characters."""
    if isinstance(value, DeadLetter):
        failed = f"{value.exception_type}: {clip(value.message, LINE_LIMIT)}"
        return f"{value.task}[{value.task_id}] {value.reason.value}, {failed} (group {value.fingerprint})"
    if isinstance(value, Group):
        failed = f"{value.exception_type}: {clip(value.message, LINE_LIMIT)}"
        return f"{value.fingerprint}, {value.task}, {failed} ({value.open_count} open)"
    if isinstance(value, AutoStatus):
        return f"{value.name}: {clip(value.why, LINE_LIMIT)}"
    if isinstance(value, Stall):
        return f"{value.worker} {clip(value.what, LINE_LIMIT)}"
    if isinstance(value, AuditHead):
        return f"{value.act} by {value.who}, head {value}" if value.act else f"head {value}"
    counts = value.counts
    return f"{value.id}, {counts.out} of {counts.planned} sent: {clip(value.cause, LINE_LIMIT)}"


def flat(text: str) -> str:
    """``text`` on one line, without invisible characters."""
    words = " ".join(text.split())
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in words)


def data(event: Event) -> dict[str, Any]:
    """The value of ``event`` in JSON-able form, bounded and without secrets; the names are those of
    ``--format json``."""
    value = event.shown
    if isinstance(value, DeadLetter):
        return letter_data(value) | _plain({"owner": event.owner})
    if isinstance(value, Group):
        found = {item.name: getattr(value, item.name) for item in fields(value)}
        return _plain(found | {"route_owner": event.route_owner})
    if isinstance(value, (AutoStatus, Stall, AuditHead)):
        return _plain({item.name: getattr(value, item.name) for item in fields(value)})
    found = {name: getattr(value, name) for name in _OPERATION_FIELDS}
    return _plain(found) | value.counts.to_dict()


def letter_data(letter: DeadLetter) -> dict[str, Any]:
    """The fields of ``letter``, which has no secrets, in JSON-able form and bounded."""
    found = {name: getattr(letter, name) for name in _LETTER_FIELDS}
    return _plain(found | {"attempts": letter.attempt_count or len(letter.attempts)})


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _plain_value(value) for name, value in values.items()}


def _plain_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).isoformat()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        return clip(safe_text(value), DATA_LIMIT)
    return list(value) if isinstance(value, tuple) else value


_HEADLINES = {
    EventKind.DEAD_LETTER: "dead letter",
    EventKind.NEW_GROUP: "new group of dead letters",
    EventKind.REGRESSION: "group of dead letters is back",
    EventKind.OPERATION_ABORTED: "redrive aborted",
    EventKind.AUTO_REDRIVE_SUSPENDED: "automatic redrive suspended",
    EventKind.WORKER_STALLED: "worker stalled",
    EventKind.REDRIVEN: "redriven",
    EventKind.RESOLVED: "resolved",
    EventKind.AUDIT: "audit",
}
